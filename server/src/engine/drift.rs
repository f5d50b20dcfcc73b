//! A node that differs from its stack, told when that begins, when it becomes another number of items, and when it is mended: what nobody asked to look at
//! must not wait until somebody does.

use jiff::Timestamp;
use muster_core::stacks::{ConvergeReport, ItemOutcome};
use serde_json::json;
use sqlx::PgConnection;

use crate::db;
use crate::db::events::NewEvent;
use crate::db::jobs::CurrentJob;
use crate::error::Error;

/// Items that an event names; its node's page has all.
const NAMED: usize = 5;

/// Stores the number of different items, and writes an event where the number changed.
///
/// # Errors
/// When the database fails.
pub(super) async fn record_items(
    conn: &mut PgConnection,
    job: &CurrentJob,
    report: &ConvergeReport,
    now: Timestamp,
) -> Result<(), Error> {
    let differs = report
        .items
        .iter()
        .filter(|item| item.outcome == ItemOutcome::Differs);
    let items: Vec<&str> = differs.map(|item| item.item.as_str()).collect();
    let count = i32::try_from(items.len()).unwrap_or(i32::MAX);
    let (name, before) = db::drift::set_items(conn, job.node, count).await?;
    let (kind, summary) = match (before.unwrap_or(0), count) {
        (before, now) if before == now => return Ok(()),
        (_, 0) => (
            "drift.resolved",
            format!("{name} is as its stack says again"),
        ),
        (_, 1) => (
            "drift.found",
            format!("{name} differs from its stack: {}", items[0]),
        ),
        (_, many) => {
            let named = items[..items.len().min(NAMED)].join(", ");
            let more = if items.len() > NAMED { ", …" } else { "" };
            (
                "drift.found",
                format!("{name} differs from its stack in {many} items: {named}{more}"),
            )
        }
    };
    let detail = json!({ "severity": "warning", "items": count, "named": items.iter().take(NAMED).collect::<Vec<_>>() });
    let detail = if count == 0 {
        json!({ "items": 0 })
    } else {
        detail
    };
    let event = NewEvent::node(now, "muster", kind, job.node, summary).under(job.operation);
    db::events::insert(conn, event.with(detail)).await
}
