//! The decision of a reconcile pass. The lifecycle decides from a snapshot. A question with a lock
//! on other rows is asked only when the decision depends on the answer. Then the lifecycle decides
//! again.

use jiff::Timestamp;
use muster_core::lifecycle::decide;
use muster_core::lifecycle::decision::Decision;
use muster_core::lifecycle::snapshot::{Snapshot, StepStatus};
use muster_core::lifecycle::state::Action;
use muster_core::lifecycle::steps::Step;
use muster_core::lifecycle::wait::{Wait, WaitReason};
use sqlx::PgConnection;

use super::caution::OLDER;
use super::{disruption, recoveries, snapshot, work};
use crate::db;
use crate::db::lifecycle::EngineNode;
use crate::db::stays::StayStep;
use crate::error::Error;

/// Returns the lifecycle's decision within the rack's power, the disruption budget, the limits of
/// recoveries and caution mode.
///
/// # Errors
///
/// When the database fails.
pub(super) async fn decide_node(
    conn: &mut PgConnection,
    node: &EngineNode,
    stay: &[StayStep],
    now: Timestamp,
) -> Result<Decision, Error> {
    let mut snapshot = snapshot::load(conn, node, stay, now).await?;
    let mut decision = decide(&snapshot, now);
    if needs_power(node, &decision) {
        // The rack is locked from here on: two nodes cannot reserve the same watts.
        snapshot.power = db::power::find_share(conn, node).await?;
        decision = decide(&snapshot, now);
    }
    if needs_room(node, &decision) {
        // The pool's accounts are locked from here on: two nodes cannot take the same slot.
        snapshot.room = disruption::find_room(conn, node, now).await?;
        decision = decide(&snapshot, now);
    }
    if disruption::needs_slot(node, &decision) {
        snapshot.no_slot = disruption::find_obstacle(conn, node, now).await?;
        if snapshot.no_slot.is_some() {
            decision = decide(&snapshot, now);
        }
    }
    if let Some(hold) = recoveries::find_hold(conn, node, &decision, now).await? {
        snapshot.hold = Some(hold.clone());
        let wanted = std::mem::replace(&mut decision, decide(&snapshot, now));
        recoveries::record_held_back(conn, node, &wanted, &hold, &decision, now).await?;
    }
    match find_caution(conn, node, &snapshot, &decision).await? {
        Some(wait) => Ok(Decision::Wait(wait)),
        None => Ok(decision),
    }
}

/// Returns whether the decision switches power on without a reservation of the rack's power.
fn needs_power(node: &EngineNode, decision: &Decision) -> bool {
    match decision {
        Decision::Start(step) | Decision::Retry(step, _) => {
            step.powers_on() && node.power_reserved_w == 0
        }
        Decision::Wait(_)
        | Decision::Advance(_)
        | Decision::Cancel(_)
        | Decision::Granted(_)
        | Decision::Refused(_) => false,
    }
}

/// Returns whether the decision holds back a node's jobs for a sweep.
fn needs_room(node: &EngineNode, decision: &Decision) -> bool {
    let (Decision::Start(Step::Hold) | Decision::Retry(Step::Hold, _)) = decision else {
        return false;
    };
    node.claim.is_some() && node.action == Some(Action::Sweep)
}

/// Returns the wait of caution mode, when the node's next step needs a permit.
async fn find_caution(
    conn: &mut PgConnection,
    node: &EngineNode,
    snapshot: &Snapshot,
    decision: &Decision,
) -> Result<Option<Wait>, Error> {
    let next = match decision {
        Decision::Start(step) | Decision::Retry(step, _) => Some(*step),
        // A queued step. In caution mode agents do not lease the step's job.
        Decision::Wait(_) => snapshot
            .active()
            .filter(|view| view.status == StepStatus::Queued)
            .map(|view| view.step),
        Decision::Advance(_)
        | Decision::Cancel(_)
        | Decision::Granted(_)
        | Decision::Refused(_) => None,
    };
    let Some(step) = next.filter(|step| work::permit_kind(*step).is_some()) else {
        return Ok(None);
    };
    let caution = db::cautions::find_for_node(conn, node.id).await?;
    Ok(caution.map(|_| Wait {
        reason: WaitReason::Caution,
        condition: format!("caution mode: {OLDER}"),
        owner: "an administrator".into(),
        next_action: format!("{} after `muster caution confirm`", step.title()),
        until: None,
    }))
}
