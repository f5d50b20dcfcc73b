//! Server and agent: the agent calls, the server answers. `POST /agent/v1/…` under the agent's certificate; JSON both ways.

use std::net::{IpAddr, Ipv4Addr};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::clusters::SlurmCluster;
use crate::facts::Facts;
use crate::firmware::BmcInventory;
use crate::gates::GateResult;
use crate::ids::{AgentId, JobId, NodeId, PermitId};
use crate::stacks::{ConvergePlan, ConvergeReport};
use crate::values::{Digest, Mac, Secret};
use crate::wire::adopt::Adopt;
use crate::wire::bmc::{Power, RotateBmc};
use crate::wire::firmware::SetFirmware;
use crate::wire::node::{
    Answer, Challenge, Failure, GatePlan, ImageWritten, Progress, WipePlan, WipedDisk, WriteImage,
};
use crate::wire::pair::{PairOrder, PairWay};

/// A site's lease in seconds, from the latest answer that its agent has.
pub const SITE_LEASE_S: u64 = 45;

/// `POST /agent/v1/hello`: first call of an agent process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    pub protocol: u32,
    pub version: String,
    /// Made anew by each process: a restarted agent is not the one before.
    pub instance: String,
}

/// Who the agent is and how long it may act without hearing from the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Welcome {
    pub protocol: u32,
    pub agent: AgentId,
    pub site: String,
    /// Raised whenever another process takes over; calls with an older one are refused with 409 `stale_epoch`.
    pub epoch: i64,
    /// A job lease in seconds; renew well before.
    pub lease_s: u64,
    pub permit_public_key: String,
    pub user_ca: String,
}

/// `POST /agent/v1/site`: long poll for what the boot services need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SitePoll {
    pub epoch: i64,
    /// Revision the agent has; the answer waits up to `wait_s` for another.
    pub have: Option<String>,
    pub wait_s: u64,
}

/// What a site's boot services answer from. The agent keeps the last one on disk to answer DHCP, local boot only, without a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteConfig {
    pub revision: String,
    pub site: String,
    pub subnets: Vec<Subnet>,
    /// Serial consoles to record.
    #[serde(default)]
    pub consoles: Vec<ConsoleTarget>,
}

/// Where a node's serial console is read, and only read: raw bytes over TCP, as of a conserver, a terminal server or a bridge to serial over LAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsoleTarget {
    pub node: NodeId,
    pub address: IpAddr,
    pub port: u16,
}

/// One provisioning subnet of the site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subnet {
    pub name: String,
    pub network: ipnet::Ipv4Net,
    /// The agent's own address on it; DHCP server id, TFTP and HTTP boot.
    pub agent_address: Ipv4Addr,
    pub gateway: Option<Ipv4Addr>,
    pub dns: Vec<Ipv4Addr>,
    pub mode: DhcpMode,
    /// Addresses lent to machines nobody declared, first and last.
    pub dynamic_range: Option<(Ipv4Addr, Ipv4Addr)>,
    pub reservations: Vec<Reservation>,
    /// Relays (giaddr) whose packets are honoured.
    pub relays: Vec<Ipv4Addr>,
}

/// How DHCP behaves on a subnet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum DhcpMode {
    Authoritative,
    Proxy,
    Off,
}

/// A node's address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reservation {
    pub node: NodeId,
    pub name: String,
    pub mac: Mac,
    pub address: Ipv4Addr,
}

/// `POST /agent/v1/sightings`: what the boot listener saw. Bounded batches; nothing here is trusted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sightings {
    pub epoch: i64,
    pub sightings: Vec<Sighting>,
}

/// One thing a machine did on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sighting {
    pub at: Timestamp,
    pub mac: Mac,
    pub what: Seen,
    /// SMBIOS UUID and serial as the firmware sent them (DHCP option 97, iPXE settings).
    pub uuid: Option<String>,
    pub serial: Option<String>,
    pub detail: String,
}

/// The kinds of sighting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Seen {
    /// A PXE client asked for an address.
    Dhcp,
    /// Our iPXE was fetched by TFTP, whole.
    Tftp,
    /// An iPXE script was given: armed or local boot, in `detail`.
    Script,
    /// Kernel or initrd was fetched.
    Kernel,
    /// A live image reported its host key.
    Report,
    /// Another DHCP server answered on the subnet.
    RogueDhcp,
}

/// `POST /agent/v1/lease`: long poll for jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseJobs {
    pub epoch: i64,
    /// Jobs the agent can take on now.
    pub capacity: u32,
    pub wait_s: u64,
}

/// Jobs leased to the agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeasedJobs {
    pub jobs: Vec<Job>,
}

