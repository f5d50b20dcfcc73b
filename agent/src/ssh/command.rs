//! What may be run on a node: fixed verbs with parsed ids, numbers and digests, and how long and how much each may say.

use std::fmt;
use std::time::Duration;

use muster_core::ids::JobId;
use muster_core::values::Digest;

/// Where muster-node lives, in the live image and in the installed OS.
pub const MUSTER_NODE: &str = "/usr/local/sbin/muster-node";

/// Exit status of a command that found another muster-node than the one it names, or none, and did nothing.
pub const NOT_IN_PLACE: u32 = 113;

/// One command. `Display` gives the line the node's shell gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// `wire::node::Version` as JSON.
    Version,
    /// `wire::node::Inventory` as JSON.
    Inventory,
    /// The same, once the switches of the interfaces that the input names had the time to speak.
    InventoryHeard,
    /// Takes a `wire::node::Plan` on its input, answers with one `RunReply` and detaches.
    Run {
        job: JobId,
        attempt: i32,
    },
    /// Both in one: the answer of `Run` as the first line, then what `Attach` prints. Of a muster-node with another digest nothing is run: it ends
    /// with [`NOT_IN_PLACE`].
    RunAttached {
        job: JobId,
        attempt: i32,
        offset: u64,
        node: Option<Digest>,
    },
    /// Follows the job's spool from a byte offset until its result.
    Attach {
        job: JobId,
        offset: u64,
    },
    /// Takes a `wire::node::Answer` on its input.
    Answer {
        job: JobId,
    },
    Cancel {
        job: JobId,
    },
    /// Takes a `wire::pair::PairPlan` on its input, which stays open for as long as it is to listen; prints `PairLine`s.
    PairServe,
    /// Takes a `wire::pair::PairPlan` on its input, answers with one `PairAnswer`. It ends within its gate's own times.
    PairAsk {
        within_s: u64,
    },
    /// Takes muster-node itself on its input; puts it in place only when it arrived whole.
    InstallNode {
        digest: Digest,
    },
    /// Takes the line that trusts our CA on its input; one of an earlier assignment is replaced, everything else stays.
    TrustCa,
    /// Takes `wire::node::Marker` as JSON on its input.
    WriteMarker,
    /// The kernel's random id of this boot (random(4)).
    BootId,
    Reboot,
    PowerOff,
}

/// How long a command may take and how much it may print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub within: Duration,
    pub output_bytes: usize,
}

impl Command {
    /// Bounds that fit the slowest machine seen and the largest honest answer. `Attach` streams instead: its lines are bounded, its time is
    /// the job's; those of `RunAttached` are for its first line. So does `PairServe`.
    pub fn bounds(&self) -> Bounds {
        let (seconds, output_bytes) = match self {
            Self::PairServe => (0, 0),
            Self::PairAsk { within_s } => (*within_s, 16 << 20),
            Self::Version | Self::BootId | Self::Cancel { .. } | Self::Answer { .. } => {
                (30, 64 << 10)
            }
            Self::Reboot | Self::PowerOff | Self::TrustCa | Self::WriteMarker => (30, 64 << 10),
            Self::Run { .. } | Self::RunAttached { .. } => (60, 64 << 10),
            Self::Inventory | Self::InventoryHeard => (180, 16 << 20),
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
            // A broken connection ends `cat` as if the file were whole: the digest decides.
            Self::InstallNode { digest } => write!(
                f,
                "set -e; umask 077; cat > {MUSTER_NODE}.new; echo '{}  {MUSTER_NODE}.new' | sha256sum --check --status; \
                 chmod 0755 {MUSTER_NODE}.new; mv -f {MUSTER_NODE}.new {MUSTER_NODE}",
                digest.hex()
            ),
            // The new file is whole before it takes the old one's place: whoever logged in before still can.
            Self::TrustCa => f.write_str(
                "set -e; umask 077; mkdir -p /root/.ssh; cd /root/.ssh; touch authorized_keys; read -r line; \
                 { grep -v ' muster-adopted$' authorized_keys || true; printf '%s\\n' \"$line\"; } > authorized_keys.muster; \
                 mv -f authorized_keys.muster authorized_keys",
            ),
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
