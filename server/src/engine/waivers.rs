//! Waivers as gates are judged: which count for a node at this moment, and what is told where one was used. Whatever a node says of waivers itself
//! counts for nothing.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_core::gates::{GateResult, Mode, Suite, Verdict, Waived, blocks};
use muster_core::ids::NodeId;
use muster_core::profiles::HardwareProfile;
use serde_json::json;
use sqlx::PgConnection;

use crate::db;
use crate::db::events::NewEvent;
use crate::db::jobs::CurrentJob;
use crate::db::waivers::ActiveWaiver;
use crate::error::Error;

/// The gates that are waived on a node, and until when: they keep no later stage from being run.
///
/// # Errors
/// When the database fails.
pub(super) async fn gates(
    conn: &mut PgConnection,
    node: NodeId,
    now: Timestamp,
) -> Result<BTreeMap<String, Timestamp>, Error> {
    let mut active = db::waivers::list_active(conn, node, now).await?;
    // Of several for one gate, the one that ends last counts.
    active.sort_by_key(|waiver| waiver.until);
    Ok(active
        .into_iter()
        .map(|waiver| (waiver.gate, waiver.until))
        .collect())
}

/// Results as they count: each that does not pass, with the waiver that counts in its place.
///
/// # Errors
/// When the database fails.
pub(super) async fn stamp(
    conn: &mut PgConnection,
    node: NodeId,
    results: &mut [GateResult],
    now: Timestamp,
) -> Result<(), Error> {
    let active = db::waivers::list_active(conn, node, now).await?;
    for result in results {
        result.waived = counting(&active, result);
    }
    Ok(())
}

/// The same of results that were judged before and count for what comes next: a waiver that was ended since counts no more. None is added to what was told
/// without one.
///
/// # Errors
/// When the database fails.
pub(super) async fn stamp_again(
    conn: &mut PgConnection,
    node: NodeId,
    results: &mut [GateResult],
    now: Timestamp,
) -> Result<(), Error> {
    if results.iter().all(|result| result.waived.is_none()) {
        return Ok(());
    }
    let active = db::waivers::list_active(conn, node, now).await?;
    for result in results.iter_mut().filter(|result| result.waived.is_some()) {
        result.waived = counting(&active, result);
    }
    Ok(())
}

/// The waiver that counts in place of a result, where it does not pass.
fn counting(active: &[ActiveWaiver], result: &GateResult) -> Option<Waived> {
    let waiver = active
        .iter()
        .find(|waiver| waiver.gate == result.gate && result.verdict != Verdict::Pass)?;
    Some(Waived {
        waiver: waiver.id,
        requested_by: waiver.requested_by.clone(),
        agreed_by: waiver.agreed_by.clone(),
        reason: waiver.reason.clone(),
        until: waiver.until,
    })
}

/// Writes an event for each gate that would block without a waiver.
///
/// # Errors
/// When the database fails.
pub(super) async fn record_use(
    conn: &mut PgConnection,
    job: &CurrentJob,
    suite: &Suite,
    profile: Option<&HardwareProfile>,
    results: &[GateResult],
    now: Timestamp,
) -> Result<(), Error> {
    for result in results {
        let mode = suite
            .gates
            .iter()
            .find(|gate| gate.id == result.gate)
            .map_or(Mode::Required, |gate| gate.mode(profile));
        let Some(waived) = result
            .waived
            .as_ref()
            .filter(|_| blocks(mode, result.verdict))
        else {
            continue;
        };
        let summary = format!(
            "gate {} ends as {} and is waived until {}: {} ({} asked, {} agreed)",
            result.gate,
            result.verdict.as_str(),
            waived.until.strftime("%F %H:%M UTC"),
            waived.reason,
            waived.requested_by,
            waived.agreed_by,
        );
        let event = NewEvent::node(now, "muster", "gate.waived", job.node, summary);
        let detail = json!({ "gate": result.gate, "verdict": result.verdict, "waiver": waived.waiver, "job": job.id });
        db::events::insert(conn, event.under(job.operation).with(detail)).await?;
    }
    Ok(())
}
