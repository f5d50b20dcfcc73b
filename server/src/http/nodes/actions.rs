//! Actions on nodes: a wish, its operation and its event in one transaction. The engine does the rest.

use axum::extract::State;
use jiff::Timestamp;
use muster_api::nodes::NodeAction;
use muster_api::operations::Operation;
use muster_api::problem::Problem;
use muster_core::effects::erases;
use muster_core::ids::OperationId;
use muster_core::lifecycle::state::{State as NodeState, Wish};
use muster_core::lifecycle::table::{states_for, wish_allowed};
use serde_json::json;
use sqlx::PgConnection;

use super::{erasures, write};
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::nodes::LockedNode;
use crate::db::operations::NewOperation;
use crate::engine::compatibility::{self, Onto};
use crate::error::Error;
use crate::http::answer::Answer;
use crate::http::dry_run;
use crate::http::extract::{OptionalJson, Path};
use crate::http::idempotency::IdempotencyKey;
use crate::http::preconditions::Preconditions;
use crate::http::writing::{self, Effect};

/// The longest reason, in bytes.
const REASON: usize = 1000;

/// What is asked of a node.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'text> {
    pub wish: Wish,
    pub reason: Option<&'text str>,
    /// Of a maintenance: when it ends by itself.
    pub until: Option<Timestamp>,
    /// Of a run of gates: the suite's name.
    pub suite: Option<&'text str>,
}

