//! The work of a reconcile pass: a separate job for each step, and the permit of the step.

use jiff::{SignedDuration, Timestamp};
use muster_core::ids::{JobId, OperationId, PermitId};
use muster_core::lifecycle::snapshot::StepStatus;
use muster_core::lifecycle::state::{Action, State};
use muster_core::lifecycle::steps::Step;
use muster_core::lifecycle::wait::{Wait, WaitReason};
use muster_core::permits::PermitKind;
use serde_json::json;
use sqlx::PgConnection;

use super::LOOK_AGAIN;
use crate::db;
use crate::db::events::NewEvent;
use crate::db::jobs::NewJob;
use crate::db::lifecycle::{Begun, EngineNode};
use crate::db::permits::NewPermit;
use crate::db::stays::StayStep;
use crate::error::Error;

/// Seconds by which a permit outlives the timeout of its step. A permit is redeemed at the start of
/// an attempt.
const PERMIT_GRACE_S: i64 = 60;

/// Begins a step: queues a separate job, with the permit required by the step.
pub(super) async fn start(
    conn: &mut PgConnection,
    node: &EngineNode,
    step: Step,
    now: Timestamp,
) -> Result<(), Error> {
    let operation = ensure_operation(conn, node, step, now).await?;
    let begun = Begun {
        operation,
        reserve_w: count_reserve_watts(node, step),
        joins_cluster: step == Step::Admit,
        destroys: step.destroys(),
        holds_back: holds_back(node, step),
    };
    db::lifecycle::begin(
        conn,
        node.id,
        &begun,
        &build_wait(step),
        now + LOOK_AGAIN,
        now,
    )
    .await?;
    if step == Step::Converge || begun.destroys {
        db::claims::forget_running(conn, node.id, begun.destroys).await?;
    }
    let id = queue(conn, node, step, operation, 1, now).await?;
    let started = NewEvent::node(
        now,
        "muster",
        "step.queued",
        node.id,
        format!("{}: {}", node.name, step.title()),
    );
    db::events::insert(
        conn,
        started
            .under(Some(operation))
            .with(json!({ "step": step, "job": id })),
    )
    .await
}

/// Queues a separate job, with the permit required by the step.
async fn queue(
    conn: &mut PgConnection,
    node: &EngineNode,
    step: Step,
    operation: OperationId,
    round: i32,
    now: Timestamp,
) -> Result<JobId, Error> {
    let permit = permit_id(step);
    let job = NewJob {
        id: JobId::new(),
        node: node.id,
        site: node.site,
        operation,
        visit: node.visit,
        step,
        round,
        epoch: node.epoch,
        nonce: generate_nonce(),
        permit,
    };
    db::jobs::insert(conn, &job, now).await?;
    record_pairs_job(conn, node, step, job.id).await?;
    mint(conn, node, step, job.id, operation, permit, now).await?;
    tracing::info!(%operation, job = %job.id, %step, round, "job queued");
    Ok(job.id)
}

/// Stores the job of a step for the node's run of pairs.
async fn record_pairs_job(
    conn: &mut PgConnection,
    node: &EngineNode,
    step: Step,
    job: JobId,
) -> Result<(), Error> {
    if node.state == State::InService && matches!(step, Step::Hold | Step::Pair | Step::Admit) {
        db::pairs::ends::set_job(conn, node.id, step, job).await
    } else {
        Ok(())
    }
}

/// Returns the watts of the rack's budget to reserve for a step. `None` when the step needs no
/// power, or the node already holds a reservation.
fn count_reserve_watts(node: &EngineNode, step: Step) -> Option<i32> {
    let watts = node
        .profile
        .as_ref()
        .map_or(0, |profile| profile.power_max_w);
    (step.powers_on() && node.power_reserved_w == 0)
        .then(|| i32::try_from(watts).unwrap_or(i32::MAX))
}

/// Returns whether the scheduler must start no job on the node because of a sweep. A run of pairs
/// keeps track of the run's own nodes.
fn holds_back(node: &EngineNode, step: Step) -> bool {
    step == Step::Hold && node.action == Some(Action::Sweep)
}

