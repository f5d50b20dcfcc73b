//! The policy of a former rollout for a new plan, such as the way back.

use jiff::Timestamp;
use muster_core::rollout::RolloutPolicy;
use sqlx::PgConnection;

use super::plan::{check_monitors, check_window};
use super::regressions;
use crate::db::rollouts::RolloutRow;
use crate::error::Error;

/// Returns the policy without a past date and without a removed maintenance window. The way back to an
/// earlier revision also leaves out refused signals, and the rollout before. Other plans keep these
/// members, and are refused.
///
/// # Errors
/// When the database fails.
pub(crate) async fn reuse_policy(
    conn: &mut PgConnection,
    former: RolloutRow,
    revision: i32,
    now: Timestamp,
) -> Result<RolloutPolicy, Error> {
    let mut policy = former.policy.0;
    policy.visit_by = policy.visit_by.filter(|by| *by > now);
    if is_refused(check_window(conn, &policy).await)? {
        policy.maintenance_window = None;
    }
    if revision >= former.number {
        return Ok(policy);
    }
    policy.after = None;
    let none = RolloutPolicy::default();
    for signal in std::mem::take(&mut policy.halt_when) {
        let alone = RolloutPolicy {
            halt_when: vec![signal.clone()],
            ..RolloutPolicy::default()
        };
        let is_gone = is_refused(check_monitors(conn, &alone).await)?
            || is_refused(regressions::check(conn, former.pool, &alone, &none).await)?;
        if !is_gone {
            policy.halt_when.push(signal);
        }
    }
    Ok(policy)
}

fn is_refused(checked: Result<(), Error>) -> Result<bool, Error> {
    match checked {
        Ok(()) => Ok(false),
        Err(Error::Unprocessable(_)) => Ok(true),
        Err(error) => Err(error),
    }
}
