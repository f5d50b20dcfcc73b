//! Emits an event for each node past the deadline of the state.

use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::db;
use crate::db::events::NewEvent;
use crate::db::overdue::OverdueRow;
use crate::error::Error;

const EVERY: Duration = Duration::from_secs(30);
/// Nodes of one transaction.
const BATCH: i64 = 200;

pub(super) async fn run(app: App, cancel: CancellationToken) {
    loop {
        if let Err(error) = tell_overdue(&app).await {
            tracing::warn!(error = ?error, "overdue nodes could not be looked at; tried again shortly");
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// Emits an event for each missed deadline. A call marks a bounded number of nodes.
///
/// # Errors
///
/// When the database fails.
pub async fn tell_overdue(app: &App) -> Result<(), Error> {
    let now = app.clock.now();
    let mut tx = app.pool.begin().await?;
    let late = db::overdue::mark(&mut tx, now, BATCH).await?;
    for node in &late {
        let deadline = node.deadline_at.to_jiff();
        let detail = json!({
            "state": node.state.as_str(), "deadline_at": deadline, "waiting_for": node.waiting_for,
        });
        let event = NewEvent::node(now, "muster", "node.overdue", node.id, sum_up(node));
        db::events::insert(&mut tx, event.with(detail)).await?;
    }
    tx.commit().await?;
    if !late.is_empty() {
        app.wake_readers.send_modify(|revision| *revision += 1);
    }
    Ok(())
}

fn sum_up(node: &OverdueRow) -> String {
    let state = node.state.as_str().replace('_', " ");
    let deadline = node.deadline_at.to_jiff();
    let mut summary = format!("{} is overdue in {state} since {deadline:.0}", node.name);
    if let Some(awaited) = &node.waiting_for {
        summary.push_str(&format!("; waits for {awaited}"));
    }
    match &node.next_action {
        Some(next) => summary.push_str(&format!("; next: {next}")),
        None => summary.push_str("; look at its page for the reason"),
    }
    summary
}
