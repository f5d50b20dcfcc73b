//! Sweeps nodes in service as often as their pools say. It only asks: the engine runs the suite beside the node's jobs, and decides about what it finds.

use std::time::Duration;

use muster_core::ids::NodeId;
use muster_core::lifecycle::state::Wish;
use tokio_util::sync::CancellationToken;

use super::drift::{FIRST, ask};
use crate::app::App;
use crate::db;
use crate::error::Error;

const EVERY: Duration = Duration::from_secs(60);
/// Nodes considered in a round, and sweeps begun in it: as of drift.
const ROUND: i64 = 200;
const BEGUN: usize = 100;
const REASON: &str = "its pool's sweep";

pub(super) async fn run(app: App, cancel: CancellationToken) {
    let mut after = FIRST;
    loop {
        match round(&app, after).await {
            Ok(next) => after = next,
            Err(error) => tracing::warn!(error = ?error, "nodes could not be asked to sweep; tried again shortly"),
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// Asks the next nodes for their sweep; where the next round begins.
///
/// # Errors
/// When the database fails.
pub async fn round(app: &App, after: NodeId) -> Result<NodeId, Error> {
    let now = app.clock.now();
    let candidates = db::sweeps::list_candidates(&mut *app.pool.acquire().await?, after, now, ROUND).await?;
    let mut begun = 0;
    for node in &candidates {
        if begun == BEGUN {
            return Ok(node.id);
        }
        if node.due && ask(app, &node.name, Wish::Sweep, REASON).await? {
            begun += 1;
        }
    }
    if begun > 0 {
        app.wake_engine.notify_one();
    }
    let full = i64::try_from(candidates.len()) == Ok(ROUND);
    Ok(candidates.last().filter(|_| full).map_or(FIRST, |last| last.id))
}
