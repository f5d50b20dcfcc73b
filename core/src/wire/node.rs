//! Agent and node: what the boot listener serves, the plan given to `muster-node run`, and the lines it answers with.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::facts::Facts;
use crate::firmware::Compared;
use crate::gates::xid::XidOverrides;
use crate::gates::{GateResult, Suite};
use crate::ids::{ClaimId, JobId, NodeId, OperationId, PermitId};
use crate::network::NetworkFile;
use crate::profiles::HardwareProfile;
pub use crate::stacks::Marker;
use crate::stacks::{ConvergePlan, ConvergeReport};
use crate::values::{Digest, Mac};

/// `/etc/muster/site.json` in the live image: whom this boot trusts. Handed over as a second initrd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteTrust {
    pub protocol: u32,
    /// Ed25519 key that signs permits; 32 bytes, base64.
    pub permit_public_key: String,
    /// The SSH user CA, as an OpenSSH public-key line.
    pub user_ca: String,
    /// Base of the boot listener: `http://10.77.0.1:8090/boot/v1`.
    pub agent_url: String,
}

/// What the live image reports once its host key exists. Accepted once per nonce.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveReport {
    pub protocol: u32,
    /// 16 random bytes in hex, from the kernel command line.
    pub nonce: String,
    pub mac: Mac,
    /// OpenSSH public-key line, without comment.
    pub host_key: String,
}

/// The agent's clock; a live image sets its own from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeReply {
    pub unix_ms: i64,
}

/// The plan of one job, on the stdin of `muster-node run JOB ATTEMPT`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub protocol: u32,
    pub job: JobId,
    pub attempt: i32,
    pub node: NodeId,
    /// Assignment epoch; muster-node keeps the highest (epoch, attempt) it saw and refuses lower ones.
    pub epoch: i64,
    /// The whole job's deadline on the node's own monotonic clock, in seconds from its start.
    pub timeout_s: u64,
    pub work: Work,
}

/// What muster-node can be asked to do with a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Work {
    WriteImage(WriteImage),
    Converge(ConvergePlan),
    Gate(GatePlan),
    Wipe(WipePlan),
}

/// Stream an image onto the one disk whose serial is named.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteImage {
    pub permit: PermitId,
    pub operation: OperationId,
    pub claim: ClaimId,
    pub disk_serial: String,
    /// `http://AGENT:8090/boot/v1/blob/sha256/…`
    pub url: String,
    pub digest: Digest,
    pub size: u64,
    pub raw_digest: Digest,
    pub raw_size: u64,
    pub esp_partition: u32,
    pub root_partition: u32,
    pub hostname: String,
    pub network: StaticNetwork,
    pub user_ca: String,
    /// `muster:<node>:<epoch>`: who may log in as root.
    pub principal: String,
}

/// The installed node's own address; it boots with server and agent both dead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StaticNetwork {
    pub mac: Mac,
    /// Address with prefix length: `10.77.0.11/24`.
    pub address: String,
    pub gateway: Option<String>,
    pub dns: Vec<String>,
    /// Extra lines of /etc/hosts, as (address, name): names must resolve without a DNS server.
    pub hosts: Vec<(String, String)>,
    /// What the pool's network profile comes to on this node: written instead of one file with the address. Empty: the pool has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<NetworkFile>,
}

/// Gates to run, in the order of the suite's stages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatePlan {
    pub suite: Suite,
    pub profile: HardwareProfile,
    /// Ids of the suite's gates to run; empty means all.
    pub only: Vec<String>,
    /// What the installed stack promises, for gates that compare against it.
    pub stack: Option<ConvergePlan>,
    /// Values gates may name in argv as `${agent_address}` and the like: known words, no shell.
    pub variables: BTreeMap<String, String>,
    /// Whether jobs may run on the node: gates that need a drained one are skipped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_use: bool,
    /// Ids of gates whose verdict is waived: they keep no later stage from being run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waived: Vec<String>,
    /// Until when each of them is. The server stamps what it is told; `muster-node health` judges by itself, and long after it was given its suite.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub waived_until: BTreeMap<String, Timestamp>,
    /// The suite by which `muster-node health` tells from now on whether the node is fit for a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Suite>,
    /// The site's own rows of the tables of Xids and SXids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xid: Option<XidOverrides>,
    /// What the stack wants of firmware and BIOS beside what the node's BMC said of them: the node cannot hear its BMC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<Vec<Compared>>,
}

