//! Order of rollouts: the rollout of a test pool before a rollout of production.

use muster_api::rollouts::RolloutState;
use muster_core::ids::ObjectId;
use muster_core::revisions::Revision;
use muster_core::rollout::{Mark, RolloutPolicy};
use sqlx::PgConnection;

use crate::auth::Actor;
use crate::db;
use crate::db::rollouts::RolloutRow;
use crate::error::Error;
use crate::intents::revisions;

const POINTER: &str = "/policy/after";

/// Checks the rollout before: another pool, and the same image and stack.
///
/// # Errors
/// 422 `not_found` for an unknown rollout, and for a pool outside the actor's read scope; `same_pool`;
/// `other_software`.
pub(super) async fn check(
    conn: &mut PgConnection,
    actor: &Actor,
    pool: ObjectId,
    target: &Revision,
    policy: &RolloutPolicy,
) -> Result<(), Error> {
    let Some(name) = &policy.after else {
        return Ok(());
    };
    let unknown = || {
        let detail = format!("There is no rollout called {name:?}.");
        Error::unprocessable(POINTER, "not_found", detail)
    };
    let before = db::rollouts::find(conn, name).await?.ok_or_else(unknown)?;
    let key = before.pool.to_string();
    let place = db::access::find_place(conn, "pool", &key).await?;
    if !place.is_some_and(|place| actor.holding.there("fleet.read", &place)) {
        return Err(unknown());
    }
    if before.pool == pool {
        let detail = format!("{name} is a rollout of the same pool; name one of another pool.");
        return Err(Error::unprocessable(POINTER, "same_pool", detail));
    }
    let stored = db::revisions::find(conn, before.pool, before.number).await?;
    let tried = stored.and_then(|stored| revisions::parse(&stored).ok());
    match tried.is_some_and(|tried| tried.has_software_of(target)) {
        true => Ok(()),
        false => {
            let detail = format!(
                "{name} brings another image or stack: revision {} of {}.",
                before.number, before.pool_name
            );
            Err(Error::unprocessable(POINTER, "other_software", detail))
        }
    }
}

/// Checks the rollout before: done, with a node on the revision.
///
/// # Errors
/// 409 `not_promoted`.
pub(super) async fn allow_start(conn: &mut PgConnection, row: &RolloutRow) -> Result<(), Error> {
    let Some(name) = &row.policy.after else {
        return Ok(());
    };
    let refuse = |detail: String| Err(Error::conflict("not_promoted", detail));
    let Some(before) = db::rollouts::find(conn, name).await? else {
        return refuse(format!(
            "{name}, which must be done before {}, was removed.",
            row.name
        ));
    };
    let marks = db::rollout_nodes::count_marks(conn, before.id).await?;
    let is_done = |(mark, count): &(String, u32)| mark == Mark::Done.as_str() && *count > 0;
    match (before.state, marks.iter().any(is_done)) {
        (RolloutState::Done, true) => Ok(()),
        (RolloutState::Done, false) => refuse(format!("{name} is done, and no node has passed.")),
        (state, _) => refuse(format!(
            "{name} is {state}; it must be done before {}.",
            row.name
        )),
    }
}
