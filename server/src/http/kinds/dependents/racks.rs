//! Racks: the rack unit of each node stays a unit of the rack.

use std::collections::BTreeMap;

use sqlx::PgConnection;

use super::refusal;
use crate::auth::Actor;
use crate::db;
use crate::db::objects::ObjectRow;
use crate::error::Error;

/// Rejects a lower number of units than the place of a node. A node already above the former number
/// does not count.
///
/// # Errors
/// 409 naming the nodes; when the database fails.
pub(in crate::http::kinds) async fn keep_units(
    conn: &mut PgConnection,
    actor: &Actor,
    before: &ObjectRow,
    row: &ObjectRow,
) -> Result<(), Error> {
    let units = |row: &ObjectRow| {
        row.spec["units"]
            .as_u64()
            .and_then(|units| i32::try_from(units).ok())
    };
    let Some(new) = units(row) else { return Ok(()) };
    let former = units(before).unwrap_or(i32::MAX);
    let mut broken = BTreeMap::new();
    for placed in db::dependents::list_above_unit(conn, row.id, new).await? {
        if placed.unit <= former {
            broken.insert(placed.node, format!("unit {}", placed.unit));
        }
    }
    let rule = format!("Rack {} with {new} units has no place for", row.name);
    let advice = "Move each node with `muster node move` first.";
    refusal::refuse(conn, actor, &broken, &rule, advice).await
}
