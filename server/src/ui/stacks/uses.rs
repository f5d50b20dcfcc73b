//! Pools with a stack, and the nodes assigned to the stack. Pools and nodes outside the reader's
//! scope are neither named nor counted.

use std::collections::HashMap;

use muster_core::ids::ObjectId;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::auth::Actor;
use crate::db;
use crate::db::filter;
use crate::error::Error;
use crate::ui::format::{self, member};

/// Most pools searched for stacks.
const POOLS: i64 = 200;

/// The pools of the reader, with the stacks of the pools.
pub(super) struct Uses {
    pub rows: Vec<Use>,
    pub named: Vec<Named>,
    /// Whether the reader has more pools than were searched.
    pub more: bool,
}

/// A revision of a pool: the newest, or a revision assigned to nodes.
pub(super) struct Use {
    pub pool: String,
    pub number: i32,
    pub stack: String,
    pub version: String,
    pub newest: bool,
    /// Number of nodes with the revision assigned.
    pub nodes: i64,
}

/// The stack named by the document of a pool.
pub(super) struct Named {
    pub pool: String,
    pub stack: String,
}

/// Loads the stacks of all pools within the reader's scope.
pub(super) async fn load_uses(conn: &mut PgConnection, actor: &Actor) -> Result<Uses, Error> {
    let sight = actor.sight();
    let mut pools = db::objects::list(conn, "pool", &sight, POOLS + 1).await?;
    let most = usize::try_from(POOLS).unwrap_or(usize::MAX);
    let more = pools.len() > most;
    pools.truncate(most);
    let nodes = filter::list_visible(conn, &filter::NODES, &sight).await?;
    let ids: Vec<Uuid> = pools.iter().map(|pool| pool.id.0).collect();
    let found = db::pages::stacks::list_uses(conn, &ids, nodes.as_deref()).await?;
    let names: HashMap<ObjectId, &str> = pools
        .iter()
        .map(|pool| (pool.id, pool.name.as_str()))
        .collect();
    let mut rows: Vec<Use> = found
        .into_iter()
        .filter_map(|row| {
            Some(Use {
                pool: (*names.get(&row.pool)?).to_owned(),
                number: row.number,
                version: format::cut(&row.version, 60),
                stack: row.stack,
                newest: row.newest,
                nodes: row.nodes,
            })
        })
        .collect();
    // A stable sort: the revisions of a pool stay newest first.
    rows.sort_by(|a, b| a.pool.cmp(&b.pool));
    let named = pools.iter().map(|pool| Named {
        pool: pool.name.clone(),
        stack: member(&pool.spec, "stack").to_owned(),
    });
    Ok(Uses {
        named: named.collect(),
        rows,
        more,
    })
}