/// One unit of work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    pub id: JobId,
    /// Fences stale workers: only the latest attempt may commit.
    pub attempt: i32,
    pub node: NodeId,
    pub node_name: String,
    /// Assignment epoch of the node.
    pub epoch: i64,
    /// Seconds this job may take from now.
    pub timeout_s: u64,
    /// `once` acts that an earlier attempt had started: observe, do not repeat blindly.
    pub acts: Vec<ActRecord>,
    pub spec: JobSpec,
}

/// What the agent does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum JobSpec {
    /// Arm, power on (or reset) with a one-time PXE override, wait for the live image, log in, check identity. `once` inside.
    BootLive(BootLive),
    /// `muster-node inventory` in the live image or the installed OS.
    Inventory {
        login: Login,
        /// Interfaces with a declared cable: in the live image each is given the time in which a switch speaks (LLDP).
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        cabled: Vec<String>,
    },
    /// Shut down through the OS if it can be reached, then by BMC; observed off. Observe, then act.
    PowerOff {
        power: Power,
        login: Option<Login>,
        permit: PermitId,
    },
    /// `muster-node run write-image`. Idempotent under its permit.
    WriteImage { login: Login, plan: WriteImage },
    /// Clear the override, reset into the installed OS, wait for its host key. `once` inside.
    BootDisk {
        power: Power,
        /// The installed OS, with the host key recorded while its image was written.
        login: Login,
        /// The live session the node was imaged from. Without a BMC, rebooting there saves a walk to the machine.
        #[serde(default)]
        live: Option<Login>,
        permit: PermitId,
    },
    /// `muster-node run converge`. Idempotent.
    Converge { login: Login, plan: ConvergePlan },
    /// Reboot through the OS; wait for another boot id. `once` inside.
    Reboot {
        power: Power,
        login: Login,
        permit: PermitId,
    },
    /// `muster-node run gate`.
    Gates { login: Login, plan: GatePlan },
    /// Write the included files, reconfigure, wait until the controller's own view of the node is clean.
    SlurmAdmit {
        cluster: SlurmCluster,
        /// A [`ClusterMembers`](super::members::ClusterMembers) of this revision or a later one has the node in it.
        revision: i64,
        name: String,
        login: Login,
        /// Of a member that is given back without its gates: only this drain is lifted. None: any of ours.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lifts: Option<String>,
    },
    /// Drain with our reason, wait until no job runs there.
    SlurmDrain {
        cluster: SlurmCluster,
        name: String,
        reason: String,
    },
    /// Write the included files without the node, reconfigure, observe that it is gone.
    SlurmRemove {
        cluster: SlurmCluster,
        /// No [`ClusterMembers`](super::members::ClusterMembers) of this revision or a later one has the node in it.
        revision: i64,
        name: String,
    },
    /// `muster-node run wipe`.
    Wipe { login: Login, plan: WipePlan },
    /// Log in to a machine that somebody else installed, check its host key, write the line that trusts our CA and the marker. Idempotent.
    Adopt(Adopt),
    /// On by BMC, and seen to be on; nothing is done to one that is. Observe, then act.
    PowerOn { power: Power, permit: PermitId },
    /// Through its firmware by BMC, whatever runs there. `once` inside.
    PowerCycle { power: Power, permit: PermitId },
    /// Another password for its BMC. Idempotent: it looks which one is taken.
    RotateBmc(RotateBmc),
    /// `muster-node pair serve` at one end and `pair ask` at the other, then the other way round. It changes nothing: done again after a crash.
    Pair(Box<PairOrder>),
    /// What the BMC says of firmware and BIOS; and with a permit, what is wanted of them. `once` inside.
    Firmware(SetFirmware),
}

impl JobSpec {
    /// The kind's name, as stored and shown.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::BootLive(_) => "boot_live",
            Self::Inventory { .. } => "inventory",
            Self::PowerOff { .. } => "power_off",
            Self::WriteImage { .. } => "write_image",
            Self::BootDisk { .. } => "boot_disk",
            Self::Converge { .. } => "converge",
            Self::Reboot { .. } => "reboot",
            Self::Gates { .. } => "gates",
            Self::SlurmAdmit { .. } => "slurm_admit",
            Self::SlurmDrain { .. } => "slurm_drain",
            Self::SlurmRemove { .. } => "slurm_remove",
            Self::Wipe { .. } => "wipe",
            Self::Adopt(_) => "adopt",
            Self::PowerOn { .. } => "power_on",
            Self::PowerCycle { .. } => "power_cycle",
            Self::RotateBmc(_) => "rotate_bmc",
            Self::Pair(_) => "pair",
            Self::Firmware(_) => "firmware",
        }
    }
}

