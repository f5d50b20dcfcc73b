#!/bin/bash
# The checks of smoke-cpu.toml as a sequence of shell functions, each with its own calls, as published health-check scripts for GPU nodes are built: a
# function for each check, its tool run and filtered by grep and awk, the first that fails ends the run with its code.

check_kernel_log() {
    local pattern
    for pattern in 'NVRM: Xid .*: (48|62|64|74|79|92|95|119|120|140),' 'SXid .*Fatal' 'fallen off the bus' 'AER: .*Uncorrect' 'Hardware Error.*Uncorrected' \
        'mlx5_core.*(health compromised|unrecoverable)' '(I/O error|critical medium error)' 'Remounting filesystem read-only' '(soft lockup|hard LOCKUP)' \
        'blocked for more than'; do
        if dmesg | grep -Eq "$pattern"; then
            echo "ERROR: kernel log: $pattern"
            exit 2
        fi
    done
}

check_space() {
    local used
    used=$(df -P -k -l -x tmpfs -x devtmpfs -x squashfs -x iso9660 -x overlay -x efivarfs 2>/dev/null | awk 'NR > 1 { sub("%", "", $5); if ($5 + 0 > most) most = $5 + 0 } END { print most + 0 }')
    if [ "$used" -gt 95 ]; then
        echo "ERROR: a file system is $used % full"
        exit 3
    fi
}

check_inodes() {
    local used
    used=$(df -P -i -l -x tmpfs -x devtmpfs -x squashfs -x iso9660 -x overlay -x efivarfs 2>/dev/null | awk 'NR > 1 { sub("%", "", $5); if ($5 + 0 > most) most = $5 } END { print most + 0 }')
    if [ "$used" -gt 95 ]; then
        echo "ERROR: a file system has used $used % of its inodes"
        exit 4
    fi
}

check_memory() {
    local total
    total=$(awk '/^MemTotal:/ { print int($2 / 1024) }' /proc/meminfo)
    if [ "$total" -lt 256 ]; then
        echo "ERROR: $total MiB of memory"
        exit 5
    fi
}

check_processors() {
    local sockets
    sockets=$(lscpu | awk -F: '/^Socket\(s\)/ { print int($2) }')
    if [ "${sockets:-0}" -lt 1 ]; then
        echo "ERROR: no socket"
        exit 6
    fi
}

check_links() {
    local function width most
    for function in /sys/bus/pci/devices/*; do
        [ -e "$function/current_link_width" ] || continue
        width=$(cat "$function/current_link_width")
        most=$(cat "$function/max_link_width")
        if [ "$width" -gt 0 ] && [ "$most" -lt 255 ] && [ "$width" -lt "$most" ]; then
            echo "WARN: $function trained down to $width of $most lanes"
        fi
    done
}

for check in check_kernel_log check_space check_inodes check_memory check_processors check_links; do
    $check
done
echo "SUCCESS"
