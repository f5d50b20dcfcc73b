//! Nodes: servers with a BMC, NICs, disks, GPUs. The spec declares location and access; hardware is
//! observed, never declared.

use std::net::{IpAddr, Ipv4Addr};

use jiff::Timestamp;
use muster_core::facts::{Facts, Firmware};
use muster_core::firmware::BmcInventory;
use muster_core::parts::PartKind;
use muster_core::values::{Digest, Mac};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::kind::Kind;
use crate::object::{Object, Page};

/// The desired state of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeSpec {
    pub site: String,
    #[serde(default)]
    pub rack: Option<String>,
    /// The lowest rack unit (U) occupied by the node.
    #[serde(default)]
    pub rack_unit: Option<u32>,
    /// Name of the hardware profile that the node must match.
    #[serde(default)]
    pub profile: Option<String>,
    /// Serial number of the chassis, if known in advance.
    #[serde(default)]
    pub serial: Option<String>,
    /// SMBIOS UUID of the machine, if known in advance.
    #[serde(default)]
    pub smbios_uuid: Option<Uuid>,
    pub power: NodePower,
    /// The serial console to record.
    #[serde(default)]
    pub console: Option<NodeConsole>,
    /// Interfaces allowed for network boot; at least one.
    pub macs: Vec<NodeMac>,
    /// `true`: registration starts inspection. `false`: inspection waits for `actions/accept`.
    #[serde(default = "accept_by_default")]
    pub accept: bool,
    /// While `true`, the server rejects every destructive request for this node.
    #[serde(default)]
    pub protected: bool,
}

fn accept_by_default() -> bool {
    true
}

/// Power control of a node: `{"redfish": {"bmc": …}}`, `{"ipmi": {"bmc": …}}` or
/// `{"manual": {"person": …}}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum NodePower {
    Redfish {
        bmc: Bmc,
    },
    /// Only for BMCs without Redfish. IPMI cannot prove the identity of a BMC, and sends any client
    /// a hash usable for guessing the password.
    Ipmi {
        bmc: IpmiBmc,
    },
    /// A named person presses the power button.
    Manual {
        person: String,
    },
}

impl NodePower {
    /// Returns the place of the BMC, and `None` for a node without a BMC.
    pub fn find_bmc(&self) -> Option<BmcPlace<'_>> {
        match self {
            Self::Redfish { bmc } => Some(BmcPlace {
                address: bmc.address,
                port: bmc.port,
                credential: &bmc.credential,
            }),
            Self::Ipmi { bmc } => Some(BmcPlace {
                address: bmc.address,
                port: bmc.port,
                credential: &bmc.credential,
            }),
            Self::Manual { .. } => None,
        }
    }
}

/// The address of a BMC, and the name of the credential for the login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BmcPlace<'spec> {
    pub address: IpAddr,
    pub port: u16,
    pub credential: &'spec str,
}

/// Source of a node's serial console: `{"tcp": {"address": …, "port": …}}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum NodeConsole {
    /// A conserver, terminal server or serial-over-LAN bridge sending the raw bytes of the console
    /// to each TCP client. The site's agent connects and only reads.
    Tcp {
        #[schema(value_type = String)]
        address: IpAddr,
        port: u16,
    },
}

/// A BMC and the credential used for login.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Bmc {
    #[schema(value_type = String)]
    pub address: IpAddr,
    #[serde(default = "default_redfish_port")]
    pub port: u16,
    /// Name of a credential with purpose `bmc`.
    pub credential: String,
    /// The Redfish `Id` of the node's computer system. Needed only for a BMC with several systems.
    #[serde(default)]
    pub system: Option<String>,
    /// SHA-256 of the BMC's certificate, accepted by a person. A BMC with another certificate gets
    /// no password. Absent: the certificate of the first contact stays pinned. A change needs
    /// `node.rotate-bmc`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<Digest>,
}

fn default_redfish_port() -> u16 {
    443
}

/// A BMC with IPMI 2.0 over LAN.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IpmiBmc {
    #[schema(value_type = String)]
    pub address: IpAddr,
    #[serde(default = "default_ipmi_port")]
    pub port: u16,
    /// Name of a credential with purpose `bmc`: an account with the operator privilege. Limits: 16
    /// bytes for the user, 20 bytes for the password. Recommended: 20 random characters.
    pub credential: String,
    /// Firmware type used for boot. IPMI sends the type in the boot flags of each request.
    #[serde(default = "default_firmware")]
    pub firmware: Firmware,
}

fn default_ipmi_port() -> u16 {
    623
}

fn default_firmware() -> Firmware {
    Firmware::Uefi
}

/// A boot interface and the IP address to assign.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeMac {
    pub mac: Mac,
    /// Name of the provisioning subnet for the address.
    #[serde(default)]
    pub subnet: Option<String>,
    /// An address within the subnet. If only `subnet` is given, the server picks the lowest free
    /// address and shows the choice in the status.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = Ipv4)]
    pub address: Option<Ipv4Addr>,
}

