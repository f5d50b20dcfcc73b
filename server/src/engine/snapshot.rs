//! The lifecycle's view of a node: the node, the stay, and further rows where the state asks for
//! them.

use jiff::Timestamp;
use muster_core::facts::Facts;
use muster_core::gates::GateResult;
use muster_core::lifecycle::snapshot::Pairing;
use muster_core::lifecycle::snapshot::{PowerShare, Room, Snapshot};
use muster_core::lifecycle::state::{Action, State};
use muster_core::lifecycle::steps::Step;
use muster_core::stacks::ConvergeReport;
use muster_core::wire::result::JobResult;
use sqlx::PgConnection;

use super::{pairs, remains, waivers};
use crate::db;
use crate::db::lifecycle::EngineNode;
use crate::db::stays::StayStep;
use crate::error::Error;

/// Builds the snapshot. Power, room, slot and hold need locks; the caller adds all four where the
/// decision depends on the answer.
///
/// # Errors
/// When the database fails.
pub(super) async fn load(
    conn: &mut PgConnection,
    node: &EngineNode,
    stay: &[StayStep],
    now: Timestamp,
) -> Result<Snapshot, Error> {
    let gates = find_gates(stay, Step::Gates);
    let gates_after_reboot = find_gates(stay, Step::GatesAfterReboot);
    Ok(Snapshot {
        name: node.name.clone(),
        state: node.state,
        entered_at: node.entered_at,
        purpose: node.purpose,
        failed_phase: node.failed_phase,
        reason: node.reason.clone(),
        action: node.action,
        action_reason: node.action_reason.clone(),
        claim: node.claim.map(|(_, state)| state),
        undo_until: node.undo_until,
        protected: node.protected,
        held: node.held,
        unsanitised: node.unsanitised,
        data_left: explain_data(conn, node).await?,
        until: node.maintenance_until,
        stop: node.stop,
        disputed_parts: list_disputed(conn, node).await?,
        returns_to_maker: node.state == State::Quarantined
            && db::recoveries::returns_to_maker(conn, node.id, node.entered_at).await?,
        in_cluster: node.in_cluster,
        live: node.live,
        installed: node.installed,
        off: node.off,
        power_person: node.power_person.clone(),
        sets_firmware: asks_for_firmware(node) && db::firmware::is_wanted(conn, node.id).await?,
        needs_inventory: needs_inventory(conn, node).await?,
        power: PowerShare {
            reserved: node.power_reserved_w > 0,
            ..PowerShare::default()
        },
        steps: stay.iter().map(|step| step.view.clone()).collect(),
        profile: node.profile.clone(),
        facts: find_facts(stay),
        converged: find_converged(stay),
        suite: node.suite.clone(),
        gates: still_waived(conn, node, gates, now).await?,
        gates_after_reboot: still_waived(conn, node, gates_after_reboot, now).await?,
        scheduler: node.scheduler.clone(),
        sweep: node.sweep.clone(),
        swept: find_gates(stay, Step::Sweep),
        recovery: node.recovery.as_ref().map(|(_, recovery)| recovery.clone()),
        policy: node.policy.clone(),
        hold: None,
        held_back: node.held_back,
        room: Room::Enough,
        waits_for_unit: waits_for_unit(conn, node).await?,
        no_slot: None,
        pairing: find_pairing(conn, node, now).await?,
    })
}

fn find_result(stay: &[StayStep], wanted: Step) -> Option<&JobResult> {
    stay.iter()
        .find(|step| step.view.step == wanted)
        .and_then(|step| step.result.as_ref())
}

fn find_gates(stay: &[StayStep], step: Step) -> Vec<GateResult> {
    if let Some(JobResult::Gated { results, .. }) = find_result(stay, step) {
        results.clone()
    } else {
        Vec::new()
    }
}

/// The newer report is used: a recheck follows a converge.
fn find_converged(stay: &[StayStep]) -> Option<ConvergeReport> {
    let result = find_result(stay, Step::Recheck).or_else(|| find_result(stay, Step::Converge))?;
    if let JobResult::Converged(report) = result {
        Some(report.clone())
    } else {
        None
    }
}

fn find_facts(stay: &[StayStep]) -> Option<Facts> {
    if let Some(JobResult::Facts { facts }) = find_result(stay, Step::Inventory) {
        Some((**facts).clone())
    } else {
        None
    }
}

/// Disputed replacements of parts matter where the node is inspected or quarantined.
async fn list_disputed(conn: &mut PgConnection, node: &EngineNode) -> Result<Vec<String>, Error> {
    if matches!(node.state, State::Inspecting | State::Quarantined) {
        db::components::list_disputed(conn, node.id).await
    } else {
        Ok(Vec::new())
    }
}

/// The origin of data from a deleted record matters where the inspection leads to a reason.
async fn explain_data(conn: &mut PgConnection, node: &EngineNode) -> Result<Option<String>, Error> {
    let asks = node.unsanitised && node.claim.is_none() && node.state == State::Inspecting;
    match asks {
        true => remains::explain_data(conn, node.id).await,
        false => Ok(None),
    }
}

/// The links and disks of a machine matter where the image is written.
async fn needs_inventory(conn: &mut PgConnection, node: &EngineNode) -> Result<bool, Error> {
    Ok(node.state == State::Imaging
        && (db::networks::find_profile(conn, node.id).await?.is_some()
            || !db::facts::has_live(conn, node.id).await?))
}

/// The other nodes of a rollout's unit matter where the node is drained.
async fn waits_for_unit(conn: &mut PgConnection, node: &EngineNode) -> Result<bool, Error> {
    match node.operation {
        Some(operation) if node.state == State::Draining => {
            db::rollout_waits::waits_for_unit(conn, node.id, operation).await
        }
        Some(_) | None => Ok(false),
    }
}

/// The request of a run of pairs, for a node in service.
async fn find_pairing(
    conn: &mut PgConnection,
    node: &EngineNode,
    now: Timestamp,
) -> Result<Option<Pairing>, Error> {
    if node.state == State::InService {
        pairs::find_pairing(conn, node, now).await
    } else {
        Ok(None)
    }
}

/// Gate results with the present waivers. On the way into service a reboot lies between a run and
/// the decision, so waivers may have ended.
async fn still_waived(
    conn: &mut PgConnection,
    node: &EngineNode,
    mut results: Vec<GateResult>,
    now: Timestamp,
) -> Result<Vec<GateResult>, Error> {
    if node.state == State::Validating {
        waivers::stamp_again(conn, node.id, &mut results, now).await?;
    }
    Ok(results)
}

/// Returns whether the stack's firmware matters for the decision.
fn asks_for_firmware(node: &EngineNode) -> bool {
    let compares = node.state == State::InService && node.action == Some(Action::CheckDrift);
    compares || matches!(node.state, State::Imaging | State::Installing)
}
