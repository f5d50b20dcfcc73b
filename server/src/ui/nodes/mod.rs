//! The list of nodes, and the page of one node: state, reason, history, gate results and available
//! actions.

pub(super) mod actions; // Buttons and their forms
pub(super) mod adopt; // The form for a running machine
pub(super) mod console; // Output of the serial console
mod facts; // Facts observed by inspection
mod gates; // Gate results
pub(super) mod list; // The list
pub(super) mod parts; // Components by serial, and their replacement
mod recoveries; // Recoveries of the node
mod stack; // Claim, pool, and installed software
mod timeline; // Events and steps in order of time

use muster_core::facts::Firmware;
use muster_core::lifecycle::steps::JobState;
use std::net::{IpAddr, SocketAddr};

use askama::Template;
use askama_web::WebTemplate;
use axum::extract::State;
use jiff::Timestamp;
use muster_api::nodes::NodeStatus;
use muster_core::ids::NodeId;
use muster_core::lifecycle::state::Action;
use muster_core::lifecycle::wait::WaitReason;
use serde::Deserialize;
use sqlx::PgConnection;
use uuid::Uuid;

use super::chips::{self, Chip};
use super::format::{self, Moment, member};
use super::frame::{Frame, Live, Section, Visit};
use super::operations::progress;
use crate::app::App;
use crate::auth::access::Named;
use crate::auth::{Actor, raw};
use crate::db;
use crate::db::events::EventFilter;
use crate::db::operations::StepRow;
use crate::db::pages::nodes::MachineRow;
use crate::error::Error;
use crate::http::extract::{Path, Query};
use crate::intents::nodes::view;
use crate::intents::nodes::view::NodeObject;

#[derive(Template, WebTemplate)]
#[template(path = "node.html")]
pub(super) struct Page {
    frame: Frame,
    id: String,
    name: String,
    head: Head,
    conditions: Vec<Condition>,
    timeline: timeline::Timeline,
    gates: gates::Gates,
    recoveries: Vec<recoveries::Recovery>,
    facts: Option<facts::Facts>,
    components: facts::Table,
    /// Parts now installed in the node.
    parts_in: Vec<parts::PartIn>,
    parts_refused: String,
    machine: Vec<Pair>,
    network: Vec<Address>,
    stack: stack::Stack,
    /// Time of the last console output.
    console: Option<Moment>,
    /// Whether the output of the console is hidden, because the reader has not `node.console`.
    hides_console: bool,
    actions: Vec<actions::Button>,
}

/// A label and a value.
pub(super) struct Pair {
    pub name: &'static str,
    pub value: String,
}

pub(super) fn pair(name: &'static str, value: impl Into<String>) -> Pair {
    Pair {
        name,
        value: format::cut(&value.into(), 300),
    }
}

struct Head {
    chip: Chip,
    /// Detail of the state, such as `for upgrade` or `in imaging`.
    detail: String,
    since: Moment,
    /// Time until the deadline, such as `37 min left of its time` or `overdue by 5 min`. Empty in
    /// steady states.
    deadline: String,
    overdue: bool,
    why: String,
    waiting: Option<Moment>,
    owner: String,
    next: String,
    progress: Option<progress::Progress>,
    operation: Option<String>,
    asked: String,
    /// The gate run that took the node out of service, if any.
    cause: Option<String>,
}

struct Condition {
    name: String,
    holds: bool,
    since: Option<Moment>,
}

