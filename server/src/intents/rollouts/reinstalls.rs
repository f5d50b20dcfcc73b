//! Reinstalls by a rollout. The plan lists the nodes, the digest fixes the list, and a person confirms
//! the digest with the start. Beyond an hourly limit of the person or of the pool, the plan and the
//! start need two persons.

use muster_api::plans::ReleaseLimit;
use muster_core::effects::Effect;
use muster_core::ids::NodeId;
use muster_core::rollout::{Allow, RolloutPolicy};
use sqlx::PgConnection;

use super::fleet::Loaded;
use crate::app::App;
use crate::auth::Actor;
use crate::auth::access::Named;
use crate::db;
use crate::db::rollouts::RolloutRow;
use crate::error::Error;
use crate::intents::approvals::limits::{self, LimitedPool};

/// Requires the right to reinstall, for a policy that permits reinstalls.
///
/// # Errors
/// 403 without the right.
pub(super) async fn need_right(
    conn: &mut PgConnection,
    actor: &Actor,
    policy: &RolloutPolicy,
    pool: Named<'_>,
) -> Result<(), Error> {
    match policy.allow {
        Allow::Reinstall => actor.need(conn, "node.reinstall", pool).await,
        Allow::InPlace | Allow::Reboot => Ok(()),
    }
}

/// Keeps the nodes to be reinstalled by the plan.
///
/// # Errors
/// When the database fails.
pub(super) async fn keep(
    conn: &mut PgConnection,
    row: &RolloutRow,
    loaded: &Loaded,
) -> Result<(), Error> {
    let nodes = list(row, loaded);
    db::rollout_nodes::plan_reinstalls(conn, row.id, &nodes).await?;
    Ok(())
}

/// Allows the start of a plan with reinstalls. The reinstalls of other rollouts started within the hour
/// count.
///
/// # Errors
/// 403 without the right to reinstall, or to approve where a second person is needed; 409
/// `second_person` for the planner of more reinstalls than an hourly limit permits.
pub(super) async fn allow_start(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    row: &RolloutRow,
    loaded: &Loaded,
) -> Result<(), Error> {
    let count = u32::try_from(list(row, loaded).len()).unwrap_or(u32::MAX);
    if count == 0 {
        return Ok(());
    }
    let key = &row.pool.to_string();
    let named = Named { kind: "pool", key };
    actor.need(conn, "node.reinstall", named).await?;
    let spec = limits::load_pool(conn, row.pool).await?;
    let of = LimitedPool {
        id: row.pool,
        name: &row.pool_name,
        spec: &spec,
    };
    let limits = limits::list(conn, app, actor, Some(of)).await?;
    let since = app.clock.now() - limits::HOUR;
    let listed = db::rollout_nodes::count_reinstalls(conn, &actor.person, row.pool, since).await?;
    let left = |limit: &ReleaseLimit| {
        let listed = match limit.pool {
            Some(_) => listed.of_pool,
            None => listed.by_person,
        };
        limit
            .left
            .saturating_sub(u32::try_from(listed).unwrap_or(u32::MAX))
    };
    let Some(limit) = limits.iter().find(|limit| left(limit) < count) else {
        return Ok(());
    };
    if row.person.as_ref().is_some_and(|by| *by != actor.person) {
        return actor.need(conn, "approval.decide", named).await;
    }
    let detail = format!(
        "The plan reinstalls {count} nodes. The limit of {} has {} left in this hour, of {} per hour: another person with the rights node.reinstall and approval.decide must start the plan, until {:.0}.",
        limit.of,
        left(limit),
        limit.per_hour,
        row.expires_at
    );
    Err(Error::conflict("second_person", detail))
}

/// Lists the nodes to be reinstalled by the plan.
fn list(row: &RolloutRow, loaded: &Loaded) -> Vec<NodeId> {
    let nodes = loaded.fleet.nodes.iter();
    let reinstalls = nodes
        .filter(|node| node.effect >= Effect::Reinstall && row.policy.allow.permits(node.effect));
    reinstalls.map(|node| node.member.node).collect()
}
