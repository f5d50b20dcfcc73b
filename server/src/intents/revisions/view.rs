//! Revisions of a pool as returned to readers.

use std::collections::BTreeMap;

use muster_api::revisions::{
    PoolRevision, RevisionDiff, RevisionDocuments, RevisionItem, RevisionNode,
};
use muster_core::effects::Effect;
use muster_core::ids::ObjectId;
use muster_core::revisions::Revision;
use sqlx::PgConnection;

use super::parse;
use crate::db;
use crate::db::objects::ObjectRow;
use crate::db::revisions::RevisionRow;
use crate::error::Error;

/// Number of revisions in a list.
const NEWEST: i64 = 100;
/// Most nodes of a diff.
const NODES: i64 = 10_000;

/// Lists the newest hundred revisions, without documents.
///
/// # Errors
/// When the database fails.
pub(crate) async fn list(
    conn: &mut PgConnection,
    pool: ObjectId,
) -> Result<Vec<PoolRevision>, Error> {
    let rows = db::revisions::list(conn, pool, None, NEWEST).await?;
    Ok(rows.into_iter().map(|row| render(row, None)).collect())
}

/// Loads one revision with its documents.
///
/// # Errors
/// 404 for an unknown revision; 409 `unreadable`.
pub(crate) async fn load(
    conn: &mut PgConnection,
    pool: ObjectId,
    number: i32,
) -> Result<PoolRevision, Error> {
    let row = db::revisions::list(conn, pool, Some(number), 1)
        .await?
        .pop();
    let row = row.ok_or_else(|| missing(number))?;
    let documents = find(conn, pool, number).await?;
    Ok(render(
        row,
        Some(RevisionDocuments {
            image: documents.image,
            stack: documents.stack,
            network_profile: documents.network_profile,
        }),
    ))
}

/// Compares two revisions of a pool: the items, and the effect on each node. `from`: the present
/// revision if absent.
///
/// # Errors
/// 404 for an unknown revision; 409 `unreadable`.
pub(crate) async fn compare(
    conn: &mut PgConnection,
    pool: &ObjectRow,
    from: Option<i32>,
    to: i32,
) -> Result<RevisionDiff, Error> {
    let (present, _) = db::revisions::find_numbers(conn, pool.id).await?;
    let from = from.or(present).unwrap_or(to);
    let before = find(conn, pool.id, from).await?;
    let after = find(conn, pool.id, to).await?;
    let mut effects: BTreeMap<i32, Effect> = BTreeMap::new();
    effects.insert(from, before.effect_to(&after));
    let mut nodes = Vec::new();
    for row in db::revisions::list_claims(conn, pool.id, NODES).await? {
        if let Some(running) = row.running
            && !effects.contains_key(&running)
        {
            // An unreadable revision leaves the effect of its nodes unknown.
            let own = db::revisions::find(conn, pool.id, running).await?;
            if let Some(own) = own.and_then(|own| parse(&own).ok()) {
                effects.insert(running, own.effect_to(&after));
            }
        }
        let effect = row.running.and_then(|running| effects.get(&running));
        nodes.push(RevisionNode {
            node: row.node,
            claim: row.claim,
            assigned: row.assigned,
            running: row.running,
            effect: effect.map(ToString::to_string),
        });
    }
    let items = before.list_differences(&after).into_iter();
    Ok(RevisionDiff {
        pool: pool.name.clone(),
        from,
        to,
        effect: before.effect_to(&after).to_string(),
        items: items
            .map(|one| RevisionItem {
                item: one.item,
                from: one.before,
                to: one.after,
                class: one.class,
            })
            .collect(),
        nodes,
    })
}

async fn find(conn: &mut PgConnection, pool: ObjectId, number: i32) -> Result<Revision, Error> {
    let found = db::revisions::find(conn, pool, number).await?;
    parse(&found.ok_or_else(|| missing(number))?)
}

fn missing(number: i32) -> Error {
    Error::NotFound(format!("revision {number} of the pool"))
}

fn render(row: RevisionRow, documents: Option<RevisionDocuments>) -> PoolRevision {
    PoolRevision {
        number: row.number,
        parent: row.parent,
        present: row.present,
        image: row.image,
        stack: row.stack,
        stack_version: row.stack_version,
        network_profile: row.network_profile,
        actor: row.actor,
        created_at: row.created_at,
        assigned: row.assigned,
        running: row.running,
        documents,
    }
}
