//! Nodes and claims inside an object keep the object in its place: the agents, the addresses and
//! the scheduler of the place serve the nodes.

use sqlx::PgConnection;

use crate::db;
use crate::db::objects::{ObjectRow, Residents};
use crate::error::Error;

/// Rejects another value of a member with the place, while nodes or claims are in the object.
/// `advice` says how to empty the object. A write may add the member to an unreadable former spec.
/// A rack or subnet may follow nodes that are in the new site already. The references of the new
/// spec are written already.
///
/// # Errors
/// 409 with the number of nodes or claims; when the database fails.
pub(super) async fn keep_place(
    conn: &mut PgConnection,
    before: Option<&ObjectRow>,
    row: &ObjectRow,
    member: &str,
    advice: &str,
) -> Result<(), Error> {
    let Some(place) = before.and_then(|before| before.spec[member].as_str()) else {
        return Ok(());
    };
    if row.spec[member] == place {
        return Ok(());
    }
    // A new claim holds the lock of its pool, and a new node the lock of its rack or subnet. A write
    // of a pool locks the pool before the cluster. Postgres ends one of two writes that wait for
    // each other, and the caller sends the write again.
    for pool in db::objects::list_referring_pools(conn, row.id).await? {
        db::objects::find_for_update(conn, &pool.kind, &pool.name).await?;
    }
    let residents = db::objects::count_residents(conn, row.id).await?;
    let Some(count) = describe_residents(residents) else {
        return Ok(());
    };
    let ObjectRow { kind, name, .. } = row;
    let detail = format!(
        "{kind} {name} has {count}, so its {member} stays {place}: {advice}, or declare another {kind}."
    );
    Err(Error::conflict("in_use", detail))
}

/// The number of claims or nodes in words, `None` for an empty object.
fn describe_residents(Residents { nodes, claims }: Residents) -> Option<String> {
    match (claims, nodes) {
        (0, 0) => None,
        (0, 1) => Some("1 node".to_owned()),
        (0, nodes) => Some(format!("{nodes} nodes")),
        (1, _) => Some("1 open claim".to_owned()),
        (claims, _) => Some(format!("{claims} open claims")),
    }
}