/// An armed boot of the live image, for one node, one operation, one window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BootLive {
    pub power: Power,
    pub permit: PermitId,
    /// Every MAC the node may boot from.
    pub macs: Vec<Mac>,
    pub address: Ipv4Addr,
    /// 16 random bytes, hex; made by the server for this job, single use.
    pub nonce: String,
    pub kernel: Digest,
    pub initrd: Digest,
    pub user_key: UserKey,
    /// Identity the machine must have, where it is known.
    pub expect_uuid: Option<String>,
    pub expect_serial: Option<String>,
}

/// An ephemeral SSH user key and the certificate the CA gave it for this job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserKey {
    /// OpenSSH private key, PEM.
    pub private_key: Secret,
    /// OpenSSH certificate line.
    pub certificate: String,
}

impl PartialEq for UserKey {
    fn eq(&self, other: &Self) -> bool {
        self.certificate == other.certificate
    }
}

/// How to log in to a node whose host key is known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Login {
    pub address: Ipv4Addr,
    pub port: u16,
    /// OpenSSH public-key line that the node must show.
    pub host_key: String,
    pub user_key: UserKey,
}

/// `POST /agent/v1/jobs/{job}/act`: before a `once` act starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartAct {
    pub epoch: i64,
    pub attempt: i32,
    /// `power_on`, `reset`, `reboot`…
    pub act: String,
    /// What was observed just before, so that a successor can tell whether the act happened: power state, boot id.
    pub before: String,
}

/// A `once` act whose start is committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActRecord {
    pub attempt: i32,
    pub act: String,
    pub before: String,
    pub started_at: Timestamp,
    /// Seconds since it started, by the server's clock: clocks need not agree.
    pub age_s: u64,
}

/// The server's word on an act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case", deny_unknown_fields)]
pub enum ActReply {
    /// Committed: do it now.
    Go,
    /// An earlier attempt had started it: observe instead.
    Already(ActRecord),
}

/// `POST /agent/v1/jobs/{job}/renew`: keeps the lease, carries progress and log lines, brings cancellation back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RenewJob {
    pub epoch: i64,
    pub attempt: i32,
    pub progress: Option<Progress>,
    pub log: Vec<LogLine>,
    /// What is awaited and seen, in one sentence, for "why is this node not moving?"
    pub waiting_for: Option<String>,
}

/// One line of a job's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogLine {
    pub at: Timestamp,
    pub text: String,
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Renewed {
    pub cancel: bool,
}

/// `POST /agent/v1/jobs/{job}/outcome`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportOutcome {
    pub epoch: i64,
    pub attempt: i32,
    pub outcome: Outcome,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case", deny_unknown_fields)]
pub enum Outcome {
    Succeeded {
        result: JobResult,
    },
    Failed {
        failure: Failure,
    },
    /// It was told to stop and did.
    Cancelled,
}

/// What a successful job found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum JobResult {
    Live {
        host_key: String,
        boot_id: String,
        address: Ipv4Addr,
        bmc_certificate: Option<Digest>,
        /// What the BMC said of firmware and BIOS meanwhile; absent where it was not asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        inventory: Option<Box<BmcInventory>>,
    },
    Facts {
        facts: Box<Facts>,
    },
    PoweredOff,
    PoweredOn,
    /// Its BMC takes the other password, in a session of its own.
    BmcRotated,
    ImageWritten(ImageWritten),
    /// The installed OS answers with its recorded host key.
    Booted {
        boot_id: String,
    },
    Converged(ConvergeReport),
    Gated {
        results: Vec<GateResult>,
        fingerprint: Digest,
    },
    /// Both ways, the one that the first end asked first.
    Paired {
        ways: Vec<PairWay>,
    },
    Admitted {
        view: String,
    },
    Drained,
    Removed,
    Wiped {
        disks: Vec<WipedDisk>,
    },
    /// It lets us in by certificate, and shows this host key.
    Adopted {
        host_key: String,
        boot_id: String,
    },
    /// What the BMC says of firmware and BIOS, in the end.
    Firmware {
        inventory: Box<BmcInventory>,
        /// What was changed, as sentences; empty when nothing had to be.
        changed: Vec<String>,
    },
}

/// `POST /agent/v1/permits/redeem`: for power before the act, for image and wipe with the node's challenge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedeemPermit {
    pub epoch: i64,
    pub job: JobId,
    pub attempt: i32,
    pub permit: PermitId,
    /// `None` for power permits.
    pub challenge: Option<Challenge>,
}

/// The server's answer; for image and wipe it is passed on to the node as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Redeemed {
    pub answer: Answer,
}
