//! Compares every node in service with its stack once a day.

use jiff::SignedDuration;
use muster_core::ids::NodeId;
use muster_core::lifecycle::state::Action;
use tokio_util::sync::CancellationToken;

use super::looks;
use crate::app::App;
use crate::db;
use crate::error::Error;

/// Time between two drift checks of a node.
const PERIOD: SignedDuration = SignedDuration::from_hours(24);
const REASON: &str = "the daily drift check";

pub(super) async fn run(app: App, cancel: CancellationToken) {
    looks::run(app, Action::CheckDrift, cancel, |app, after| async move {
        round(&app, after).await
    })
    .await;
}

/// Requests a drift check for the next due nodes. Returns the node to start the next round from.
///
/// # Errors
///
/// When the database fails.
pub async fn round(app: &App, after: NodeId) -> Result<NodeId, Error> {
    let before = app.clock.now() - PERIOD;
    let candidates =
        db::drift::list_candidates(&mut *app.pool.acquire().await?, after, before, looks::ROUND)
            .await?;
    looks::begin(app, &candidates, Action::CheckDrift, REASON).await
}