/// Asks a node for an action: accept, reject, inspect, retry, quarantine, recover, wipe, drain, undrain, maintain, resume, retire, reinstate, check-drift,
/// sweep, power-on, power-off, power-cycle, run-gates, converge, reinstall, rotate-bmc. Sent with If-Match, it is asked of the node as it was read; what erases a disk
/// (wipe, reinstall) must be, and beyond the hourly limit waits for a second person.
#[utoipa::path(post, path = "/v1/nodes/{node}/actions/{action}", tag = "nodes",
    params(("node", description = "Name or id"), ("action", description = "The action"), ("If-Match" = Option<String>, Header),
        ("Idempotency-Key" = Option<String>, Header)),
    request_body(content = NodeAction), responses(
    (status = 202, description = "Asked; Location leads to the operation", body = Operation),
    (status = 409, description = "The node's state does not allow it, it is protected, or busy; or a second person must agree: `second_person`, and Link leads to the approval",
        body = Problem, content_type = "application/problem+json"),
    (status = 412, description = "The node was changed since it was read", body = Problem, content_type = "application/problem+json"),
    (status = 428, description = "To wipe or reinstall, If-Match is missing", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn act_on_node(
    State(app): State<App>,
    actor: Actor,
    Path((key, action)): Path<(String, String)>,
    idempotency: IdempotencyKey,
    preconditions: Preconditions,
    OptionalJson(body): OptionalJson<NodeAction>,
) -> Result<Answer, Error> {
    // A release is its claim's end.
    let wish: Option<Wish> = action.parse().ok().filter(|wish| *wish != Wish::Release);
    let wish = wish.ok_or_else(|| Error::NotFound(format!("The action {action:?}")))?;
    ask(
        &app,
        &actor,
        &key,
        (idempotency, preconditions, &body),
        wish,
    )
    .await
}

/// Asks, as the API and the pages do.
///
/// # Errors
/// As [`act_on_node`] answers; 422 for a wish that takes more than a reason: it has a route and a form of its own.
pub async fn ask(
    app: &App,
    actor: &Actor,
    key: &str,
    (idempotency, preconditions, body): (IdempotencyKey, Preconditions, &NodeAction),
    wish: Wish,
) -> Result<Answer, Error> {
    let more = match wish {
        Wish::Adopt => Some("a pool, a credential and the machine's host key"),
        Wish::ReplaceParts => Some("the serials of the part that is out and of the one that is in"),
        Wish::Release => Some("the claim that ends"),
        _ => None,
    };
    if let Some(more) = more {
        return Err(Error::unprocessable(
            "action",
            "incomplete",
            format!("To {wish} takes {more}; use its own form."),
        ));
    }
    let asked = Asked {
        wish,
        reason: body.reason.as_deref(),
        until: body.until,
        suite: body.suite.as_deref(),
    };
    check(asked, app.clock.now())?;
    writing::once(app, actor, idempotency, body, async |conn| {
        let node = write::find(conn, key).await?;
        match erases(wish) && !dry_run::asked() {
            true => preconditions.allow_removal(node.generation)?,
            false => preconditions.allow_write(Some(node.generation))?,
        }
        if erases(wish) {
            allow(&node, wish)?;
            let pending = erasures::request_approval(conn, app, actor, &node, asked).await?;
            if let Some(pending) = pending {
                return Ok(Effect::Held(pending.refusal()));
            }
        }
        write_wish(conn, app, actor, &node, asked)
            .await
            .map(Effect::Begun)
    })
    .await
}

pub(super) fn check(asked: Asked<'_>, now: Timestamp) -> Result<(), Error> {
    let Asked {
        wish,
        reason,
        until,
        suite,
    } = asked;
    if suite.is_some() && wish != Wish::RunGates {
        return Err(Error::unprocessable(
            "/suite",
            "out_of_range",
            "A suite is of run-gates only.",
        ));
    }
    if until.is_some_and(|until| wish != Wish::Maintain || until <= now) {
        return Err(Error::unprocessable(
            "/until",
            "out_of_range",
            "A time to come, and of a maintenance only.",
        ));
    }
    match reason.map(str::trim) {
        None | Some("") if needs_reason(wish) => Err(Error::unprocessable(
            "/reason",
            "required",
            format!("To {wish}, say why: the next person will ask."),
        )),
        Some(reason) if reason.len() > REASON => Err(Error::unprocessable(
            "/reason",
            "out_of_range",
            format!("At most {REASON} bytes."),
        )),
        _ => Ok(()),
    }
}

/// Whether the next person will ask why.
pub fn needs_reason(wish: Wish) -> bool {
    matches!(
        wish,
        Wish::Quarantine
            | Wish::Maintain
            | Wish::Reject
            | Wish::Retire
            | Wish::ReplaceParts
            | Wish::PowerOff
            | Wish::PowerCycle
            | Wish::Reinstall
    )
}

/// Writes a wish down with its operation and event. The caller holds the node's lock.
///
/// # Errors
/// 409 when the node's state does not allow it, it is protected, or another wish waits.
pub(in crate::http) async fn write_wish(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    node: &LockedNode,
    Asked {
        wish,
        reason,
        until,
        suite,
    }: Asked<'_>,
) -> Result<OperationId, Error> {
    allow(node, wish)?;
    match wish {
        Wish::Converge => compatibility::allow(conn, node.id, Onto::System).await?,
        Wish::Reinstall => compatibility::allow(conn, node.id, Onto::Image).await?,
        _ => {}
    }
    let suite = match wish {
        Wish::RunGates => Some(suite_for(conn, node, suite).await?),
        _ => None,
    };
    let now = app.clock.now();
    // What erases disks under a claim is counted for its pool.
    let claim = if erases(wish) {
        db::claims::find_bound(conn, node.id)
            .await?
            .map(|held| held.id)
    } else {
        None
    };
    let message = reason.unwrap_or_default().to_owned();
    let new = NewOperation {
        claim,
        ..actor.operation(now, wish.as_str(), node.id, message)
    };
    let operation = new.id;
    if let Some(former) = node.operation_id {
        // A wish turns the node round: what it was busy with is over, and says so.
        let message = format!("overtaken by {wish} (operation {operation})");
        db::operations::end(conn, former, "cancelled", &message, now).await?;
    }
    db::operations::insert(conn, &new).await?;
    if let Some(suite) = &suite {
        db::operations::set_suite(conn, operation, suite).await?;
    }
    db::nodes::set_wish(conn, node.id, wish, reason, operation, now).await?;
    if wish == Wish::Maintain {
        db::nodes::set_maintenance_end(conn, node.id, until).await?;
    }
    let because = reason
        .map(|reason| format!(": {reason}"))
        .unwrap_or_default();
    let summary = format!("{} was asked to {wish}{because}", node.name);
    let event = actor
        .event(now, "node.asked", Some(node.id), summary)
        .under(Some(operation));
    db::events::insert(
        conn,
        event.with(json!({ "wish": wish.as_str(), "reason": reason })),
    )
    .await?;
    Ok(operation)
}

/// The suite to run: the one that is named, or that of the pool that holds the node.
async fn suite_for(
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
                    "Nothing holds {}, so no pool names one: name it.",
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

/// How a node stands, for whoever asks something of it.
#[derive(Clone, Copy, Debug)]
pub struct Standing<'text> {
    pub state: NodeState,
    /// What it was asked for and is not done.
    pub pending: Option<&'text str>,
    pub claimed: bool,
    pub releasing: bool,
    pub protected: bool,
}

/// What keeps a node from being asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bar {
    Pending,
    State,
    NotClaimed,
    Releasing,
    Protected,
}

/// What keeps a node from being asked for this, as the API and the pages have it.
pub fn bar(node: Standing<'_>, wish: Wish) -> Option<Bar> {
    // A look at a node in service keeps nobody from taking it out. Another look waits for a sweep: what it finds would be decided by nobody, and its loads
    // would go on beside the jobs of a node that is given back.
    let looks = [Wish::Inspect, Wish::CheckDrift, Wish::Sweep];
    let serves_on = looks.contains(&wish) || wish == Wish::RotateBmc;
    let gives_way =
        |look: &Wish| node.pending == Some(look.as_str()) && !(*look == Wish::Sweep && serves_on);
    let looked_at = node.state == NodeState::InService && looks.iter().any(gives_way);
    // Whatever powers, drains or erases is refused on a protected node; what lets it go on is not.
    let harmless = matches!(
        wish,
        Wish::Accept
            | Wish::Adopt
            | Wish::Reject
            | Wish::Undrain
            | Wish::Resume
            | Wish::Retry
            | Wish::Recover
            | Wish::Reinstate
            | Wish::CheckDrift
            | Wish::Sweep
            | Wish::RotateBmc
    ) && !(wish == Wish::Recover && node.state == NodeState::InService);
    if node.pending.is_some() && !looked_at {
        return Some(Bar::Pending);
    }
    if !wish_allowed(node.state, wish) {
        return Some(Bar::State);
    }
    if matches!(wish, Wish::Converge | Wish::Reinstall) && !node.claimed {
        return Some(Bar::NotClaimed);
    }
    if node.releasing && wish != Wish::Retry {
        return Some(Bar::Releasing);
    }
    (node.protected && !harmless).then_some(Bar::Protected)
}

/// Whether a node can be asked for this.
///
/// # Errors
/// 409 that says what is in the way.
pub(in crate::http) fn allow(node: &LockedNode, wish: Wish) -> Result<(), Error> {
    let state: NodeState = node.state.parse().map_err(Error::internal)?;
    let pending = node.wish.as_deref().zip(node.operation_id);
    let standing = Standing {
        state,
        pending: pending.map(|(wish, _)| wish),
        claimed: node.claimed,
        releasing: node.releasing,
        protected: node.protected,
    };
    let name = &node.name;
    let Some(bar) = bar(standing, wish) else {
        return Ok(());
    };
    Err(match (bar, pending) {
        (Bar::Pending, Some((pending, operation))) => {
            let detail =
                format!("{name} was asked to {pending} and is not done; try again shortly.");
            Error::Busy { detail, operation }
        }
        (Bar::Pending | Bar::State, _) => {
            let states: Vec<&str> = states_for(wish)
                .iter()
                .map(|state| state.as_str())
                .collect();
            let detail = format!(
                "{name} is {state}; {wish} is possible in: {}.",
                states.join(", ")
            );
            Error::conflict("state", detail)
        }
        (Bar::NotClaimed, _) => {
            let detail =
                format!("Nothing holds {name}: there is no pool that says what to install.");
            Error::conflict("node_not_claimed", detail)
        }
        (Bar::Releasing, _) => Error::conflict(
            "releasing",
            format!("{name} is being released, and only that goes on."),
        ),
        (Bar::Protected, _) => Error::conflict(
            "protected",
            format!("{name} is protected; clear that first."),
        ),
    })
}
