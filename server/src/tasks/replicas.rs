//! Has pools claim nodes by themselves, as many as their specs ask for. Each pool is held while it is decided on, so that replicas of the server make no
//! more than that between them.

use std::time::Duration;

use muster_core::ids::ObjectId;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::app::{App, wake};
use crate::db;
use crate::error::Error;
use crate::intents::claims::replicas;

const EVERY: Duration = Duration::from_secs(2);
/// Pools considered in a round.
const POOLS: usize = 100;
/// Before every pool.
pub const FIRST: ObjectId = ObjectId(Uuid::nil());

pub(super) async fn run(app: App, cancel: CancellationToken) {
    let mut after = FIRST;
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        match round(&app, after).await {
            Ok(next) => after = next,
            Err(error) => {
                tracing::warn!(error = ?error, "pools could not be looked at; tried again shortly")
            }
        }
    }
}

/// Makes what the next pools behind `after` lack; where the next round begins. A database that was put back may have lost claims: what it says is free may
/// be at work, so nothing is claimed until an administrator has looked.
///
/// # Errors
/// When the database fails.
pub async fn round(app: &App, mut after: ObjectId) -> Result<ObjectId, Error> {
    for _ in 0..POOLS {
        let mut tx = app.pool.begin().await?;
        if db::cautions::find_open(&mut tx).await?.is_some() {
            return Ok(FIRST);
        }
        let Some(pool) = db::replicas::lock_next(&mut tx, after).await? else {
            return Ok(FIRST);
        };
        after = pool.id;
        match replicas::fill(&mut tx, app, &pool).await {
            Ok(made) => {
                tx.commit().await?;
                if made > 0 {
                    wake(app);
                }
            }
            Err(error @ Error::Unavailable(_)) => return Err(error),
            // One pool that goes wrong keeps no other waiting; it is tried again in a later round.
            Err(error) => {
                tracing::error!(pool = pool.name, error = ?error, "a pool could not claim what it asks for")
            }
        }
    }
    Ok(after)
}
