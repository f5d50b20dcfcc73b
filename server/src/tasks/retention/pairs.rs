//! Removes the old evidence of pair runs. Verdicts and measured values stay.

use crate::app::App;
use crate::db;
use crate::error::Error;
use crate::retention::days_ago;

/// Measurements in one transaction: each has the evidence of both directions, stored twice.
const TRIALS: i64 = 10;

/// Removes the old evidence of measurements without a node under a legal hold. Returns the number
/// of measurements. Ends early while another replica removes.
///
/// # Errors
///
/// When the database fails.
pub async fn remove(app: &App) -> Result<u64, Error> {
    let mut removed = 0;
    loop {
        let now = app.clock.now();
        let before = days_ago(now, app.retention.evidence_days);
        let mut tx = app.pool.begin().await?;
        if !db::retention::try_lock(&mut tx).await? {
            return Ok(removed);
        }
        let trials = db::pairs::evidence::lock_old_trials(&mut tx, before, TRIALS).await?;
        db::pairs::evidence::remove_evidence(&mut tx, &trials, now).await?;
        let lone = db::pairs::evidence::list_lone_jobs(&mut tx, before, TRIALS).await?;
        db::jobs::remove_pair_evidence(&mut tx, &lone).await?;
        tx.commit().await?;
        if trials.is_empty() && lone.is_empty() {
            return Ok(removed);
        }
        let count = trials.len() + lone.len();
        removed += u64::try_from(count).map_err(Error::internal)?;
    }
}
