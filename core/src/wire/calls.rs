//! Calls of the agent and answers of the server: `POST /agent/v1/…` under the agent's certificate,
//! JSON in both directions.

use std::net::{IpAddr, Ipv4Addr};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, JobId, NodeId, PermitId};
use crate::values::Mac;
use crate::wire::job::{ActRecord, Job};
use crate::wire::node::{Answer, Challenge, Progress};
use crate::wire::result::Outcome;

/// A site's lease in seconds, counted from the latest answer that the agent received.
pub const SITE_LEASE_S: u64 = 45;

/// `POST /agent/v1/hello`: first call of an agent process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    pub protocol: u32,
    pub version: String,
    /// Random for each process, so that the server sees a restart of the agent.
    pub instance: String,
}

/// The agent's identity, and how long the agent may act without an answer from the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Welcome {
    pub protocol: u32,
    pub agent: AgentId,
    pub site: String,
    /// Raised whenever another process takes over; calls with an older epoch are rejected with 409
    /// `stale_epoch`.
    pub epoch: i64,
    /// A job lease in seconds; renew well before.
    pub lease_s: u64,
    pub permit_public_key: String,
    pub user_ca: String,
}

/// `POST /agent/v1/site`: long poll for the configuration of the boot services.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SitePoll {
    pub epoch: i64,
    /// Revision that the agent has. The server waits up to `wait_s` for a different revision.
    pub have: Option<String>,
    pub wait_s: u64,
}

/// Configuration of a site's boot services. The agent keeps the latest on disk and answers DHCP
/// from there (local boot only) while the server is away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteConfig {
    pub revision: String,
    pub site: String,
    pub subnets: Vec<Subnet>,
    /// Serial consoles to record.
    #[serde(default)]
    pub consoles: Vec<ConsoleTarget>,
    /// Networks of the consoles. Empty: the site declares no networks of consoles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub console_networks: Vec<ipnet::IpNet>,
}

/// Address of a node's serial console, read-only: raw bytes over TCP, as from a conserver, a
/// terminal server or a bridge to serial over LAN.
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
    /// First and last of the addresses that undeclared machines get.
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

/// `POST /agent/v1/sightings`: observations of the boot listener, in bounded batches. Untrusted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sightings {
    pub epoch: i64,
    pub sightings: Vec<Sighting>,
}

/// One observation of a machine on the wire.
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
    /// Our iPXE was fetched by TFTP, completely.
    Tftp,
    /// An iPXE script was served: armed or local boot, in `detail`.
    Script,
    /// Kernel or initrd was fetched.
    Kernel,
    /// A live image reported its host key.
    Report,
    /// Another DHCP server answered on the subnet.
    RogueDhcp,
    /// The boot script was fetched again after the machine received it. A server of the previous
    /// version refuses the word.
    FetchedTwice,
}

/// `POST /agent/v1/lease`: long poll for jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseJobs {
    pub epoch: i64,
    /// Number of jobs that the agent can start now.
    pub capacity: u32,
    pub wait_s: u64,
}

/// Jobs leased to the agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeasedJobs {
    pub jobs: Vec<Job>,
}

/// `POST /agent/v1/jobs/{job}/act`: before a `once` act starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartAct {
    pub epoch: i64,
    pub attempt: i32,
    /// `power_on`, `reset`, `reboot`…
    pub act: String,
    /// Power state or boot id before the act. A successor compares them to see whether the act
    /// happened.
    pub before: String,
}

/// The server's answer to [`StartAct`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case", deny_unknown_fields)]
pub enum ActReply {
    /// The start is committed: the agent performs the act now.
    Go,
    /// An earlier attempt started the act: the agent observes instead.
    Already(ActRecord),
}

/// `POST /agent/v1/jobs/{job}/renew`: renews the lease, sends progress and log lines, returns a
/// cancellation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RenewJob {
    pub epoch: i64,
    pub attempt: i32,
    pub progress: Option<Progress>,
    pub log: Vec<LogLine>,
    /// The awaited condition as a noun phrase, with the observed state: `SSH on n1 (no route)`.
    /// Older agents write a sentence: `waiting for SSH on n1`.
    pub waiting_for: Option<String>,
}

/// One line of a job's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogLine {
    pub at: Timestamp,
    pub text: String,
}

/// The server's answer to [`RenewJob`]: whether the job is cancelled.
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

/// `POST /agent/v1/permits/redeem`: for power, before the act; for image and wipe, with the node's
/// challenge.
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

/// The server's answer to [`RedeemPermit`]. For image and wipe, the agent forwards the answer to
/// the node unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Redeemed {
    pub answer: Answer,
}
