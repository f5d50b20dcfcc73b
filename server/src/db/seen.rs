//! The history for readers limited to a part of the fleet, by read scope or by filter. No index
//! covers the limits, so the events are searched in ranges. Each answer reports the position
//! reached: a page may be empty while later pages have events.

use muster_core::ids::{EventId, NodeId, ObjectId, OperationId};
use sqlx::PgConnection;

use super::events::{self, EventFilter, EventRow};
use super::filter::{Order, Stretch, event_seqs};
use crate::access::Sight;
use crate::error::Error;

/// Number of events searched in one range.
const STRETCH: i64 = 10_000;
/// Maximum number of ranges searched for one answer.
const LOOKS: usize = 100;

/// The events found, and the position reached.
#[derive(Clone, Debug, Default)]
pub struct Found {
    pub rows: Vec<EventRow>,
    /// Ascending: every event up to the position was searched. Descending: every event from the
    /// position on was searched.
    pub at: i64,
}

/// Lists events like [`events::list_on`], within a reader's read scope.
///
/// # Errors
/// [`Error::CursorExpired`] when `after` is beyond the last event.
pub async fn list_on(
    conn: &mut PgConnection,
    filter: &EventFilter,
    sight: &Sight,
    after: i64,
    limit: i64,
) -> Result<Found, Error> {
    if sight.is_empty() && filter.topics.is_empty() {
        let rows = events::list_on(conn, filter, after, limit).await?;
        let at = rows.last().map_or(after, |row| row.seq);
        return Ok(Found { rows, at });
    }
    if after > events::find_last(conn).await? {
        return Err(Error::CursorExpired);
    }
    let (seqs, at) = search_range(conn, filter, sight, after, limit).await?;
    Ok(Found {
        rows: list_rows(conn, &seqs).await?,
        at,
    })
}

async fn search_range(
    conn: &mut PgConnection,
    filter: &EventFilter,
    sight: &Sight,
    after: i64,
    limit: i64,
) -> Result<(Vec<i64>, i64), Error> {
    let whole = events::find_complete_end(conn).await?;
    let (mut at, mut seqs, mut left) = (after, Vec::new(), limit);
    for _ in 0..LOOKS {
        if at >= whole || left <= 0 {
            break;
        }
        let till = range_end(filter, at.saturating_add(STRETCH), whole).min(whole);
        let range = Stretch { above: at, till };
        let found = event_seqs(conn, filter, sight, range, Order::Up, left).await?;
        left -= i64::try_from(found.len()).unwrap_or(left);
        at = found.last().filter(|_| left <= 0).copied().unwrap_or(till);
        seqs.extend(found);
    }
    Ok((seqs, at))
}

/// Lists events before `before` within a reader's read scope, newest first.
pub async fn list_before(
    conn: &mut PgConnection,
    filter: &EventFilter,
    sight: &Sight,
    before: i64,
    limit: i64,
) -> Result<Found, Error> {
    let mut at = before.min(events::find_last(conn).await?.saturating_add(1));
    let (mut seqs, mut left) = (Vec::new(), limit);
    for _ in 0..LOOKS {
        if at <= 1 || left <= 0 {
            break;
        }
        let above = range_end(filter, at - 1 - STRETCH, 0).max(0);
        let range = Stretch {
            above,
            till: at - 1,
        };
        let found = event_seqs(conn, filter, sight, range, Order::Down, left).await?;
        left -= i64::try_from(found.len()).unwrap_or(left);
        at = found
            .last()
            .filter(|_| left <= 0)
            .copied()
            .unwrap_or(above + 1);
        seqs.extend(found);
    }
    let mut rows = list_rows(conn, &seqs).await?;
    rows.reverse();
    Ok(Found { rows, at })
}

/// Returns the end of one range. A range covers everything if an index serves the filter.
fn range_end(filter: &EventFilter, bounded: i64, whole: i64) -> i64 {
    if filter.node.is_some() || filter.object.is_some() {
        whole
    } else {
        bounded
    }
}

/// Returns events by number, oldest first.
async fn list_rows(conn: &mut PgConnection, seqs: &[i64]) -> Result<Vec<EventRow>, Error> {
    Ok(sqlx::query_as!(
        EventRow,
        r#"SELECT seq, id AS "id: EventId", at, actor, kind, node_id AS "node: NodeId", object_id AS "object: ObjectId",
                  operation_id AS "operation: OperationId", request_id, summary, detail
           FROM events WHERE seq = ANY ($1) ORDER BY seq"#,
        seqs,
    )
    .fetch_all(conn)
    .await?)
}
