//! Requests of actions: the actions a node allows, and the record of a request. The
//! requested action, its operation and its event are written in one transaction.

use jiff::Timestamp;
use muster_api::operations::OperationState;
use muster_core::effects::erases;
use muster_core::ids::OperationId;
use muster_core::lifecycle::requests::{
    Blocker, RequestContext, find_blocker, may_override, needs_reason,
};
use muster_core::lifecycle::state::Action;
use muster_core::lifecycle::table::states_for;
use serde_json::json;
use sqlx::PgConnection;

use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::nodes::LockedNode;
use crate::db::operations::NewOperation;
use crate::engine::compatibility::{self, Onto};
use crate::engine::signatures;
use crate::error::Error;

/// The longest reason, in bytes.
const REASON: usize = 1000;

/// An action requested of a node.
#[derive(Clone, Copy, Debug)]
pub struct ActionRequest<'text> {
    pub action: Action,
    pub reason: Option<&'text str>,
    /// For maintain: the end of the maintenance. The engine then ends the maintenance.
    pub until: Option<Timestamp>,
    /// For run-gates: the suite's name.
    pub suite: Option<&'text str>,
    /// The reason for an act beyond the disruption budget.
    pub override_budget: Option<&'text str>,
}

/// Checks the members of a request against each other.
///
/// # Errors
/// 422 for a member the action does not take, and for a value out of range.
pub(crate) fn check(request: ActionRequest<'_>, now: Timestamp) -> Result<(), Error> {
    let ActionRequest {
        action,
        reason,
        until,
        suite,
        override_budget,
    } = request;
    if let Some(reason) = override_budget {
        check_override(action, reason)?;
    }
    if suite.is_some() && action != Action::RunGates {
        return Err(Error::unprocessable(
            "/suite",
            "out_of_range",
            "Only run-gates takes a suite.",
        ));
    }
    if until.is_some_and(|until| action != Action::Maintain || until <= now) {
        return Err(Error::unprocessable(
            "/until",
            "out_of_range",
            "Only maintain takes an end, and the time must be in the future.",
        ));
    }
    match reason.map(str::trim) {
        None | Some("") if needs_reason(action) => Err(Error::unprocessable(
            "/reason",
            "required",
            format!("The action {action} needs a reason for the next reader."),
        )),
        Some(reason) if reason.len() > REASON => Err(Error::unprocessable(
            "/reason",
            "out_of_range",
            format!("At most {REASON} bytes."),
        )),
        _ => Ok(()),
    }
}

/// Checks the reason of an override.
fn check_override(action: Action, reason: &str) -> Result<(), Error> {
    let wrong = |detail: String| {
        Err(Error::unprocessable(
            "/override_budget",
            "out_of_range",
            detail,
        ))
    };
    if !may_override(action) {
        return wrong(format!(
            "The action {action} cannot override a disruption budget."
        ));
    }
    match reason.trim().len() {
        1..=REASON => Ok(()),
        _ => wrong(format!("A reason of 1 to {REASON} bytes.")),
    }
}

/// Writes a requested action, its operation and its event. The caller holds the node's lock. The
/// engine executes the action.
///
/// # Errors
/// 409 when the node's state does not allow the action, when the node is protected, or when another
/// action is pending.
pub(crate) async fn write_action(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    node: &LockedNode,
    request: ActionRequest<'_>,
) -> Result<OperationId, Error> {
    let ActionRequest {
        action,
        reason,
        until,
        suite,
        override_budget,
    } = request;
    allow(node, request)?;
    match action {
        Action::Converge => compatibility::allow(conn, node.id, Onto::System).await?,
        Action::Reinstall => {
            compatibility::allow(conn, node.id, Onto::Image).await?;
            allow_image(conn, node, app.clock.now()).await?;
        }
        _ => {}
    }
    let suite = match action {
        Action::RunGates => Some(find_suite(conn, node, suite).await?),
        _ => None,
    };
    let now = app.clock.now();
    // The hourly limit of a pool counts each erasure under a claim of the pool.
    let claim = if erases(action) {
        db::claims::find_bound(conn, node.id)
            .await?
            .map(|held| held.id)
    } else {
        None
    };
    let message = reason.unwrap_or_default().to_owned();
    let new = NewOperation {
        claim,
        ..actor.operation(now, action.as_str(), node.id, message)
    };
    let operation = new.id;
    if let Some(former) = node.operation_id {
        // The action replaces the node's current operation: end the former operation as cancelled.
        let message = format!("replaced by {action} (operation {operation})");
        db::operations::end(conn, former, OperationState::Cancelled, &message, now).await?;
    }
    db::operations::insert(conn, &new).await?;
    if let Some(suite) = &suite {
        db::operations::set_suite(conn, operation, suite).await?;
    }
    if let Some(reason) = override_budget {
        db::operations::set_override(conn, operation, reason).await?;
    }
    db::nodes::set_action(conn, node.id, action, reason, operation, now).await?;
    if action == Action::Maintain {
        db::nodes::set_maintenance_end(conn, node.id, until).await?;
    }
    let because = reason
        .map(|reason| format!(": {reason}"))
        .unwrap_or_default();
    let summary = format!("{}: {action} requested{because}", node.name);
    let event = actor
        .event(now, "node.action_requested", Some(node.id), summary)
        .under(Some(operation));
    db::events::insert(
        conn,
        event.with(json!({ "wish": action.as_str(), "reason": reason, "override_budget": override_budget })),
    )
    .await?;
    Ok(operation)
}

