//! State transitions of a reconcile pass, and the end of the requests and operations behind the
//! transitions.

use jiff::Timestamp;
use muster_api::operations::OperationState;
use muster_core::lifecycle::decision::{Effect, Move};
use muster_core::lifecycle::state::{Action, State};
use muster_core::lifecycle::table;
use muster_core::lifecycle::wait::{Wait, WaitReason};
use serde_json::json;
use sqlx::PgConnection;

use super::recoveries;
use crate::db;
use crate::db::events::NewEvent;
use crate::db::lifecycle::EngineNode;
use crate::error::Error;

/// Moves a node to the next state, and applies all effects of the move.
pub(super) async fn advance(
    conn: &mut PgConnection,
    node: &EngineNode,
    to: &Move,
    now: Timestamp,
) -> Result<(), Error> {
    if !table::legal(node.state, to.to) {
        return Err(Error::internal(anyhow::anyhow!(
            "{} may not move from {} to {}",
            node.name,
            node.state,
            to.to
        )));
    }
    db::lifecycle::advance(conn, node, to, now).await?;
    if node.state == State::InService {
        db::pairs::ends::come_back(conn, node.id, Some(&format!("it is {}", to.to)), now).await?;
    }
    recoveries::follow(conn, node, to, now).await?;
    if let Some(action) = node.action.filter(|action| {
        let ends = *action == Action::Undrain && to.to == State::Failed;
        let is_allowed = table::action_allowed(to.to, *action) && !ends;
        !to.effects.contains(&Effect::ActionTaken) && !is_allowed
    }) {
        db::lifecycle::drop_action(conn, node.id).await?;
        refuse(
            conn,
            node,
            action,
            &format!("too late: the node is {}", to.to),
            now,
        )
        .await?;
    }
    if to.effects.contains(&Effect::EndClaim)
        && let Some((claim, _)) = node.claim
    {
        db::claims::end(conn, claim, now).await?;
    }
    if to.effects.contains(&Effect::Adopted) {
        record_adoption(conn, node, now).await?;
    }
    let because = to
        .reason
        .as_ref()
        .map(|reason| format!(": {reason}"))
        .unwrap_or_default();
    let summary = format!("{}: {} → {}{because}", node.name, node.state, to.to);
    let detail =
        json!({ "from": node.state, "to": to.to, "reason": to.reason, "visit": node.visit + 1 });
    let event = NewEvent::node(now, "muster", "node.advanced", node.id, summary)
        .under(node.operation)
        .with(detail);
    db::events::insert(conn, event).await?;
    let reason = to.reason.as_deref();
    tracing::info!(from = %node.state, to = %to.to, reason, "node advanced");
    metrics::counter!("muster_transitions_total", "to" => to.to.as_str()).increment(1);
    end_operation(conn, node, to, now).await
}

/// Creates the claim of an adopted node together with the move into service.
async fn record_adoption(
    conn: &mut PgConnection,
    node: &EngineNode,
    now: Timestamp,
) -> Result<(), Error> {
    let missing = || {
        Error::internal(anyhow::anyhow!(
            "{} is adopted without a request for the adoption",
            node.name
        ))
    };
    let claim = db::adoptions::finish(conn, node.id, &node.name, node.epoch, now)
        .await?
        .ok_or_else(missing)?;
    // The node already draws power, so the watts are reserved without asking the rack's budget.
    let watts = node
        .profile
        .as_ref()
        .map_or(0, |profile| profile.power_max_w);
    db::power::reserve(conn, node.id, i32::try_from(watts).unwrap_or(i32::MAX)).await?;
    let summary = format!(
        "{} was adopted unchanged and is bound to {claim}",
        node.name
    );
    let event =
        NewEvent::node(now, "muster", "claim.created", node.id, summary).under(node.operation);
    db::events::insert(conn, event.with(json!({ "claim": claim }))).await
}

