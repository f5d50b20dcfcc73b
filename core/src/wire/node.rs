//! Agent and node: files served by the boot listener, the plan given to `muster-node run`, and the
//! lines printed in response.

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

pub use super::failure::{Failure, FailureCode};

/// `/etc/muster/site.json` in the live image: the trusted keys of this boot. Delivered as a second
/// initrd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteTrust {
    pub protocol: u32,
    /// Ed25519 public key for permit signatures; 32 bytes, base64.
    pub permit_public_key: String,
    /// The SSH user CA, as an OpenSSH public-key line. During rotations also the new CA, and the
    /// new permit key in a comment ([`crate::permits::list_keys`]).
    pub user_ca: String,
    /// Base URL of the boot listener: `http://10.77.0.1:8090/boot/v1`.
    pub agent_url: String,
}

/// The report of a live image after generating its host key. Accepted once per nonce.
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

/// The agent's clock. A live image sets its own clock from this time.
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
    /// Assignment epoch. muster-node records the highest (epoch, attempt) received and rejects
    /// lower pairs.
    pub epoch: i64,
    /// Deadline of the whole job, in seconds from the start, by the node's monotonic clock.
    pub timeout_s: u64,
    pub work: Work,
}

/// The kinds of work in a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Work {
    WriteImage(WriteImage),
    Converge(ConvergePlan),
    Gate(GatePlan),
    Wipe(WipePlan),
}

/// Streams an image onto the disk with the named serial number.
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
    /// `muster:<node>:<epoch>`: the SSH principal allowed to log in as root.
    pub principal: String,
    /// The signature of the image. Set for pools that ask for a signature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_image: Option<SignedImage>,
}

/// The signature of an image, checked by muster-node before the first byte is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignedImage {
    /// The signed text about the image, byte for byte.
    pub statement: String,
    /// One line in minisign's format.
    pub signature: String,
    /// The keys trusted by the fleet. A live image with keys of its own ignores these keys.
    pub keys: Vec<String>,
}

/// The static address of the installed node. The node boots without server and agent.
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
    /// Network files from the pool's network profile, resolved for this node. If set, they replace
    /// the single file with the address. Empty: the pool has no network profile.
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
    /// The expected state of the installed stack, for gates that compare the node with the stack.
    pub stack: Option<ConvergePlan>,
    /// Values for variables in argv of gates, such as `${agent_address}`. Only known words are
    /// replaced, without a shell.
    pub variables: BTreeMap<String, String>,
    /// Whether jobs may run on the node. If `true`, gates that need a drained node are skipped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_use: bool,
    /// Whether the node is protected and in service. If `true`, gates that write to disks and gates
    /// from before the rule of programs are skipped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub protected: bool,
    /// Ids of gates with a waived verdict. Their failures do not stop later stages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waived: Vec<String>,
    /// End of each waiver. The server applies waivers to reported results. `muster-node health`
    /// needs the end times, because it judges alone and long after receiving the suite.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub waived_until: BTreeMap<String, Timestamp>,
    /// The suite for later calls of `muster-node health`, which tells whether the node is fit for a
    /// job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Suite>,
    /// The site's own rows of the tables of Xids and SXids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xid: Option<XidOverrides>,
    /// The stack's wanted firmware and BIOS values, compared with the values reported by the BMC.
    /// The server compares, because the node cannot read its BMC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<Vec<Compared>>,
}

/// The variable with the ids of gates accepted before the rule of programs, with commas between
/// the ids. A member of the plan would be refused by an older muster-node.
const FORMER_GATES: &str = "former_gates";

impl GatePlan {
    /// Whether a gate was accepted before the rule of programs. A server without the rule names no
    /// such gates, and has accepted every gate before.
    #[must_use]
    pub fn is_former(&self, id: &str) -> bool {
        let former = self.variables.get(FORMER_GATES);
        former.is_none_or(|ids| ids.split(',').any(|former| former == id))
    }

    /// Names the gates accepted before the rule of programs. The rule holds for all other gates.
    pub fn set_former_gates(&mut self, ids: &[&str]) {
        self.variables.insert(FORMER_GATES.into(), ids.join(","));
    }
}

/// Disks to wipe, by serial number, each by the strongest supported method.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WipePlan {
    pub permit: PermitId,
    pub operation: OperationId,
    /// The claim whose data is erased; `None` for a node without a previous claim.
    pub claim: Option<ClaimId>,
    pub disk_serials: Vec<String>,
}

/// First line printed on stdout by `muster-node run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "run", rename_all = "snake_case", deny_unknown_fields)]
pub enum RunReply {
    /// The job was started and is now detached.
    Started { job: JobId, attempt: i32 },
    /// The same job with the same attempt is running or finished. The agent attaches to the job.
    Already { job: JobId, attempt: i32 },
    /// Another mutating job is running; only one may run at a time.
    Busy { job: JobId },
    /// A higher (epoch, attempt) was received before.
    Stale { epoch: i64, attempt: i32 },
}

/// One line of a job's spool, as printed by `attach`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case", deny_unknown_fields)]
pub enum Line {
    Progress(Progress),
    Log {
        at: Timestamp,
        text: String,
    },
    /// Work pauses until `answer JOB` delivers the signed permit, or the deadline passes.
    Challenge(Challenge),
    /// The last line of every job.
    Result {
        at: Timestamp,
        result: Box<WorkResult>,
    },
}

/// Progress of a step: `done` of `total`, counted in `unit`, or only a message.
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

/// The result of a job.
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

/// A finished image write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageWritten {
    pub disk_serial: String,
    pub bytes: u64,
    pub raw_digest: Digest,
    /// Host key of the installed OS, OpenSSH public-key line.
    pub host_key: String,
    /// Number of the NVRAM entry written (`Boot0003`); `None` on BIOS machines.
    pub nvram_entry: Option<String>,
}

/// One wiped disk, with the method used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WipedDisk {
    pub serial: String,
    pub method: WipeMethod,
    pub bytes: u64,
    /// Number of blocks read back and found clean.
    pub verified_blocks: u64,
}

/// Methods for wiping a disk, strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WipeMethod {
    NvmeSanitize,
    NvmeFormat,
    AtaSecureErase,
    Discard,
    Overwrite,
}

/// muster-node's proof of the machine's identity. The server signs the challenge if the permit
/// matches.
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
    /// Sorted serial numbers of the disks to write.
    pub disk_serials: Vec<String>,
    /// 32 random bytes, hex.
    pub nonce: String,
}

/// The server's decision, a signature or a refusal, on the stdin of `muster-node answer JOB`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    /// Ed25519 signature over [`crate::permits::signed_bytes`]; base64.
    Granted {
        signature: String,
    },
    Refused {
        reason: String,
    },
}

/// Output of `muster-node version`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Version {
    pub protocol: u32,
    pub version: String,
    /// Digest of the executable itself. The agent compares digests to decide whether to copy a
    /// newer executable.
    pub digest: Digest,
}

/// Output of `muster-node inventory`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inventory {
    pub protocol: u32,
    pub facts: Facts,
}