/// Disks to wipe, by serial, each by the strongest method it supports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WipePlan {
    pub permit: PermitId,
    pub operation: OperationId,
    /// The claim whose data goes; `None` for a node that never had one.
    pub claim: Option<ClaimId>,
    pub disk_serials: Vec<String>,
}

/// First line of `muster-node run`'s answer, on stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "run", rename_all = "snake_case", deny_unknown_fields)]
pub enum RunReply {
    /// The job was started and is detached now.
    Started { job: JobId, attempt: i32 },
    /// The same job is running or finished already under this attempt: attach to it.
    Already { job: JobId, attempt: i32 },
    /// Another mutating job runs; one at a time.
    Busy { job: JobId },
    /// A higher (epoch, attempt) was seen before.
    Stale { epoch: i64, attempt: i32 },
}

/// One line of a job's spool, as `attach` prints them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case", deny_unknown_fields)]
pub enum Line {
    Progress(Progress),
    Log {
        at: Timestamp,
        text: String,
    },
    /// Work stops here until `answer JOB` brings the signed permit, or the deadline passes.
    Challenge(Challenge),
    /// The last line of every job.
    Result {
        at: Timestamp,
        result: Box<WorkResult>,
    },
}

/// How far a step is; `done` of `total` in `unit`s, or a message alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Progress {
    pub at: Timestamp,
    pub message: String,
    pub done: Option<u64>,
    pub total: Option<u64>,
    pub unit: Option<String>,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "kebab-case", deny_unknown_fields)]
pub enum WorkResult {
    ImageWritten(ImageWritten),
    Converged(ConvergeReport),
    Gated {
        results: Vec<GateResult>,
        fingerprint: Digest,
    },
    Wiped {
        disks: Vec<WipedDisk>,
    },
    Failed(Failure),
}

/// The code of a failure: a system that should be up let nobody in.
pub const UNREACHABLE: &str = "ssh_unreachable";

/// Why something did not work, in words for an engineer at 3 am.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// A stable word: `disk_ambiguous`, `digest_mismatch`, `permit_refused`…
    pub code: String,
    pub message: String,
    /// Whether trying the same again can help.
    pub retryable: bool,
}

/// A finished image write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageWritten {
    pub disk_serial: String,
    pub bytes: u64,
    pub raw_digest: Digest,
    /// Host key of the installed OS, OpenSSH public-key line.
    pub host_key: String,
    /// Number of the NVRAM entry written (`Boot0003`), `None` on BIOS machines.
    pub nvram_entry: Option<String>,
}

/// One wiped disk and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WipedDisk {
    pub serial: String,
    pub method: WipeMethod,
    pub bytes: u64,
    /// Blocks read back and found clean.
    pub verified_blocks: u64,
}

/// Ways to wipe, strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WipeMethod {
    NvmeSanitize,
    NvmeFormat,
    AtaSecureErase,
    Discard,
    Overwrite,
}

/// muster-node's proof of where it runs; the server signs it when the permit fits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Challenge {
    pub protocol: u32,
    pub permit: PermitId,
    pub operation: OperationId,
    pub job: JobId,
    pub attempt: i32,
    pub node: NodeId,
    pub epoch: i64,
    pub boot_id: String,
    pub chassis_serial: Option<String>,
    /// Sorted serials of the disks about to be written.
    pub disk_serials: Vec<String>,
    /// 32 random bytes, hex.
    pub nonce: String,
}

/// The server's yes (a signature) or no, on the stdin of `muster-node answer JOB`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    /// Ed25519 over [`crate::permits::signed_bytes`]; base64.
    Granted {
        signature: String,
    },
    Refused {
        reason: String,
    },
}

/// `muster-node version`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Version {
    pub protocol: u32,
    pub version: String,
    /// Of the executable itself: decides whether the agent must push a newer one.
    pub digest: Digest,
}

/// `muster-node inventory`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inventory {
    pub protocol: u32,
    pub facts: Facts,
}
