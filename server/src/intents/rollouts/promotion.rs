//! Order of rollouts: the rollout of a test pool before a rollout of production.

use muster_api::rollouts::RolloutState;
use muster_core::ids::ObjectId;
use muster_core::revisions::Revision;
use muster_core::rollout::{Mark, RolloutPolicy};
use sqlx::PgConnection;

use crate::auth::Actor;
use crate::db;
use crate::db::revisions::StoredRevision;
use crate::db::rollouts::RolloutRow;
use crate::error::Error;
use crate::intents::revisions;

const POINTER: &str = "/policy/after";
/// The code of a rollout before with another image or stack.
pub(super) const OTHER_SOFTWARE: &str = "other_software";

/// Checks the rollout before: another pool, and the same image and stack.
///
/// # Errors
/// 422 `not_found` for an unknown rollout, and for a pool outside the actor's read scope; `same_pool`;
/// [`OTHER_SOFTWARE`].
pub(super) async fn check(
    conn: &mut PgConnection,
    actor: &Actor,
    pool: ObjectId,
    target: &Revision,
    policy: &RolloutPolicy,
) -> Result<Option<RolloutRow>, Error> {
    let Some(name) = &policy.after else {
        return Ok(None);
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
    let tried = db::revisions::find(conn, before.pool, before.number).await?;
    match has_software_of(tried.as_ref(), target) {
        true => Ok(Some(before)),
        false => {
            let detail = format!(
                "{name} brings another image or stack: revision {} of {}.",
                before.number, before.pool_name
            );
            Err(Error::unprocessable(POINTER, OTHER_SOFTWARE, detail))
        }
    }
}

fn has_software_of(stored: Option<&StoredRevision>, target: &Revision) -> bool {
    let revision = stored.and_then(|stored| revisions::parse(stored).ok());
    revision.is_some_and(|revision| revision.has_software_of(target))
}

/// Checks the rollout before, again: done, with a node on the revision, and the present revision of its
/// pool has the same software, so it was not taken back.
///
/// # Errors
/// As [`check`]; 409 `not_promoted`.
pub(super) async fn allow_start(
    conn: &mut PgConnection,
    actor: &Actor,
    row: &RolloutRow,
) -> Result<(), Error> {
    if row.policy.after.is_none() {
        return Ok(());
    }
    let stored = revisions::find_named(conn, row.pool, row.number).await?;
    let target = revisions::parse_installable(&stored)?;
    let Some(before) = check(conn, actor, row.pool, &target, &row.policy).await? else {
        return Ok(());
    };
    let refuse = |detail: String| Err(Error::conflict("not_promoted", detail));
    let RolloutRow {
        name,
        state,
        pool_name,
        ..
    } = &before;
    if *state != RolloutState::Done {
        let after = &row.name;
        return refuse(format!(
            "{name} is {state}; it must be done before {after}."
        ));
    }
    let marks = db::rollout_nodes::count_marks(conn, before.id).await?;
    let is_done = |(mark, count): &(String, u32)| mark == Mark::Done.as_str() && *count > 0;
    if !marks.iter().any(is_done) {
        return refuse(format!(
            "{name} is done without a node that runs the revision."
        ));
    }
    let present = db::revisions::find_present(conn, before.pool).await?;
    if !has_software_of(present.as_ref(), &target) {
        return refuse(format!(
            "The pool {pool_name} has left the revision of {name}."
        ));
    }
    for open in db::rollouts::list_open(conn).await? {
        let open = super::find(conn, &open.to_string()).await?;
        if open.pool == before.pool {
            let (other, state) = (&open.name, open.state);
            return refuse(format!(
                "{other} is {state}: the pool {pool_name} moves on."
            ));
        }
    }
    Ok(())
}
