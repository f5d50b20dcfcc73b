//! The revoked SSH certificates in an order: the complete list of the node, until its installed
//! system has the list.

use muster_core::wire::login::RevokedKeys;
use sqlx::PgConnection;

use super::sources::Sources;
use crate::db;
use crate::db::ssh_certificates::SentList;

/// The most serials in a list. Older certificates of the node stay unlisted and count as accepted.
const MOST: i64 = 4000;

/// Returns the list for a node, and records the order. `None`: no system of the node needs a list.
pub(super) async fn find(
    conn: &mut PgConnection,
    s: &Sources<'_>,
) -> anyhow::Result<Option<RevokedKeys>> {
    let (installed, live) = (s.node.os_host_key.clone(), s.node.live_host_key.clone());
    if installed.is_none() && live.is_none() {
        return Ok(None);
    }
    let node = s.row.node;
    let revoked = db::ssh_certificates::list_revoked(conn, node, s.now, MOST).await?;
    // A live image has no list after its boot, and lives for a few jobs: each job has the list.
    if live.is_none() && revoked.iter().all(|certificate| certificate.held) || revoked.is_empty() {
        return Ok(None);
    }
    let serials: Vec<i64> = revoked
        .iter()
        .map(|certificate| certificate.serial)
        .collect();
    let (job, attempt) = (s.row.id, s.row.attempt);
    let list = SentList {
        node,
        job,
        attempt,
        serials: &serials,
    };
    db::ssh_certificates::note_sent(conn, list).await?;
    Ok(Some(RevokedKeys {
        installed,
        live,
        serials: serials.into_iter().map(i64::unsigned_abs).collect(),
    }))
}
