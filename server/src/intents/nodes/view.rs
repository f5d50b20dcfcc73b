//! A node as returned to readers: the document as written, and the status of the node.

use crate::db::observed::SeenPower;
use muster_core::lifecycle::state::State;
use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_api::nodes::{Condition, LastGateRun, NodeAddress, NodeSpec, NodeStatus, Why};
use muster_api::object::Object;
use muster_core::ids::NodeId;
use muster_core::lifecycle::wait::WaitReason;
use serde_json::Value;
use sqlx::PgConnection;

use crate::db::macs::AddressRow;
use crate::db::nodes::NodeRow;
use crate::error::Error;
use crate::{db, document};

/// The time without contact after which an agent counts as disconnected, in seconds.
const AGENT_AWAY_S: i64 = 60;

/// A node as returned by the API: the spec as stored JSON, and the status.
pub type NodeObject = Object<Value, NodeStatus>;

/// Loads nodes by id, in the order of their names.
///
/// # Errors
/// When the database fails.
pub async fn load(
    conn: &mut PgConnection,
    ids: &[NodeId],
    now: Timestamp,
) -> Result<Vec<NodeObject>, Error> {
    let rows = db::nodes::list(conn, ids).await?;
    let mut addresses: BTreeMap<NodeId, Vec<AddressRow>> = BTreeMap::new();
    for row in db::macs::list(conn, ids).await? {
        addresses.entry(row.node).or_default().push(row);
    }
    rows.into_iter()
        .map(|row| {
            let own = addresses.remove(&row.id).unwrap_or_default();
            render_node(row, own, now)
        })
        .collect()
}

/// Loads one node by name or id.
///
/// # Errors
/// 404, or the error of the database.
pub async fn load_one(
    conn: &mut PgConnection,
    key: &str,
    now: Timestamp,
) -> Result<NodeObject, Error> {
    let missing = || Error::NotFound(format!("node {key:?}"));
    let id = db::nodes::find_id(conn, key).await?.ok_or_else(missing)?;
    load(conn, &[id], now).await?.pop().ok_or_else(missing)
}

fn render_node(
    row: NodeRow,
    addresses: Vec<AddressRow>,
    now: Timestamp,
) -> Result<NodeObject, Error> {
    let status = render_status(&row, addresses, now);
    Ok(Object {
        id: row.id.0,
        link: format!("/v1/nodes/{}", row.name),
        name: row.name.parse().map_err(Error::internal)?,
        labels: row.labels.0,
        annotations: row.annotations.0,
        spec_faults: document::spec_faults::<NodeSpec>(&row.spec),
        spec: row.spec,
        status,
        generation: row.generation,
        created_at: row.created_at,
        updated_at: row.updated_at,
    })
}

fn render_status(row: &NodeRow, addresses: Vec<AddressRow>, now: Timestamp) -> NodeStatus {
    let last_gate_run = match (
        row.gate_run_id,
        &row.gate_run_suite,
        &row.gate_run_verdict,
        row.gate_run_finished_at,
    ) {
        (Some(id), Some(suite), Some(verdict), Some(at)) => Some(LastGateRun {
            id,
            suite: suite.clone(),
            verdict: verdict.to_string(),
            finished_at: at.to_jiff(),
        }),
        _ => None,
    };
    NodeStatus {
        state: row.state.to_string(),
        entered_at: Some(row.entered_at),
        deadline_at: row.deadline_at.map(|at| at.to_jiff()),
        purpose: row.purpose.map(|purpose| purpose.to_string()),
        failed_phase: row.failed_phase.map(|phase| phase.to_string()),
        reason: row.reason.clone(),
        epoch: row.epoch,
        why: explain_state(row),
        claim: row.claim.clone(),
        pool: row.pool.clone(),
        operation: row.operation_id.map(|id| id.0),
        conditions: list_conditions(row, now),
        addresses: addresses
            .into_iter()
            .filter_map(|row| {
                let (subnet, address) = row.subnet.zip(row.address)?;
                Some(NodeAddress {
                    mac: row.mac,
                    subnet,
                    address,
                })
            })
            .collect(),
        effective_bmc_port: bmc_port(&row.spec),
        facts_observed_at: row.facts_observed_at.map(|at| at.to_jiff()),
        last_gate_run,
    }
}