/// The observed state of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeStatus {
    /// State of the lifecycle: `discovered`, `inspecting`, `available`…
    pub state: String,
    /// Time at which the node entered the state.
    pub entered_at: Option<Timestamp>,
    /// Time after which a transitional state counts as stuck. Absent in steady states.
    pub deadline_at: Option<Timestamp>,
    /// Purpose of the drain. Set only while draining.
    pub purpose: Option<String>,
    /// The phase that failed. Set only for a failed node.
    pub failed_phase: Option<String>,
    /// Reason for the state, in words. Absent for states without a reason.
    pub reason: Option<String>,
    /// Incremented by each claim and release.
    pub epoch: i64,
    pub why: Why,
    /// Name of the claim holding the node.
    pub claim: Option<String>,
    /// Name of the pool of this claim.
    pub pool: Option<String>,
    /// The node's current operation.
    pub operation: Option<Uuid>,
    pub conditions: Vec<Condition>,
    /// Reserved addresses, by MAC: from `spec.macs`, or picked by the server.
    pub addresses: Vec<NodeAddress>,
    /// Port of the BMC: from `spec.power`, or the protocol's default. Absent for a node without a
    /// BMC.
    #[serde(default)]
    pub effective_bmc_port: Option<u16>,
    /// Time of the latest facts about the node.
    pub facts_observed_at: Option<Timestamp>,
    pub last_gate_run: Option<LastGateRun>,
}

/// The answer to "Why is this node not moving?", as data and as one sentence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Why {
    pub sentence: String,
    /// The code of the wait: `agent`, `at_rest`, `caution`, `claim`, `disruption_budget`,
    /// `maintenance`, `muster_error`, `observation`, `pair`, `person`, `protection`, `rack_power`,
    /// `recovery_turn`, `scheduler`, `step`, `step_stops`, `sweep_turn` or `undo_window`. Newer servers may add codes.
    pub reason: Option<String>,
    /// The awaited condition, in words. Absent while the node waits for no condition.
    pub waiting_for: Option<String>,
    pub since: Option<Timestamp>,
    /// The party that must act next: `muster`, or a person.
    pub owner: Option<String>,
    /// The next action, in words. Absent if no action is planned.
    pub next_action: Option<String>,
    /// Number of attempts of the current step.
    pub attempts: i64,
}

/// A fact about a node, in addition to the state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Condition {
    /// Name: `in_cluster`, `live_image`, `overdue`, `agent_connected`, `protected`, `unsanitised`,
    /// `powered_on`, `drifted`, `out_in_scheduler`.
    pub condition: String,
    /// `true` or `false`. `drifted` and `out_in_scheduler` are listed only while true.
    pub value: String,
    /// Time from which the value holds, if recorded.
    pub since: Option<Timestamp>,
}

/// An address reserved for a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeAddress {
    pub mac: Mac,
    pub subnet: String,
    #[schema(value_type = String, format = Ipv4)]
    pub address: IpAddr,
}

/// The latest run of a suite on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LastGateRun {
    pub id: Uuid,
    pub suite: String,
    /// `pass`, `fail` or `unknown`.
    pub verdict: String,
    pub finished_at: Timestamp,
}

/// Facts with the time and the source of the observation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeFacts {
    /// The source: `live` (live image) or `installed` (installed system).
    pub source: String,
    pub observed_at: Timestamp,
    pub facts: Facts,
    /// Facts reported by the BMC. Absent for a BMC that was never queried, and for IPMI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc: Option<NodeInventory>,
}

/// Firmware and BIOS facts reported by a node's BMC.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeInventory {
    /// Time of the first observation with these same values.
    pub since: Timestamp,
    pub observed_at: Timestamp,
    pub inventory: BmcInventory,
}

/// A piece of a node's serial console output. The text is untrusted input and may contain escape
/// sequences.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConsoleChunk {
    /// Increases from chunk to chunk, with gaps.
    pub id: i64,
    /// Time at which the agent read the first byte of the chunk.
    pub at: Timestamp,
    pub text: String,
}

/// A part of a node's stored console output, oldest first. About the latest 512 KiB are stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConsoleLog {
    pub items: Vec<ConsoleChunk>,
    /// Pass as `after` to read on.
    pub last_id: i64,
}

