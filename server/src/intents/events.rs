//! An event as returned to readers.

use muster_api::events::Event;

use crate::db::events::EventRow;

/// Renders a row of the event log for the API.
pub fn render_event(row: EventRow) -> Event {
    Event {
        seq: row.seq,
        id: row.id.0,
        at: row.at,
        actor: row.actor,
        kind: row.kind,
        node: row.node.map(|id| id.0),
        object: row.object.map(|id| id.0),
        operation: row.operation.map(|id| id.0),
        request_id: row.request_id,
        summary: row.summary,
        detail: row.detail,
    }
}
