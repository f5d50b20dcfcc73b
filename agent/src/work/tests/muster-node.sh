# A muster-node that keeps state in $NODE: `lines` is the job's spool, written by the test. What was asked is noted in `asked`, over which
# connection in `connections`.
echo "$SSH_ORIGINAL_COMMAND" >> "$NODE/asked"
echo "$SSH_CONNECTION" >> "$NODE/connections"
echo "$PPID" > "$NODE/session"
result='{"line":"result","at":"2026-01-01T00:00:00Z","result":{"result":"wiped","disks":[]}}'

rest() { tail -c +"$(($1 + 1))" "$NODE/lines"; }

# muster-node VERB ...
verb() {
    case "$2" in
    version) cat "$NODE/version" ;;
    run)
        cat > "$NODE/plan"
        if [ -e "$NODE/stale" ]; then cat "$NODE/stale"; return; fi
        if mkdir "$NODE/job" 2>/dev/null; then run=started; else run=already; fi
        echo "{\"run\":\"$run\",\"job\":\"$3\",\"attempt\":$4}"
        ;;
    attach)
        echo "$4" >> "$NODE/offsets"
        if [ -e "$NODE/flaky" ]; then
            case $(wc -l < "$NODE/offsets") in
            1) rest "$4" | head -c 333; exit 0 ;;    # ends inside a line
            2) rest "$4" | head -c 777; kill -9 $PPID ;; # the connection breaks
            esac
        fi
        size=$(wc -c < "$NODE/lines")
        rest "$4"
        grep -q '"line":"result"' "$NODE/lines" && exit 0
        echo attached > "$NODE/attached"
        timeout 20 head -n 1 "$NODE/answered" > /dev/null || exit 9
        rest "$size"
        ;;
    answer)
        cat > "$NODE/answer"
        echo "$result" >> "$NODE/lines"
        echo yes > "$NODE/answered"
        ;;
    cancel) ;;
    *) exit 2 ;;
    esac
}

asked=$SSH_ORIGINAL_COMMAND
case "$asked" in
*muster_revoked_keys*)
    [ ! -e "$NODE/keeps_keys" ] || exit 1
    cat > "$NODE/revoked"
    exit 0
    ;;
"set -e;"*)
    cat > "$NODE/pushed"
    sum=$(sha256sum < "$NODE/pushed")
    echo "{\"protocol\":1,\"version\":\"0\",\"digest\":\"sha256:${sum%% *}\"}" > "$NODE/version"
    exit 0
    ;;
"cat /proc/"*boot_id) exec cat "$NODE/boot_id" ;;
"systemctl --no-block reboot"*)
    mv "$NODE/next_boot_id" "$NODE/boot_id"
    kill -9 $PPID
    exit 0
    ;;
"echo '"*)
    # Only with that muster-node.
    sum=${asked#"echo '"}
    grep -q "${sum%% *}" "$NODE/version" || exit 113
    asked=${asked#*; }
    ;;
esac
verb ${asked%% && exec *} || exit
case "$asked" in *" && exec "*) verb ${asked#* && exec } ;; esac
