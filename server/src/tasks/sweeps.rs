//! Requests sweeps of nodes in service, as often as the pools' specs say. The engine runs the suite
//! beside the node's jobs and acts on the findings.

use muster_core::ids::NodeId;
use muster_core::lifecycle::state::Action;
use tokio_util::sync::CancellationToken;

use super::looks;
use crate::app::App;
use crate::db;
use crate::error::Error;

const REASON: &str = "the pool's periodic sweep";

pub(super) async fn run(app: App, cancel: CancellationToken) {
    looks::run(app, Action::Sweep, cancel, |app, after| async move {
        round(&app, after).await
    })
    .await;
}

/// Requests the sweep of the next due nodes. Returns the node to start the next round from.
///
/// # Errors
///
/// When the database fails.
pub async fn round(app: &App, after: NodeId) -> Result<NodeId, Error> {
    let now = app.clock.now();
    let candidates =
        db::sweeps::list_candidates(&mut *app.pool.acquire().await?, after, now, looks::ROUND)
            .await?;
    looks::begin(app, &candidates, Action::Sweep, REASON).await
}