struct Address {
    mac: String,
    address: String,
    subnet: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct NodeQuery {
    /// `oldest` sorts the timeline from the oldest event.
    order: String,
    /// Id of the gate run to show. Without an id, the newest run is shown.
    run: Option<Uuid>,
}

/// Shows a node, found by name or id.
pub(super) async fn show_node(
    State(app): State<App>,
    actor: Actor,
    visit: Visit,
    Path(key): Path<String>,
    Query(query): Query<NodeQuery>,
) -> Result<Page, Error> {
    let mut conn = app.pool.acquire().await?;
    let now = visit.now;
    let node = view::load_one(&mut conn, &key, now).await?;
    let id = NodeId(node.id);
    let missing = || Error::NotFound(format!("node {key:?}"));
    let machine = db::pages::nodes::find_machine(&mut conn, id)
        .await?
        .ok_or_else(missing)?;
    let steps = db::operations::list_node_steps(&mut conn, id, timeline::STEPS).await?;
    let of_node = EventFilter {
        node: Some(id),
        ..EventFilter::default()
    };
    let events = db::events::latest(&mut conn, &of_node, timeline::EVENTS).await?;
    let look = db::drift::find_look(&mut conn, id).await?;
    let facts = db::facts::latest(&mut conn, id).await?;
    let said = db::firmware::latest(&mut conn, id).await?;
    let components = db::components::list(&mut conn, id).await?;
    let console = db::consoles::tail(&mut conn, id, None, 1).await?;
    let rights = load_raw_rights(&mut conn, &actor, &key, now).await?;
    let gates = gates::load(&mut conn, id, query.run, rights.evidence, now).await?;
    let cause = cause(&mut conn, id, &node.status).await?;
    let recoveries = recoveries::load(&mut conn, id, now).await?;
    let name = node.name.to_string();
    let mut actions = actions::offered(&node, &machine, &actor)?;
    for action in actions
        .iter_mut()
        .filter(|action| action.name == "adopt" && action.refused.is_empty())
    {
        action.adopt = Some(adopt::Form::empty(&mut conn, &actor.sight(), &name).await?);
    }
    let running = find_progress(&steps, now);
    Ok(Page {
        frame: Frame::new(&visit, &actor, Section::Nodes, name.clone())
            .by_hand(
                format!("muster node why {name}"),
                &format!("/v1/nodes/{name}"),
            )
            .live(Live::Shown),
        id: node.id.to_string(),
        head: Head {
            cause,
            ..head(&node.status, &machine, running, now)
        },
        conditions: conditions(&node.status, now),
        timeline: timeline::merge(&name, events, steps, &query.order, now)
            .with_logs(rights.evidence),
        gates,
        recoveries,
        facts: facts.map(|seen| facts::table(seen, said, now)),
        parts_in: parts::parts_in(&components),
        components: parts::table(&components),
        parts_refused: actions::refused(&node, &machine, &actor, Action::ReplaceParts)?,
        console: console.last().map(|chunk| format::moment(chunk.at, now)),
        hides_console: !rights.console,
        network: network(&node),
        stack: stack::render_stack(&node, &machine, look, now),
        actions,
        machine: machine_pairs(&node, &machine),
        name,
    })
}

/// The reader's rights to raw text of the node.
struct RawRights {
    console: bool,
    evidence: bool,
}

async fn load_raw_rights(
    conn: &mut PgConnection,
    actor: &Actor,
    key: &str,
    now: Timestamp,
) -> Result<RawRights, Error> {
    let node = Named { kind: "node", key };
    Ok(RawRights {
        console: actor.may(conn, raw::CONSOLE, node).await?,
        evidence: actor.may_read_raw(conn, raw::EVIDENCE, node, now).await?,
    })
}

/// Returns the progress of the running step, if any.
fn find_progress(steps: &[StepRow], now: Timestamp) -> Option<progress::Progress> {
    steps
        .iter()
        .find(|step| step.state == JobState::Leased)
        .and_then(|step| progress::read_report(step, now))
}

fn head(
    status: &NodeStatus,
    machine: &MachineRow,
    progress: Option<progress::Progress>,
    now: Timestamp,
) -> Head {
    let detail = match (&status.purpose, &status.failed_phase) {
        (Some(purpose), _) => format!("for {purpose}"),
        (None, Some(phase)) => format!("in {phase}"),
        (None, None) => String::new(),
    };
    let left = status.deadline_at.map(|at| at.duration_since(now));
    let deadline = match left {
        None => String::new(),
        Some(left) if left.is_negative() => format!("overdue by {}", format::duration(left.abs())),
        Some(left) => format!(
            "{} left before the node counts as stuck",
            format::duration(left)
        ),
    };
    Head {
        chip: chips::state_word(&status.state),
        detail,
        since: format::moment(status.entered_at.unwrap_or(now), now),
        overdue: left.is_some_and(|left| left.is_negative()),
        deadline,
        why: format::cut(&describe_state(status), 600),
        waiting: status.why.since.map(|at| format::moment(at, now)),
        owner: format::cut(other_than(status.why.owner.as_deref(), "nobody"), 80),
        next: format::cut(other_than(status.why.next_action.as_deref(), "none"), 300),
        progress,
        operation: status.operation.map(|id| id.to_string()),
        asked: machine
            .action
            .map(|action| action.to_string())
            .unwrap_or_default(),
        cause: None,
    }
}

/// Returns the text, or an empty text for the word of an absent owner or action.
fn other_than<'a>(text: Option<&'a str>, absent: &str) -> &'a str {
    text.filter(|text| *text != absent).unwrap_or_default()
}

/// Returns the gate run that took a node out of service, if any.
async fn cause(
    conn: &mut PgConnection,
    node: NodeId,
    status: &NodeStatus,
) -> Result<Option<String>, Error> {
    let out = ["draining", "repairing", "quarantined", "failed"].contains(&status.state.as_str());
    match status.entered_at {
        Some(entered) if out => gates::cause(conn, node, entered).await,
        _ => Ok(None),
    }
}

