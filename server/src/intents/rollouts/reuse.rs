//! The policy of a former rollout for a new plan, such as the way back.

use jiff::Timestamp;
use muster_core::ids::ObjectId;
use muster_core::rollout::RolloutPolicy;
use sqlx::PgConnection;

use super::plan::{check_monitors, check_window};
use super::{promotion, regressions};
use crate::auth::Actor;
use crate::db;
use crate::error::Error;
use crate::intents::revisions;

/// Returns the policy without the members refused in a new plan: a past date, a removed maintenance
/// window, an unreadable signal, and a rollout before with other software.
///
/// # Errors
/// When the database fails.
pub(crate) async fn reuse_policy(
    conn: &mut PgConnection,
    actor: &Actor,
    (pool, revision): (ObjectId, i32),
    mut policy: RolloutPolicy,
    now: Timestamp,
) -> Result<RolloutPolicy, Error> {
    policy.visit_by = policy.visit_by.filter(|by| *by > now);
    if is_refused(check_window(conn, &policy).await)? {
        policy.maintenance_window = None;
    }
    let none = RolloutPolicy::default();
    for signal in std::mem::take(&mut policy.halt_when) {
        let alone = RolloutPolicy {
            halt_when: vec![signal.clone()],
            ..RolloutPolicy::default()
        };
        let is_gone = is_refused(check_monitors(conn, &alone).await)?
            || is_refused(regressions::check(conn, pool, &alone, &none).await)?;
        if !is_gone {
            policy.halt_when.push(signal);
        }
    }
    let stored = db::revisions::find(conn, pool, revision).await?;
    let target = stored.and_then(|stored| revisions::parse(&stored).ok());
    let is_other = match &target {
        Some(target) => is_refused(promotion::check(conn, actor, pool, target, &policy).await)?,
        // The plan is refused anyway.
        None => false,
    };
    if is_other {
        policy.after = None;
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
