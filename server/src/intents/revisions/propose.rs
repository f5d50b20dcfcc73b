//! A revision for each change of a pool's documents.

use jiff::Timestamp;
use muster_api::pools::OnChange;
use muster_core::ids::ObjectId;
use serde_json::json;
use sqlx::PgConnection;

use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::error::Error;

/// Adds a revision to each of the pools whose documents differ from the newest revision. A pool
/// without claims takes the revision at once, because no node depends on the present one. The rollout
/// of a pool with `on_change: start` becomes due.
///
/// # Errors
/// When the database fails.
pub(crate) async fn propose(
    conn: &mut PgConnection,
    actor: &Actor,
    pools: &[ObjectId],
    now: Timestamp,
) -> Result<(), Error> {
    let mut pools = pools.to_vec();
    // Every caller locks several pools in the order of their ids, and all before the first event:
    // the order of events is a lock as well.
    pools.sort_by_key(|pool| pool.0);
    for pool in &pools {
        db::revisions::lock(conn, *pool).await?;
    }
    for pool in pools {
        let on_change = db::revisions::find_on_change(conn, pool).await?;
        if on_change != OnChange::Start {
            db::due_rollouts::remove(conn, pool).await?;
        }
        let added = db::revisions::add_if_changed(conn, pool, &actor.name, now).await?;
        let Some(added) = added else { continue };
        // The first revision comes with the pool.
        if added.number == 1 {
            db::revisions::set_present(conn, pool, added.id).await?;
            continue;
        }
        let free = added.is_whole && !db::revisions::has_claims(conn, pool).await?;
        if free {
            db::due_rollouts::remove(conn, pool).await?;
            db::revisions::set_present(conn, pool, added.id).await?;
        } else if on_change == OnChange::Start {
            db::due_rollouts::set(conn, pool, added.id, now).await?;
        }
        record(conn, actor, pool, added.number, free, now).await?;
    }
    Ok(())
}

async fn record(
    conn: &mut PgConnection,
    actor: &Actor,
    pool: ObjectId,
    number: i32,
    free: bool,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(row) = db::objects::find_by_id(conn, pool).await? else {
        return Ok(());
    };
    let name = row.name;
    let (kind, summary) = match free {
        true => (
            "pool.revision_promoted",
            format!(
                "new claims of pool {name} are assigned revision {number}: the pool has no claims"
            ),
        ),
        false => (
            "pool.revision_proposed",
            format!("revision {number} of pool {name} is proposed; no node changes yet"),
        ),
    };
    let detail = json!({ "pool": name, "revision": number });
    let event = actor.event(now, kind, None, summary).with(detail);
    db::events::insert(conn, event.about(pool)).await
}

/// Adds the revisions missed by a server of the version before, which writes none: of pools, and of
/// claims. One transaction per pool.
///
/// # Errors
/// When the database fails.
pub async fn catch_up(app: &App) -> Result<(), Error> {
    let pools = db::revisions::list_pools(&mut *app.pool.acquire().await?).await?;
    for pool in pools {
        let mut tx = app.pool.begin().await?;
        propose(&mut tx, &Actor::muster(), &[pool], app.clock.now()).await?;
        db::claims::pin_assigned(&mut tx, pool).await?;
        tx.commit().await?;
    }
    Ok(())
}
