//! The clocks of installed systems, by the reports of muster-node. The clock decides when the SSH
//! certificates of orders end.

use jiff::{SignedDuration, Timestamp};
use muster_core::clock::WRONG;
use muster_core::ids::NodeId;
use serde_json::json;
use sqlx::PgConnection;

use super::outcomes::Reporter;
use crate::db;
use crate::db::events::NewEvent;
use crate::error::Error;

/// Stores the offset of a node's clock, and emits an event when the clock becomes wrong or right.
///
/// # Errors
/// When the database fails.
pub async fn record(
    conn: &mut PgConnection,
    reporter: Reporter<'_>,
    node: NodeId,
    offset_ms: i64,
    now: Timestamp,
) -> Result<(), Error> {
    let before = db::node_clocks::find(conn, node).await?;
    if !db::node_clocks::record(conn, node, offset_ms, now).await? {
        return Ok(());
    }
    let offset = SignedDuration::from_millis(offset_ms);
    let was_wrong =
        before.is_some_and(|before| is_wrong(SignedDuration::from_millis(before.offset_ms)));
    if was_wrong == is_wrong(offset) {
        return Ok(());
    }
    let (kind, summary) = match was_wrong {
        false => (
            "node.clock_wrong",
            format!(
                "the clock is {}; set it by NTP: sshd checks SSH certificates by the clock",
                describe_offset(offset)
            ),
        ),
        true => (
            "node.clock_restored",
            "the clock is correct again".to_owned(),
        ),
    };
    let actor = format!("agent:{}", reporter.name);
    let event = NewEvent::node(now, actor, kind, node, summary);
    db::events::insert(conn, event.with(json!({ "offset_ms": offset_ms }))).await
}

/// Returns whether a machine's clock is wrong by its offset from the server's clock.
pub fn is_wrong(offset: SignedDuration) -> bool {
    offset.abs() > WRONG
}

/// Returns the offset in words: `3600 s ahead`.
pub fn describe_offset(offset: SignedDuration) -> String {
    let way = if offset.is_negative() {
        "behind"
    } else {
        "ahead"
    };
    format!("{} s {way}", offset.abs().as_secs())
}
