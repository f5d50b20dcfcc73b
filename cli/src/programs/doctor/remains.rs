//! Remains: deleted nodes whose disks may hold data, with the identifiers of machine and disks.

use muster_server::db;
use muster_server::error::Error;

use super::{Found, Host, database};

/// Most remains in a report.
const MOST: i64 = 50;

pub(super) async fn check(host: &Host) -> Vec<Found> {
    let pool = match database::connect(host).await {
        Ok(pool) => pool,
        // The database check reports the cause.
        Err(_) => {
            return vec![Found::unknown(
                "the database cannot be looked into",
                "see the check `database`",
            )];
        }
    };
    let listed = async {
        let mut conn = pool.acquire().await?;
        db::remains::list_waiting(&mut conn, MOST).await
    };
    let listed: Result<Vec<db::remains::WaitingRow>, Error> = listed.await;
    let Ok(rows) = listed else {
        return vec![Found::unknown(
            "the remains of deleted nodes cannot be read",
            "see the checks `database` and `schema`",
        )];
    };
    if rows.is_empty() {
        return vec![Found::ok("no deleted node has left data on disks")];
    }
    rows.into_iter()
        .map(|row| {
            Found::warn(
                format!(
                    "the disks of {}, gone since {}, may hold data: {}",
                    row.node_name,
                    row.left_at.strftime("%F"),
                    row.identifiers
                ),
                "register and wipe the machine; a destroyed disk needs no act",
            )
        })
        .collect()
}