/// The port of the node's BMC: from the spec, or the default of the protocol (Redfish 443, IPMI
/// 623).
fn bmc_port(spec: &Value) -> Option<u16> {
    let of = |way: &str, usual: u16| {
        let bmc = spec.pointer(&format!("/power/{way}/bmc"))?;
        let said = bmc
            .get("port")
            .and_then(Value::as_u64)
            .and_then(|port| u16::try_from(port).ok());
        Some(said.unwrap_or(usual))
    };
    of("redfish", 443).or_else(|| of("ipmi", 623))
}

/// The conditions of a node beside the state, each with the time of its begin where known.
fn list_conditions(row: &NodeRow, now: Timestamp) -> Vec<Condition> {
    let condition = |name: &str, holds: bool, since| {
        let value = if holds { "true" } else { "false" };
        Condition {
            condition: name.into(),
            value: value.into(),
            since,
        }
    };
    let deadline = row.deadline_at.map(|at| at.to_jiff());
    let overdue = deadline.filter(|at| *at < now);
    let heard = row.agent_seen.map(|at| at.to_jiff());
    let agent = heard.is_some_and(|at| now.duration_since(at).as_secs() < AGENT_AWAY_S);
    let seen = row.power_seen_at.map(|at| at.to_jiff());
    let power = row
        .power_seen
        .map(|power| condition("powered_on", power == SeenPower::On, seen));
    let conditions = vec![
        condition("in_cluster", row.in_cluster, None),
        condition("live_image", row.live, None),
        condition("overdue", overdue.is_some(), overdue),
        condition("agent_connected", agent, heard),
        condition("protected", row.protected, None),
        condition("unsanitised", row.unsanitised, None),
    ];
    // Listed only while true, because most nodes have neither.
    let serves = row.state == State::InService;
    let drifted = (serves && row.drift_items.is_some_and(|items| items > 0))
        .then(|| condition("drifted", true, None));
    let out = row
        .out_since
        .filter(|_| serves)
        .map(|since| condition("out_in_scheduler", true, Some(since.to_jiff())));
    conditions
        .into_iter()
        .chain(power)
        .chain(drifted)
        .chain(out)
        .collect()
}

/// Builds the answer to "why is this node not moving?": one sentence, and the same facts as
/// members.
fn explain_state(row: &NodeRow) -> Why {
    let mut sentence = format!("{} is {}", row.name, row.state.as_str().replace('_', " "));
    let mut add = |text: String| sentence.push_str(&text);
    if let Some(purpose) = &row.purpose {
        add(format!(" for {purpose}"));
    }
    if let Some(phase) = &row.failed_phase {
        add(format!(" in {phase}"));
    }
    add(format!(" since {}", row.entered_at.strftime("%F %T UTC")));
    if let Some(reason) = &row.reason {
        add(format!(", because {reason}"));
    }
    if let Some(action) = &row.action {
        add(format!("; requested action: {action}"));
    }
    let rests = row.waiting_reason.as_deref() == Some(WaitReason::AtRest.as_str());
    if let Some(condition) = row.waiting_for.as_ref().filter(|_| !rests) {
        add(format!("; waiting for: {condition}"));
        match row.waiting_owner.as_deref() {
            Some("nobody") => add(" (no action needed)".to_owned()),
            Some(owner) => add(format!(" ({owner} must act)")),
            None => {}
        }
    }
    if let Some(next) = row
        .next_action
        .as_ref()
        .filter(|next| !rests && *next != "none")
    {
        add(format!("; next: {next}"));
    }
    if let Some(deadline) = row.deadline_at {
        add(format!(
            "; stuck if not done by {}",
            deadline.to_jiff().strftime("%F %T UTC")
        ));
    }
    sentence.push('.');
    Why {
        sentence,
        reason: row.waiting_reason.clone(),
        waiting_for: row.waiting_for.clone(),
        since: row.waiting_since.map(|at| at.to_jiff()),
        owner: row.waiting_owner.clone(),
        next_action: row.next_action.clone(),
        attempts: row.attempts.unwrap_or(0),
    }
}
