//! Rollouts: plans, the acts of people, and the ticks of the executor. A tick reads the facts, asks
//! the planner in `core/rollout`, and applies the planned actions.

mod adjust; // Changes to the policy of an open rollout
mod advance; // A tick of every open rollout
mod automatic; // Rollouts that start by themselves
mod control; // Start, halt, resume, promote, skip and retry
mod estimates; // Estimated ends
mod execute; // Actions of a plan, each in a transaction of its own
mod fits; // Nodes unfit for the target
mod fleet; // The facts of a rollout
pub(crate) mod jobs; // Jobs on the nodes of a pool
mod members; // Members of the pool and of its failure domains
mod plan; // A planned rollout, with the digest that a person confirms
mod promotion; // A rollout of another pool before this one
mod regressions; // Values of gates worse after a change than before
mod reinstalls; // Reinstalls, and the second person
mod reuse; // A former policy for a new plan
mod signals; // Signs of trouble that halt a rollout
mod transfers; // Bytes sent to nodes, and the links of sites
pub(crate) mod view; // Rollouts as returned to readers
pub(crate) mod windows; // The maintenance windows of a rollout

use sqlx::PgConnection;

use crate::db;
use crate::db::rollouts::RolloutRow;
use crate::error::Error;

pub(crate) use adjust::adjust;
pub use advance::advance;
pub use automatic::start_due;
pub(crate) use control::{Request, halt, promote, requeue, resume, retry, skip, start};
pub use estimates::estimate_large;
pub(crate) use plan::plan;
pub(crate) use reuse::reuse_policy;

/// The longest reason, in bytes.
const REASON: usize = 1000;

/// Returns one rollout by name or id.
///
/// # Errors
/// 404 for an unknown rollout.
pub(crate) async fn find(conn: &mut PgConnection, key: &str) -> Result<RolloutRow, Error> {
    let found = db::rollouts::find(conn, key).await?;
    found.ok_or_else(|| Error::NotFound(format!("rollout {key:?}")))
}

/// Checks the reason of a person.
fn check_reason(reason: &str) -> Result<&str, Error> {
    let wrong = |code, detail: String| Err(Error::unprocessable("/reason", code, detail));
    match reason.trim() {
        "" => wrong("required", "A reason for the next reader.".to_owned()),
        long if long.len() > REASON => wrong("out_of_range", format!("At most {REASON} bytes.")),
        reason => Ok(reason),
    }
}