/// The body of an action. `power-on`, `power-off`, `power-cycle` and `run-gates` require a node at
/// rest, without running jobs. `converge` and `reinstall` first drain a node in service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeAction {
    /// Reason, for the history. Required for `quarantine`, `maintain`, `reject`, `retire`,
    /// `replace-parts`, `power-off`, `power-cycle` and `reinstall`.
    #[serde(default)]
    pub reason: Option<String>,
    /// For maintenance: time at which the node resumes automatically. Absent: a person must resume
    /// the node. A repeated request replaces the time.
    #[serde(default)]
    pub until: Option<Timestamp>,
    /// Reason for taking the node out of service beyond the disruption budgets of its pool and
    /// failure domains. Needs the right `budget.override`. For `drain`, `maintain`, `quarantine`,
    /// `recover` and `converge`. Absent: the request waits for a free slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub override_budget: Option<String>,
    /// For `run-gates`: name of the suite. Default: the suite of the pool holding the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suite: Option<String>,
}

/// A replaced part. Kinds: `chassis`, `board`, `gpu`, `nic` (by MAC), `disk`, `dimm`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplacedPart {
    pub kind: PartKind,
    /// Serial number of the removed part.
    pub old: String,
    /// Serial number of the new part. Inspection must find this serial.
    pub new: String,
}

/// The body of `actions/replace-parts`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplaceParts {
    /// Defect of the parts, for the history.
    pub reason: String,
    pub parts: Vec<ReplacedPart>,
}

/// The body of `actions/rename`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RenameNode {
    pub name: String,
    #[serde(default)]
    pub reason: Option<String>,
}

/// The body of `actions/match`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MatchNode {
    /// The declared node waiting for the machine: name or id.
    pub to: String,
    /// Declared MACs missing on the machine. The machine's MACs replace them in order and inherit
    /// subnet and address. Leftover declared MACs are removed; extra MACs of the machine are added.
    /// Required if the node declares several MACs; default: the only declared MAC.
    #[serde(default)]
    pub replaces: Option<Vec<Mac>>,
    #[serde(default)]
    pub reason: Option<String>,
}

/// The body of `actions/move`. Omitted fields keep their value, except `rack_unit`: a new rack
/// clears the unit unless given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveNode {
    #[serde(default)]
    pub site: Option<String>,
    pub rack: String,
    #[serde(default)]
    pub rack_unit: Option<u32>,
    #[serde(default)]
    pub reason: Option<String>,
}

/// The body of `actions/adopt`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdoptNode {
    pub pool: String,
    /// Name of a credential with purpose `adopt`.
    pub credential: String,
    /// `SHA256:…`, read on the machine itself (`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub`).
    /// If absent, the operation ends and shows the key offered by the machine, for a person to
    /// compare; the credential is not sent.
    #[serde(default)]
    pub host_key: Option<String>,
    /// Name of the new claim. Default: the name of the node.
    #[serde(default)]
    pub claim: Option<String>,
    #[serde(default)]
    pub reason: Option<String>,
}

/// The effect of an action, as returned for `?dry_run=true`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodePlan {
    /// `none`, `in_place`, `reboot`, `reinstall` or `wipe`.
    pub effect: String,
    /// The planned changes, one sentence each.
    pub changes: Vec<String>,
    /// Reasons blocking the action now. Empty if the action is possible.
    pub blockers: Vec<String>,
}

/// A board, GPU, NIC, disk or DIMM by serial number, with present and past locations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Component {
    /// Id of the pairing of this part and this node.
    #[serde(default)]
    pub id: Uuid,
    /// Name of the node containing the part.
    pub node: String,
    /// `chassis`, `board`, `gpu`, `nic`, `disk` or `dimm`.
    pub kind: String,
    pub serial: String,
    /// PCI address, or locator of a DIMM.
    pub slot: Option<String>,
    pub model: Option<String>,
    pub first_seen: Timestamp,
    pub last_seen: Timestamp,
    /// Time at which the replacement was recorded. Absent for a present part.
    pub replaced_at: Option<Timestamp>,
    /// Serial number of the replacement.
    pub replaced_by: Option<String>,
    /// Defect named by a person. Absent if the replacement was detected by a new serial in the
    /// slot.
    pub replaced_reason: Option<String>,
}

/// An event or a step in a node's history. Steps have a duration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TimelineEntry {
    /// Time of the event, or start of the step.
    pub at: Timestamp,
    /// `event` or `step`.
    pub entry: String,
    /// Kind of the event, or kind of the step's job.
    pub kind: String,
    pub summary: String,
    /// Author of the event, as in events. Absent for steps.
    pub actor: Option<String>,
    /// Duration in milliseconds. Set only for finished steps.
    pub duration_ms: Option<i64>,
    pub operation: Option<Uuid>,
}

/// The history leading to a node's current state, oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Timeline {
    pub items: Vec<TimelineEntry>,
}

impl Kind for NodeSpec {
    const KIND: &'static str = "node";
    const COLLECTION: &'static str = "nodes";
    const SCHEMA: &'static str = "Node";
    type Status = NodeStatus;
}

/// A node in a response.
pub type Node = Object<NodeSpec, NodeStatus>;
/// A page of nodes.
pub type NodePage = Page<Node>;