/// Begins another round of a step. After a successful round a new job is queued, because a machine
/// answers a repeated job with the stored result.
pub(super) async fn retry(
    conn: &mut PgConnection,
    node: &EngineNode,
    job: &StayStep,
    step: Step,
    not_before: Timestamp,
    now: Timestamp,
) -> Result<(), Error> {
    let not_before = not_before.max(now);
    let operation = ensure_operation(conn, node, step, now).await?;
    let begun = Begun {
        operation,
        reserve_w: count_reserve_watts(node, step),
        joins_cluster: false,
        destroys: false,
        holds_back: holds_back(node, step),
    };
    db::lifecycle::begin(
        conn,
        node.id,
        &begun,
        &build_wait(step),
        now + LOOK_AGAIN,
        now,
    )
    .await?;
    let ended_well = job.view.status == StepStatus::Succeeded;
    // A new request starts to count rounds from 1.
    let round = if ended_well && !job.view.current {
        1
    } else {
        job.view.round + 1
    };
    let id = if ended_well {
        db::jobs::supersede(conn, job.id).await?;
        queue(conn, node, step, operation, round, not_before).await?
    } else {
        let permit = permit_id(step);
        db::jobs::retry(
            conn,
            job.id,
            &generate_nonce(),
            permit,
            operation,
            not_before,
        )
        .await?;
        mint(conn, node, step, job.id, operation, permit, not_before).await?;
        record_pairs_job(conn, node, step, job.id).await?;
        tracing::info!(%operation, job = %job.id, %step, round, "job queued again");
        job.id
    };
    let summary = format!("{}: {} again, round {round}", node.name, step.title());
    let event =
        NewEvent::node(now, "muster", "step.retried", node.id, summary).under(Some(operation));
    db::events::insert(
        conn,
        event.with(json!({ "step": step, "job": id, "round": round })),
    )
    .await
}

fn build_wait(step: Step) -> Wait {
    Wait {
        reason: WaitReason::Agent,
        condition: format!("the site's agent to take the job: {}", step.title()),
        owner: "agent".into(),
        next_action: step.title().into(),
        until: None,
    }
}

/// Returns the operation of this work, and marks the step as under way. Without an open operation
/// of a person, Muster opens an operation.
async fn ensure_operation(
    conn: &mut PgConnection,
    node: &EngineNode,
    step: Step,
    now: Timestamp,
) -> Result<OperationId, Error> {
    if let Some(operation) = node.operation.filter(|_| node.operation_open) {
        db::operations::run(conn, operation, step.title(), now).await?;
        return Ok(operation);
    }
    db::operations::open(conn, node, step, now).await
}

/// Returns the kind of the permit required by a step. `None` for a step without a permit.
pub(super) fn permit_kind(step: Step) -> Option<PermitKind> {
    match step {
        Step::BootLive
        | Step::BootDisk
        | Step::Reboot
        | Step::RebootTest
        | Step::PowerOff
        | Step::PowerOn
        | Step::PowerCycle
        | Step::Firmware => Some(PermitKind::Power),
        Step::WriteImage => Some(PermitKind::Image),
        Step::Wipe => Some(PermitKind::Wipe),
        Step::Inventory
        | Step::Converge
        | Step::Recheck
        | Step::Gates
        | Step::GatesAfterReboot
        | Step::Admit
        | Step::Drain
        | Step::Remove
        | Step::Adopt
        | Step::Drift
        | Step::FirmwareLook
        | Step::Sweep
        | Step::RotateBmc
        | Step::Hold
        | Step::Pair => None,
    }
}

fn permit_id(step: Step) -> Option<PermitId> {
    permit_kind(step).map(|_| PermitId::new())
}

fn generate_nonce() -> String {
    hex::encode(rand::random::<[u8; 16]>())
}

/// Mints the permit required by a step, for exactly this node, operation, epoch and these disks.
async fn mint(
    conn: &mut PgConnection,
    node: &EngineNode,
    step: Step,
    job: JobId,
    operation: OperationId,
    permit: Option<PermitId>,
    from: Timestamp,
) -> Result<(), Error> {
    let (Some(id), Some(kind)) = (permit, permit_kind(step)) else {
        return Ok(());
    };
    let facts = match kind {
        PermitKind::Power => None,
        PermitKind::Image | PermitKind::Wipe => db::facts::latest_live(conn, node.id).await?,
    };
    let disk_serials = match (kind, &node.profile, facts) {
        (PermitKind::Power, _, _) => None,
        (PermitKind::Image, Some(profile), Some(facts)) => {
            // Without a disk that matches the rule, the permit names no disk and every write is
            // rejected.
            Some(
                profile
                    .root_disk(&facts)
                    .map(|serial| vec![serial.to_owned()])
                    .unwrap_or_default(),
            )
        }
        (PermitKind::Wipe, _, Some(facts)) => {
            let mut serials: Vec<String> = facts
                .disks
                .into_iter()
                .filter_map(|disk| disk.serial)
                .collect();
            serials.sort();
            Some(serials)
        }
        (PermitKind::Image | PermitKind::Wipe, _, _) => Some(Vec::new()),
    };
    let lasts = i64::try_from(step.timeout_s()).unwrap_or(i64::MAX / 2) + PERMIT_GRACE_S;
    let permit = NewPermit {
        id,
        kind,
        node: node.id,
        operation,
        claim: node.claim.map(|(claim, _)| claim),
        job,
        epoch: node.epoch,
        disk_serials,
        expires_at: from + SignedDuration::from_secs(lasts),
    };
    db::permits::insert(conn, &permit).await
}
