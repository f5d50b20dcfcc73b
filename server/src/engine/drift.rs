//! Drift of a node from the stack. Events are emitted when drift begins, when the number of
//! differing items changes, and when drift ends. An operator therefore need not open the node's
//! page to notice drift.

use jiff::Timestamp;
use muster_core::stacks::{ConvergeReport, ItemOutcome};
use serde_json::json;
use sqlx::PgConnection;

use super::firmware;
use crate::db;
use crate::db::events::NewEvent;
use crate::db::jobs::CurrentJob;
use crate::error::Error;

/// Most items named in an event. The node's page lists all items.
const NAMED: usize = 5;

/// Stores the number of differing items, and the running revision of a node without a difference.
/// Emits an event when the number has changed.
///
/// # Errors
///
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
    let same = items.is_empty() && report.reboot_for.is_empty();
    match same && !firmware::differs(conn, job.node).await? {
        true => db::claims::record_running(conn, job.node).await?,
        false => db::claims::record_differing(conn, job.node).await?,
    }
    let (name, before) = db::drift::set_items(conn, job.node, count).await?;
    let (kind, summary) = match (before.unwrap_or(0), count) {
        (before, now) if before == now => return Ok(()),
        (_, 0) => ("drift.resolved", format!("{name} matches its stack again")),
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
