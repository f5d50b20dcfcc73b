//! The clock of an agent's machine. Muster decides by the server's clock only: leases, permits and
//! due work do not depend on the agent's clock. A wrong clock is reported because logs and TLS
//! certificates on the agent's machine depend on the clock.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use sqlx::PgConnection;

use crate::db;
use crate::db::agents::AgentRow;
use crate::db::events::NewEvent;
use crate::engine::node_clocks::{describe_offset, is_wrong};
use crate::error::Error;

/// Smaller changes are network delay, in milliseconds.
const NEWS_MS: u64 = 1000;

/// Records the offset of an agent's clock from the server's, and emits an event when the clock
/// becomes wrong or right.
pub(super) async fn record_offset(
    conn: &mut PgConnection,
    row: &AgentRow,
    theirs: Timestamp,
    now: Timestamp,
) -> Result<(), Error> {
    let offset = theirs.duration_since(now);
    let offset_ms = i64::try_from(offset.as_millis()).unwrap_or(i64::MAX);
    let before = row.clock_offset_ms;
    if before.is_some_and(|before| before.abs_diff(offset_ms) < NEWS_MS) {
        return Ok(());
    }
    let mut tx = sqlx::Connection::begin(conn).await?;
    let noted = db::agents::set_clock_offset(&mut tx, row.id, before, offset_ms).await?;
    let was_wrong = before.is_some_and(|before| is_wrong(SignedDuration::from_millis(before)));
    if noted && was_wrong != is_wrong(offset) {
        let (kind, said) = match is_wrong(offset) {
            true => (
                "agent.clock_wrong",
                format!("is {}; set it by NTP", describe_offset(offset)),
            ),
            false => ("agent.clock_restored", "is correct again".to_owned()),
        };
        let event = NewEvent::new(
            now,
            format!("agent:{}", row.name),
            kind,
            format!("the clock of the machine of agent {} {said}", row.name),
        )
        .about(row.site)
        .with(json!({ "agent": row.id, "offset_ms": offset_ms }));
        db::events::insert(&mut tx, event).await?;
    }
    Ok(tx.commit().await?)
}
