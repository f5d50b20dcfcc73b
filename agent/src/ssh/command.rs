//! The commands allowed on a node. Each is a fixed verb with parsed ids, numbers and digests, and
//! has limits for time and output.

use std::fmt;
use std::time::Duration;

use muster_core::gates::RESULT_BYTES;
use muster_core::ids::JobId;
use muster_core::values::Digest;

/// Path of muster-node, in the live image and in the installed OS.
pub const MUSTER_NODE: &str = "/usr/local/sbin/muster-node";

/// Exit status of a command stopped without effect, because muster-node was missing or had another
/// digest than named.
pub const NOT_IN_PLACE: u32 = 113;

/// A command. `Display` writes the line for the shell of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Prints `wire::node::Version` as JSON.
    Version,
    /// Prints `wire::node::Inventory` as JSON.
    Inventory,
    /// Prints the same inventory, after waiting for LLDP from the switches of the interfaces named
    /// in the input.
    InventoryHeard,
    /// Reads a `wire::node::Plan` from standard input, prints a single `RunReply` and detaches.
    Run {
        job: JobId,
        attempt: i32,
    },
    /// Combines `Run` and `Attach`: prints the reply of `Run` as first line, then the output of
    /// `Attach`. If the digest of muster-node differs, the command exits with [`NOT_IN_PLACE`]
    /// before running the job.
    RunAttached {
        job: JobId,
        attempt: i32,
        offset: u64,
        node: Option<Digest>,
    },
    /// Prints the spool of the job from a byte offset until the result.
    Attach {
        job: JobId,
        offset: u64,
    },
    /// Reads a `wire::node::Answer` from standard input.
    Answer {
        job: JobId,
    },
    Cancel {
        job: JobId,
    },
    /// Reads a `wire::pair::PairPlan` from standard input and prints `PairLine`s. The command
    /// listens as long as the input stays open.
    PairServe,
    /// Reads a `wire::pair::PairPlan` from standard input and prints a single `PairAnswer`. The
    /// time limits of the gate bound the command.
    PairAsk {
        within_s: u64,
    },
    /// Reads the muster-node binary from standard input. The binary is installed only if its digest
    /// matches, so a partial transfer is dropped.
    InstallNode {
        digest: Digest,
    },
    /// Reads the `authorized_keys` line trusting our CA from standard input. Replaces the line of
    /// an earlier assignment and keeps all other lines.
    TrustCa,
    /// Reads a key revocation list from standard input, and makes sshd refuse the keys in the list.
    /// The option is written only where the list is in place, whole and readable: without the file
    /// of the option, sshd refuses every key. The option of another owner is left as it is.
    RevokeKeys {
        digest: Digest,
    },
    /// Reads `wire::node::Marker` as JSON from standard input.
    WriteMarker,
    /// Prints the random id of the current boot, from the kernel (random(4)).
    BootId,
    Reboot,
    PowerOff,
}

/// Limits for time and output of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Time limit of the command.
    pub within: Duration,
    /// Maximum size of the standard output in bytes.
    pub output_bytes: usize,
}

