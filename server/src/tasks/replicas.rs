//! Creates claims automatically, as many as each pool's spec asks for. Each pool's row is locked
//! during the decision, so concurrent replicas of the server never create more claims than asked.

use std::time::Duration;

use muster_core::ids::ObjectId;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::app::{App, wake};
use crate::db;
use crate::error::Error;
use crate::intents::claims::replicas;

const EVERY: Duration = Duration::from_secs(2);
/// Pools considered in one round.
const POOLS: usize = 100;
/// An id smaller than every pool's id.
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

/// Creates the missing claims of the next pools behind `after`. Returns the pool to start the next
/// round from. While a caution holds, claims are not created at its sites. A restored database may
/// have lost claims, so a node recorded as free may be at work. An administrator must check first.
///
/// # Errors
///
/// When the database fails.
pub async fn round(app: &App, mut after: ObjectId) -> Result<ObjectId, Error> {
    for _ in 0..POOLS {
        let mut tx = app.pool.begin().await?;
        let caution = db::cautions::find_open(&mut tx).await?;
        if caution.is_some_and(|caution| caution.whole_fleet) {
            return Ok(FIRST);
        }
        let Some(pool) = db::replicas::lock_next(&mut tx, after).await? else {
            return Ok(FIRST);
        };
        after = pool.id;
        match replicas::create_missing(&mut tx, app, &pool).await {
            Ok(made) => {
                tx.commit().await?;
                if made > 0 {
                    wake(app);
                }
            }
            Err(error @ Error::Unavailable(_)) => return Err(error),
            // A failing pool does not block the other pools. The pool is tried again in a later
            // round.
            Err(error) => {
                tracing::error!(pool = pool.name, error = ?error, "a pool could not claim what it asks for")
            }
        }
    }
    Ok(after)
}
