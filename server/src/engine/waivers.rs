//! Waivers during the evaluation of gates: the waivers in force for a node now, and the event for a
//! used waiver. Waiver data reported by a node is ignored.

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

/// Returns the waived gates of a node, each with the end of the waiver. A waived gate does not
/// block later stages.
///
/// # Errors
///
/// When the database fails.
pub(super) async fn gates(
    conn: &mut PgConnection,
    node: NodeId,
    now: Timestamp,
) -> Result<BTreeMap<String, Timestamp>, Error> {
    let mut active = db::waivers::list_active(conn, node, now).await?;
    // When several waivers cover one gate, the latest end applies.
    active.sort_by_key(|waiver| waiver.until);
    Ok(active
        .into_iter()
        .map(|waiver| (waiver.gate, waiver.until))
        .collect())
}

/// Adds the waiver in force to each result without a pass.
///
/// # Errors
///
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

/// Updates results evaluated before and used again for a later step. A waiver ended in the meantime
/// is removed. A result without a waiver stays unchanged.
///
/// # Errors
///
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

/// Returns the waiver in force for a result. `None` for a passed result.
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

/// Emits an event for each gate that would block without a waiver.
///
/// # Errors
///
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
            "gate {} ends as {} and is waived until {}: {} (requested by {}, approved by {})",
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