/// Returns the reason of the node's state and the awaited condition. Times are left out, because
/// the page shows the times next to the sentence.
fn describe_state(status: &NodeStatus) -> String {
    let reason = status
        .reason
        .as_deref()
        .map(|reason| format!("Because {reason}"));
    let rests = status.why.reason.as_deref() == Some(WaitReason::AtRest.as_str());
    let waiting = match &status.why.waiting_for {
        Some(_) if rests => Some("At rest".to_owned()),
        Some(condition) => Some(format!("Waits for {condition}")),
        None => None,
    };
    let parts: Vec<String> = reason.into_iter().chain(waiting).collect();
    match parts.is_empty() {
        true => "The node has just entered this state, and Muster decides the next action shortly."
            .to_owned(),
        false => format!("{}.", parts.join(". ").trim_end_matches('.')),
    }
}

fn conditions(status: &NodeStatus, now: Timestamp) -> Vec<Condition> {
    let one = |condition: &muster_api::nodes::Condition| Condition {
        name: condition.condition.replace('_', " "),
        holds: condition.value == "true",
        since: condition.since.map(|at| format::moment(at, now)),
    };
    status.conditions.iter().map(one).collect()
}

fn network(node: &NodeObject) -> Vec<Address> {
    let none = Vec::new();
    let declared = node
        .spec
        .get("macs")
        .and_then(serde_json::Value::as_array)
        .unwrap_or(&none);
    let one = |entry: &serde_json::Value| {
        let mac = member(entry, "mac").to_ascii_lowercase();
        let reserved = node
            .status
            .addresses
            .iter()
            .find(|address| address.mac.to_string() == mac);
        Address {
            address: reserved.map_or_else(
                || "none reserved".to_owned(),
                |found| found.address.to_string(),
            ),
            subnet: reserved
                .map(|found| found.subnet.clone())
                .unwrap_or_default(),
            mac,
        }
    };
    declared.iter().take(32).map(one).collect()
}

/// Returns the address of the BMC, and the identity by which Muster recognizes the BMC.
fn bmc_pairs(machine: &MachineRow, address: IpAddr) -> Vec<Pair> {
    let place = SocketAddr::new(address, u16::try_from(machine.bmc_port).unwrap_or(0));
    match (&machine.bmc_firmware, &machine.bmc_system) {
        (Some(firmware), _) => {
            let firmware = match firmware {
                Firmware::Bios => "BIOS",
                Firmware::Uefi => "UEFI",
            };
            vec![pair("BMC", format!("IPMI at {place}, boots by {firmware}"))]
        }
        (None, system) => {
            let system = system
                .as_ref()
                .map_or_else(String::new, |system| format!(", system {system}"));
            let certificate = machine
                .bmc_certificate
                .clone()
                .unwrap_or_else(|| "not pinned yet".into());
            vec![
                pair("BMC", format!("Redfish at https://{place}{system}")),
                pair("BMC certificate", certificate),
            ]
        }
    }
}

fn machine_pairs(node: &NodeObject, machine: &MachineRow) -> Vec<Pair> {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "not known yet".to_owned());
    let place = match (
        member(&node.spec, "rack"),
        node.spec
            .get("rack_unit")
            .and_then(serde_json::Value::as_u64),
    ) {
        ("", _) => "in no rack".to_owned(),
        (rack, None) => rack.to_owned(),
        (rack, Some(unit)) => format!("{rack}, U{unit}"),
    };
    let mut pairs = vec![
        pair("Site", member(&node.spec, "site")),
        pair("Place", place),
        pair(
            "Hardware profile",
            Some(member(&node.spec, "profile"))
                .filter(|text| !text.is_empty())
                .unwrap_or("none declared"),
        ),
        pair("Serial", text(&machine.serial)),
        pair(
            "SMBIOS UUID",
            text(&machine.smbios_uuid.map(|id| id.to_string())),
        ),
    ];
    match (&machine.bmc_address, &machine.power_person) {
        (Some(address), _) => {
            pairs.extend(bmc_pairs(machine, address.addr()));
            pairs.push(pair("BMC credential", text(&machine.bmc_credential)));
        }
        (None, person) => pairs.push(pair("Power", format!("by hand: {}", text(person)))),
    }
    pairs.push(pair(
        "Power reserved",
        format!("{} W", machine.power_reserved_w),
    ));
    pairs.push(pair("Root disk", text(&machine.root_disk_serial)));
    pairs.push(pair("OS host key", text(&machine.os_host_key)));
    pairs.push(pair("OS boot id", text(&machine.os_boot_id)));
    pairs.push(pair(
        "Revision",
        format!(
            "version {}, stay {}, assignment epoch {}",
            machine.version, machine.visit, node.status.epoch
        ),
    ));
    pairs
}