/// Rejects a new installation of an image without the signature that the pool asks for.
async fn allow_image(
    conn: &mut PgConnection,
    node: &LockedNode,
    now: Timestamp,
) -> Result<(), Error> {
    let pool = db::signing_keys::find_pool(conn, node.id).await?;
    let image = db::specs::find_node(conn, node.id).await?.image;
    let Some((pool, image)) = pool.zip(image) else {
        return Ok(());
    };
    let proof = signatures::need_proof(conn, pool, &image, now).await;
    proof.map(drop)
}

/// The suite to run: the named suite, or the suite of the node's pool.
async fn find_suite(
    conn: &mut PgConnection,
    node: &LockedNode,
    named: Option<&str>,
) -> Result<String, Error> {
    let wrong = |code, detail: String| Error::unprocessable("/suite", code, detail);
    let Some(key) = named else {
        let own = db::specs::find_pool_suite(conn, node.id).await?;
        return own.ok_or_else(|| {
            wrong(
                "required",
                format!(
                    "{} has no claim, so no pool names one: name a suite.",
                    node.name
                ),
            )
        });
    };
    let found = db::objects::find_for_reference(conn, "suite", key).await?;
    found
        .map(|row| row.name)
        .ok_or_else(|| wrong("not_found", format!("There is no suite called {key:?}.")))
}

/// Checks whether the node allows the action.
///
/// # Errors
/// 409 naming the blocker.
pub(crate) fn allow(node: &LockedNode, request: ActionRequest<'_>) -> Result<(), Error> {
    let (state, action) = (node.state, request.action);
    let pending = node.action.zip(node.operation_id);
    let context = RequestContext {
        state,
        failed_phase: node.failed_phase,
        pending: pending.map(|(action, _)| action),
        waits_for_slot: node.waits_for_slot(),
        overrides: request.override_budget.is_some(),
        claimed: node.claimed,
        releasing: node.releasing,
        protected: node.protected,
    };
    let name = &node.name;
    let Some(blocker) = find_blocker(context, action) else {
        return Ok(());
    };
    Err(match (blocker, pending) {
        (Blocker::Pending, Some((pending, operation))) => {
            let detail =
                format!("{name} was asked to {pending} and is not done; try again shortly.");
            Error::Busy { detail, operation }
        }
        (Blocker::Pending | Blocker::State, _) => {
            let states: Vec<&str> = states_for(action)
                .iter()
                .map(|state| state.as_str())
                .collect();
            let detail = format!(
                "{name} is {state}; {action} is possible in: {}.",
                states.join(", ")
            );
            Error::conflict("state", detail)
        }
        (Blocker::OtherPhase, _) => {
            let detail =
                format!("{name} has not failed in a drain; {action} undoes a failed drain only.");
            Error::conflict("state", detail)
        }
        (Blocker::NotClaimed, _) => {
            let detail = format!("{name} has no claim, so no pool names an image to install.");
            Error::conflict("node_not_claimed", detail)
        }
        (Blocker::Releasing, _) => Error::conflict(
            "releasing",
            format!("{name} is being released; no other action is possible."),
        ),
        (Blocker::Protected, _) => Error::conflict(
            "protected",
            format!("{name} is protected; clear that first."),
        ),
    })
}
