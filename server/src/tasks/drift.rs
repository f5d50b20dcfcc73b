//! Holds every node in service against its stack once a day. It only asks: the engine does the rest, beside the node's jobs, and nothing is changed.

use std::time::Duration;

use jiff::SignedDuration;
use muster_core::ids::{NodeId, OperationId};
use muster_core::lifecycle::state::{State, Wish};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::app::App;
use crate::db;
use crate::db::events::NewEvent;
use crate::db::operations::NewOperation;
use crate::error::Error;

const EVERY: Duration = Duration::from_secs(60);
/// A node is looked at again after this time.
const PERIOD: SignedDuration = SignedDuration::from_hours(24);
/// Nodes considered in a round. 200 a minute come past 100,000 nodes in a third of the period.
const ROUND: i64 = 200;
/// Looks begun in a round, so that a fleet that was installed in one hour is not looked at in one minute.
const BEGUN: usize = 100;
/// Before every node.
pub(super) const FIRST: NodeId = NodeId(Uuid::nil());
const REASON: &str = "the daily look";

pub(super) async fn run(app: App, cancel: CancellationToken) {
    let mut after = FIRST;
    loop {
        match round(&app, after).await {
            Ok(next) => after = next,
            Err(error) => {
                tracing::warn!(error = ?error, "nodes could not be asked for their drift; tried again shortly")
            }
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// Asks the next nodes for a look; where the next round begins.
///
/// # Errors
/// When the database fails.
pub async fn round(app: &App, after: NodeId) -> Result<NodeId, Error> {
    let before = app.clock.now() - PERIOD;
    let candidates = db::drift::list_candidates(&mut *app.pool.acquire().await?, after, before, ROUND).await?;
    let mut begun = 0;
    for node in &candidates {
        if begun == BEGUN {
            return Ok(node.id);
        }
        if node.due && ask(app, &node.name, Wish::CheckDrift, REASON).await? {
            begun += 1;
        }
    }
    if begun > 0 {
        app.wake_engine.notify_one();
    }
    let full = i64::try_from(candidates.len()) == Ok(ROUND);
    Ok(candidates.last().filter(|_| full).map_or(FIRST, |last| last.id))
}

/// Writes a wish for a node in service down as for a person, unless one of theirs came first.
///
/// # Errors
/// When the database fails.
pub(super) async fn ask(app: &App, name: &str, wish: Wish, reason: &str) -> Result<bool, Error> {
    let now = app.clock.now();
    let mut tx = app.pool.begin().await?;
    let Some(node) = db::nodes::find_for_update(&mut tx, name).await? else { return Ok(false) };
    if node.wish.is_some() || node.releasing || node.state != State::InService.as_str() {
        return Ok(false);
    }
    let id = OperationId::new();
    let operation = NewOperation {
        id,
        kind: wish.as_str(),
        node: Some(node.id),
        claim: None,
        actor: "muster".into(),
        request_id: None,
        message: reason.into(),
        now,
    };
    db::operations::insert(&mut tx, &operation).await?;
    db::nodes::set_wish(&mut tx, node.id, wish, Some(reason), id, now).await?;
    let summary = format!("{name} was asked to {wish}: {reason}");
    let event = NewEvent::node(now, "muster", "node.asked", node.id, summary).under(Some(id));
    db::events::insert(&mut tx, event.with(json!({ "wish": wish.as_str(), "reason": reason }))).await?;
    tx.commit().await?;
    Ok(true)
}
