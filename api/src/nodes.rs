//! Nodes: servers with a BMC, NICs, disks, GPUs. The spec says where a machine is and how to reach it; hardware is observed, never declared.

use std::net::{IpAddr, Ipv4Addr};

use jiff::Timestamp;
use muster_core::facts::{Facts, Firmware};
use muster_core::firmware::BmcInventory;
use muster_core::parts::PartKind;
use muster_core::values::Mac;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::kind::Kind;
use crate::object::{Object, Page};

/// What is wanted of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeSpec {
    pub site: String,
    #[serde(default)]
    pub rack: Option<String>,
    /// The lowest U it fills.
    #[serde(default)]
    pub rack_unit: Option<u32>,
    /// Hardware profile it must fit.
    #[serde(default)]
    pub profile: Option<String>,
    /// Chassis serial, where it is known beforehand.
    #[serde(default)]
    pub serial: Option<String>,
    #[serde(default)]
    pub smbios_uuid: Option<Uuid>,
    pub power: NodePower,
    /// Its serial console, to be recorded.
    #[serde(default)]
    pub console: Option<NodeConsole>,
    /// Interfaces it may boot from; at least one.
    pub macs: Vec<NodeMac>,
    /// `true`: registration starts inspection. `false`: it waits for `actions/accept`.
    #[serde(default = "yes")]
    pub accept: bool,
    /// Refuses every destructive call until it is cleared.
    #[serde(default)]
    pub protected: bool,
}

fn yes() -> bool {
    true
}

/// How a node is powered: `{"redfish": {"bmc": …}}`, `{"ipmi": {"bmc": …}}` or `{"manual": {"person": …}}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum NodePower {
    Redfish {
        bmc: Bmc,
    },
    /// For a BMC that speaks nothing better: IPMI proves no BMC's identity, and gives whoever asks a hash to guess the password from.
    Ipmi {
        bmc: IpmiBmc,
    },
    /// A named person presses the button.
    Manual {
        person: String,
    },
}

/// Where a node's serial console can be read: `{"tcp": {"address": …, "port": …}}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum NodeConsole {
    /// A conserver, a terminal server or a bridge to serial over LAN that gives the console's raw bytes to whoever connects. The site's
    /// agent connects and only reads.
    Tcp {
        #[schema(value_type = String)]
        address: IpAddr,
        port: u16,
    },
}

/// A BMC and the credential that logs in to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Bmc {
    #[schema(value_type = String)]
    pub address: IpAddr,
    #[serde(default = "https")]
    pub port: u16,
    /// A credential whose purpose is `bmc`.
    pub credential: String,
    /// The Redfish `Id` of the node's computer system, where its BMC has more than one.
    #[serde(default)]
    pub system: Option<String>,
}

fn https() -> u16 {
    443
}

/// A BMC that speaks IPMI 2.0 over LAN.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IpmiBmc {
    #[schema(value_type = String)]
    pub address: IpAddr,
    #[serde(default = "rmcp")]
    pub port: u16,
    /// A credential whose purpose is `bmc`: an account with the operator privilege, a user of at most 16 bytes and a password of at most 20, best of 20 random characters.
    pub credential: String,
    /// What the machine boots by; IPMI's boot flags say it each time.
    #[serde(default = "uefi")]
    pub firmware: Firmware,
}

fn rmcp() -> u16 {
    623
}

fn uefi() -> Firmware {
    Firmware::Uefi
}

/// An interface that boots, and the address it gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeMac {
    pub mac: Mac,
    #[serde(default)]
    pub subnet: Option<String>,
    /// Within the subnet; the server picks the lowest free one when only `subnet` is given, and shows it in the status.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = Ipv4)]
    pub address: Option<Ipv4Addr>,
}

/// Where a node is on its way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeStatus {
    /// `discovered`, `inspecting`, `available`… (the lifecycle's words).
    pub state: String,
    pub entered_at: Option<Timestamp>,
    /// When a moving state counts as stuck; absent in steady states.
    pub deadline_at: Option<Timestamp>,
    /// Of a draining node.
    pub purpose: Option<String>,
    /// Of a failed node.
    pub failed_phase: Option<String>,
    pub reason: Option<String>,
    /// Raised by each claim and release.
    pub epoch: i64,
    pub why: Why,
    /// The name of the claim that holds it.
    pub claim: Option<String>,
    pub pool: Option<String>,
    /// The operation it is busy with.
    pub operation: Option<Uuid>,
    pub conditions: Vec<Condition>,
    /// Addresses as reserved, by MAC: what `spec.macs` says, or what the server picked.
    pub addresses: Vec<NodeAddress>,
    /// The port of its BMC: what `spec.power` says, or the usual one. Absent where it has none.
    #[serde(default)]
    pub effective_bmc_port: Option<u16>,
    pub facts_observed_at: Option<Timestamp>,
    pub last_gate_run: Option<LastGateRun>,
}