/// Ends the operation when the node reaches a resting state. The result is success only in the
/// operation's target state.
async fn end_operation(
    conn: &mut PgConnection,
    node: &EngineNode,
    to: &Move,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(operation) = node.operation.filter(|_| to.to.is_resting()) else {
        return Ok(());
    };
    let replaced = match node.claim {
        Some((claim, _)) => db::replacements::find_replaced(conn, claim, operation).await?,
        None => None,
    };
    if replaced.is_some() && to.to == State::InService {
        // The operation of a replacement ends later, when the claim takes the node
        // (`engine/replacements.rs`).
        return Ok(());
    }
    let requested = to.effects.contains(&Effect::ActionTaken);
    let (state, message) = match to.to {
        _ if to.effects.contains(&Effect::Stopped) => (
            OperationState::Cancelled,
            to.reason.clone().unwrap_or_default(),
        ),
        State::Available | State::InService | State::Retired | State::Discovered => {
            (OperationState::Succeeded, to.to.to_string())
        }
        State::Quarantined | State::Maintenance if requested || node.state == State::Draining => {
            (OperationState::Succeeded, to.to.to_string())
        }
        State::Quarantined
        | State::Maintenance
        | State::Inspecting
        | State::Imaging
        | State::Installing
        | State::Validating
        | State::Admitting
        | State::Draining
        | State::Repairing
        | State::Failed
        | State::Wiping => (
            OperationState::Failed,
            to.reason.clone().unwrap_or_else(|| to.to.to_string()),
        ),
    };
    let message = match replaced {
        Some((claim, kept)) => format!("{message}; {claim} keeps {kept}"),
        None => message,
    };
    db::operations::end(conn, operation, state, &message, now).await
}

/// Drops a requested action refused by a resting node, because a pending request would block every
/// other request. Releases are skipped: the claim stores a release.
pub(super) async fn refuse_action(
    conn: &mut PgConnection,
    node: &EngineNode,
    wait: &Wait,
    now: Timestamp,
) -> Result<(), Error> {
    // A request waiting for a free slot is accepted.
    let goes_on = |action: Action| {
        action == Action::Release
            || (action == Action::Sweep && wait.until.is_some())
            || wait.reason == WaitReason::Slot
    };
    let Some(action) = node
        .action
        .filter(|action| node.state.is_resting() && !goes_on(*action))
    else {
        return Ok(());
    };
    let why = if wait.reason == WaitReason::AtRest {
        format!("the node is {}", node.state)
    } else {
        format!(
            "the node is {} and waits for {}",
            node.state, wait.condition
        )
    };
    db::lifecycle::drop_action(conn, node.id).await?;
    refuse(conn, node, action, &why, now).await
}

/// Ends the operation of a request granted in the node's state.
pub(super) async fn grant(
    conn: &mut PgConnection,
    node: &EngineNode,
    what: &str,
    now: Timestamp,
) -> Result<(), Error> {
    db::lifecycle::drop_action(conn, node.id).await?;
    if let Some(until) = node
        .maintenance_until
        .filter(|_| node.state == State::Maintenance)
    {
        db::lifecycle::set_deadline(conn, node.id, until).await?;
    }
    if let Some(operation) = node.operation {
        db::operations::end(conn, operation, OperationState::Succeeded, what, now).await?;
    }
    let event = NewEvent::node(
        now,
        "muster",
        "node.action_done",
        node.id,
        format!("{}: {what}", node.name),
    );
    db::events::insert(
        conn,
        event
            .under(node.operation)
            .with(json!({ "wish": node.action })),
    )
    .await?;
    db::lifecycle::make_due(conn, node.id, now).await
}

/// Ends the operation of a refused request.
pub(super) async fn refuse(
    conn: &mut PgConnection,
    node: &EngineNode,
    action: Action,
    why: &str,
    now: Timestamp,
) -> Result<(), Error> {
    let summary = format!("{} was refused: {why}", action.as_str());
    if let Some(operation) = node.operation {
        let state = match node.stop {
            true => OperationState::Cancelled,
            false => OperationState::Failed,
        };
        db::operations::end(conn, operation, state, &summary, now).await?;
    }
    let event = NewEvent::node(
        now,
        "muster",
        "node.action_refused",
        node.id,
        format!("{}: {summary}", node.name),
    );
    db::events::insert(
        conn,
        event.under(node.operation).with(json!({ "wish": action })),
    )
    .await
}