impl Command {
    /// Returns limits sized for the slowest machine seen and the largest valid answer. `Attach` and
    /// `PairServe` stream instead: the length of a line is limited, and the job limits the time.
    /// The limits of `RunAttached` apply to the first line.
    pub fn bounds(&self) -> Bounds {
        let (seconds, output_bytes) = match self {
            Self::PairServe => (0, 0),
            Self::PairAsk { within_s } => (*within_s, RESULT_BYTES),
            Self::Version | Self::BootId | Self::Cancel { .. } | Self::Answer { .. } => {
                (30, 64 << 10)
            }
            Self::Reboot
            | Self::PowerOff
            | Self::TrustCa
            | Self::RevokeKeys { .. }
            | Self::WriteMarker => (30, 64 << 10),
            Self::Run { .. } | Self::RunAttached { .. } => (60, 64 << 10),
            Self::Inventory | Self::InventoryHeard => (180, RESULT_BYTES),
            Self::InstallNode { .. } => (300, 64 << 10),
            Self::Attach { .. } => (0, 0),
        };
        Bounds {
            within: Duration::from_secs(seconds),
            output_bytes,
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version => write!(f, "{MUSTER_NODE} version"),
            Self::Inventory => write!(f, "{MUSTER_NODE} inventory"),
            Self::InventoryHeard => write!(f, "{MUSTER_NODE} inventory -"),
            Self::Run { job, attempt } => write!(f, "{MUSTER_NODE} run {job} {attempt}"),
            Self::RunAttached { job, attempt, offset, node } => {
                if let Some(digest) = node {
                    let sum = digest.hex();
                    write!(f, "echo '{sum}  {MUSTER_NODE}' | sha256sum --check --status || exit {NOT_IN_PLACE}; ")?;
                }
                write!(f, "{MUSTER_NODE} run {job} {attempt} && exec {MUSTER_NODE} attach {job} {offset}")
            }
            Self::Attach { job, offset } => write!(f, "{MUSTER_NODE} attach {job} {offset}"),
            Self::Answer { job } => write!(f, "{MUSTER_NODE} answer {job}"),
            Self::Cancel { job } => write!(f, "{MUSTER_NODE} cancel {job}"),
            Self::PairServe => write!(f, "exec {MUSTER_NODE} pair serve -"),
            Self::PairAsk { .. } => write!(f, "exec {MUSTER_NODE} pair ask -"),
            // After a broken connection `cat` ends as if the file were complete, so the digest is
            // checked.
            Self::InstallNode { digest } => write!(
                f,
                "set -e; umask 077; cat > {MUSTER_NODE}.new; echo '{}  {MUSTER_NODE}.new' | sha256sum --check --status; \
                 chmod 0755 {MUSTER_NODE}.new; mv -f {MUSTER_NODE}.new {MUSTER_NODE}",
                digest.hex()
            ),
            // The new file is complete before replacing the old file, so that existing logins keep
            // working.
            Self::TrustCa => f.write_str(
                "set -e; umask 077; mkdir -p /root/.ssh; cd /root/.ssh; touch authorized_keys; read -r line; \
                 { grep -v ' muster-adopted$' authorized_keys || true; printf '%s\\n' \"$line\"; } > authorized_keys.muster; \
                 mv -f authorized_keys.muster authorized_keys",
            ),
            Self::RevokeKeys { digest } => f.write_str(&REVOKE_KEYS.replace("DIGEST", &digest.hex())),
            Self::WriteMarker => f.write_str(
                "set -e; umask 022; mkdir -p /etc/muster; cat > /etc/muster/marker.json.new; \
                 mv -f /etc/muster/marker.json.new /etc/muster/marker.json",
            ),
            Self::BootId => f.write_str("cat /proc/sys/kernel/random/boot_id"),
            Self::Reboot => f.write_str("systemctl --no-block reboot || reboot"),
            Self::PowerOff => f.write_str("systemctl --no-block poweroff || poweroff"),
        }
    }
}

/// sshd reads the list at each login. The option is read at the start, so the first list of a boot
/// reloads sshd: the file in `/run` notes the reload. `sshd -T` prints the option as sshd reads it.
/// A reload of a configuration that `sshd -t` refuses would end sshd. The list is on the disk
/// before the option, so that no loss of power leaves the option alone.
const REVOKE_KEYS: &str = "set -e; umask 022; cd /etc/ssh; cat > muster_revoked_keys.new; \
     echo 'DIGEST  muster_revoked_keys.new' | sha256sum -c > /dev/null; \
     ssh-keygen -Q -f muster_revoked_keys.new; sync muster_revoked_keys.new || sync; \
     mv -f muster_revoked_keys.new muster_revoked_keys; sync . || sync; \
     option() { /usr/sbin/sshd -T -C user=root,host=node,addr=127.0.0.1,laddr=127.0.0.1,lport=22 | sed -n 's/^revokedkeys //p'; }; \
     case \"$(option)\" in /etc/ssh/muster_revoked_keys) ;; \
     none|'') rm -f /run/muster-revoked-keys; mkdir -p sshd_config.d; conf=sshd_config.d/00-muster-revoked; \
     echo 'RevokedKeys /etc/ssh/muster_revoked_keys' > $conf.new; mv -f $conf.new $conf.conf; \
     if ! /usr/sbin/sshd -t || test \"$(option)\" != /etc/ssh/muster_revoked_keys; then rm -f $conf.conf; \
     echo 'sshd does not read /etc/ssh/sshd_config.d' >&2; exit 1; fi;; \
     *) echo \"RevokedKeys of sshd is set by another owner: $(option)\" >&2; exit 1;; esac; \
     test -e /run/muster-revoked-keys && exit 0; /usr/sbin/sshd -t; \
     timeout 10 systemctl reload ssh 2> /dev/null || timeout 10 systemctl reload sshd 2> /dev/null || \
     { pid=$(cat /run/sshd.pid) && grep -qx sshd \"/proc/$pid/comm\" && kill -HUP \"$pid\"; }; \
     : > /run/muster-revoked-keys";