/// "Why is this node not moving?", as data and as one sentence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Why {
    pub sentence: String,
    /// The code of the wait: `agent`, `at_rest`, `caution`, `claim`, `maintenance`, `muster_error`,
    /// `observation`, `pair`, `person`, `protection`, `rack_power`, `recovery_turn`, `scheduler`,
    /// `step`, `step_stops`, `sweep_turn` or `undo_window`. Newer servers may add codes.
    pub reason: Option<String>,
    pub waiting_for: Option<String>,
    pub since: Option<Timestamp>,
    /// Who must act next: `muster`, or a person.
    pub owner: Option<String>,
    pub next_action: Option<String>,
    /// Attempts of the step it is at.
    pub attempts: i64,
}

/// Something true or false of a node beside its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Condition {
    pub condition: String,
    pub value: String,
    pub since: Option<Timestamp>,
}

/// An address that is reserved for a node.
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

/// Facts with the time and place they were seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeFacts {
    /// `live` or `installed`.
    pub source: String,
    pub observed_at: Timestamp,
    pub facts: Facts,
    /// What its BMC says; absent where it was never asked, or speaks IPMI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc: Option<NodeInventory>,
}

/// What a node's BMC says of firmware and BIOS.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeInventory {
    /// Since when it says so.
    pub since: Timestamp,
    pub observed_at: Timestamp,
    pub inventory: BmcInventory,
}

/// A piece of what a node wrote on its serial console. It comes from a machine nobody trusts, escape sequences included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConsoleChunk {
    /// Rises from chunk to chunk, not by one.
    pub id: i64,
    /// When the agent read its first byte.
    pub at: Timestamp,
    pub text: String,
}

/// A part of what is kept of a node's console, oldest first. About the latest 512 KiB are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConsoleLog {
    pub items: Vec<ConsoleChunk>,
    /// Where to read on.
    pub last_id: i64,
}

/// The body of an action. `power-on`, `power-off`, `power-cycle` and `run-gates` are for nodes at rest, where no job runs; `converge` and
/// `reinstall` drain a node in service first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeAction {
    /// Why, for the history; what takes a node out of use, switches its power or installs it anew needs one.
    #[serde(default)]
    pub reason: Option<String>,
    /// Of a maintenance: at this time the node resumes by itself. Without it, a person resumes it. Asked again, it is the new time.
    #[serde(default)]
    pub until: Option<Timestamp>,
    /// Of `run-gates`: the suite, by name. Without it, that of the pool that holds the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suite: Option<String>,
}

/// A part that was replaced. Kinds: `chassis`, `board`, `gpu`, `nic` (by MAC), `disk`, `dimm`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplacedPart {
    pub kind: PartKind,
    /// The serial that is out.
    pub old: String,
    /// The serial that is in; inspection must see it.
    pub new: String,
}

/// The body of `actions/replace-parts`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplaceParts {
    /// What was wrong with them, for the history.
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
    /// The declared node that waits for the machine: name or id.
    pub to: String,
    /// Declared MACs that no machine has: the machine's take their places, with subnet and address, in order; those that are left over go, and more of the
    /// machine's are added. The only one where the node declares one; needed where it declares more.
    #[serde(default)]
    pub replaces: Option<Vec<Mac>>,
    #[serde(default)]
    pub reason: Option<String>,
}

/// The body of `actions/move`. What is left out stays, but for the unit: another rack means another unit or none.
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
    /// A credential whose purpose is `adopt`.
    pub credential: String,
    /// `SHA256:…`, read on the machine itself (`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub`). Without it the operation ends with the one
    /// that is shown, for a person to compare, and nothing is sent there.
    #[serde(default)]
    pub host_key: Option<String>,
    /// The name of the claim that will hold it; the node's own by default.
    #[serde(default)]
    pub claim: Option<String>,
    #[serde(default)]
    pub reason: Option<String>,
}

/// What an action would do, as `?dry_run=true` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodePlan {
    /// `none`, `in_place`, `reboot`, `reinstall` or `wipe`.
    pub effect: String,
    /// Sentences.
    pub changes: Vec<String>,
    /// Why it cannot be done now; empty when it can.
    pub blockers: Vec<String>,
}

/// A board, GPU, NIC, disk or DIMM by its serial: where it is, where it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Component {
    /// Of this part in this node.
    #[serde(default)]
    pub id: Uuid,
    /// The name of the node it was seen in.
    pub node: String,
    pub kind: String,
    pub serial: String,
    /// A PCI address, a DIMM's locator.
    pub slot: Option<String>,
    pub model: Option<String>,
    pub first_seen: Timestamp,
    pub last_seen: Timestamp,
    pub replaced_at: Option<Timestamp>,
    /// The serial that took its place.
    pub replaced_by: Option<String>,
    /// What a person said was wrong with it; absent where another serial was seen in its slot.
    pub replaced_reason: Option<String>,
}

/// One stay of a node in a state or at a step, with the time it took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TimelineEntry {
    pub at: Timestamp,
    /// `event` or `step`.
    pub entry: String,
    pub kind: String,
    pub summary: String,
    pub actor: Option<String>,
    /// Milliseconds; of finished steps.
    pub duration_ms: Option<i64>,
    pub operation: Option<Uuid>,
}

/// What led a node to where it is, oldest first.
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

/// A node as it is answered.
pub type Node = Object<NodeSpec, NodeStatus>;
/// A page of nodes.
pub type NodePage = Page<Node>;
