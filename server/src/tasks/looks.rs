//! Requests periodic work on nodes in service: drift checks and pool sweeps, a few nodes at a time.
//! The work runs beside the nodes' jobs. The task only writes the request, and the engine does the
//! rest.

use std::time::Duration;

use muster_core::ids::{NodeId, OperationId};
use muster_core::lifecycle::state::{Action, State};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::app::App;
use crate::db;
use crate::db::drift::Candidate;
use crate::db::events::NewEvent;
use crate::db::operations::NewOperation;
use crate::error::Error;

const EVERY: Duration = Duration::from_secs(60);
/// Nodes considered in one round. At 200 a minute, 100,000 nodes take a third of a day.
pub(super) const ROUND: i64 = 200;
/// Most requests of one round. A fleet installed within one hour is therefore not checked within
/// one minute.
const BEGUN: usize = 100;
/// An id smaller than every node's id.
const FIRST: NodeId = NodeId(Uuid::nil());

/// Runs rounds until cancelled. Each round starts where the round before ended.
pub(super) async fn run<R: Future<Output = Result<NodeId, Error>>>(
    app: App,
    what: Action,
    cancel: CancellationToken,
    round: impl Fn(App, NodeId) -> R,
) {
    let mut after = FIRST;
    loop {
        match round(app.clone(), after).await {
            Ok(next) => after = next,
            Err(error) => {
                tracing::warn!(error = ?error, "nodes could not be asked to {what}; tried again shortly")
            }
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// Requests the action for the due candidates. Returns the node to start the next round from.
///
/// # Errors
///
/// When the database fails.
pub(super) async fn begin(
    app: &App,
    candidates: &[Candidate],
    action: Action,
    reason: &str,
) -> Result<NodeId, Error> {
    let mut begun = 0;
    for node in candidates {
        if begun == BEGUN {
            return Ok(node.id);
        }
        if node.due && ask(app, &node.name, action, reason).await? {
            begun += 1;
        }
    }
    if begun > 0 {
        app.wake_engine.notify_one();
    }
    let full = i64::try_from(candidates.len()) == Ok(ROUND);
    Ok(candidates
        .last()
        .filter(|_| full)
        .map_or(FIRST, |last| last.id))
}

/// Records a requested action for a node in service, as for a person. A pending request of a person
/// has priority, and the node is skipped.
///
/// # Errors
///
/// When the database fails.
async fn ask(app: &App, name: &str, action: Action, reason: &str) -> Result<bool, Error> {
    let now = app.clock.now();
    let mut tx = app.pool.begin().await?;
    let Some(node) = db::nodes::find_for_update(&mut tx, name).await? else {
        return Ok(false);
    };
    if node.action.is_some() || node.releasing || node.state != State::InService {
        return Ok(false);
    }
    let id = OperationId::new();
    let operation = NewOperation {
        id,
        kind: action.as_str(),
        node: Some(node.id),
        claim: None,
        actor: "muster".into(),
        request_id: None,
        message: reason.into(),
        now,
    };
    db::operations::insert(&mut tx, &operation).await?;
    db::nodes::set_action(&mut tx, node.id, action, Some(reason), id, now).await?;
    let summary = format!("{name}: {action} requested: {reason}");
    let event =
        NewEvent::node(now, "muster", "node.action_requested", node.id, summary).under(Some(id));
    db::events::insert(
        &mut tx,
        event.with(json!({ "wish": action.as_str(), "reason": reason })),
    )
    .await?;
    tx.commit().await?;
    Ok(true)
}
