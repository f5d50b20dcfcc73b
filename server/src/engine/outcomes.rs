//! Applies the outcomes reported by agents: ends the job, records the observations of the node. The
//! lifecycle decides the consequences.

use jiff::Timestamp;
use muster_core::gates::{GateResult, RESULT_BYTES, RUN_BYTES, cut_evidence};
use muster_core::ids::{AgentId, JobId, NodeId, ObjectId, PermitId};
use muster_core::lifecycle::steps::Step;
use muster_core::wire::calls::ReportOutcome;
use muster_core::wire::node::{Failure, FailureCode, WipedDisk};
use muster_core::wire::result::{JobResult, Outcome};
use serde_json::json;
use sqlx::PgConnection;

use super::caution::{self, Witness};
use super::{observations, waivers};
use crate::db;
use crate::db::events::NewEvent;
use crate::db::jobs::{CurrentJob, Ending};
use crate::error::Error;

/// The longest error text in characters: the text is shown in one place on a page.
const LONGEST_MESSAGE: usize = 2000;

/// The agent behind a report.
#[derive(Clone, Copy, Debug)]
pub struct Reporter<'name> {
    pub agent: AgentId,
    pub site: ObjectId,
    pub name: &'name str,
}

/// The effect of an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The outcome is committed, and the node is due.
    Committed(NodeId),
    /// Another attempt is current: the outcome is kept as an event, without any change.
    Stale,
}

/// Commits an outcome under its attempt. The caller commits a stale outcome too, to keep the event.
///
/// # Errors
/// 422 when the result is not one of the job's step; otherwise when the database fails.
pub async fn apply(
    conn: &mut PgConnection,
    reporter: Reporter<'_>,
    job: JobId,
    report: &ReportOutcome,
    now: Timestamp,
) -> Result<Applied, Error> {
    let current = db::jobs::lock_current(conn, job, reporter.agent, report.attempt).await?;
    let Some(current) = current else {
        record_stale(conn, reporter, job, report, now).await?;
        return Ok(Applied::Stale);
    };
    if let Outcome::Succeeded { result } = &report.outcome
        && !belongs_to_step(current.step, result)
    {
        return Err(Error::unprocessable(
            "/outcome/result",
            "other_step",
            format!("The job's step is {}.", current.step),
        ));
    }
    notice_older_database(conn, reporter, &current, &report.outcome, now).await?;
    let outcome = within_size(verify(conn, &current, &report.outcome, now).await?);
    let (ending, kind, sentence) = match &outcome {
        Outcome::Succeeded { result } => (
            Ending::Succeeded(result),
            "step.succeeded",
            "done".to_owned(),
        ),
        Outcome::Failed { failure } => (
            Ending::Failed(failure),
            "step.failed",
            failure.message.clone(),
        ),
        Outcome::Cancelled => (Ending::Cancelled, "step.cancelled", "stopped".to_owned()),
    };
    db::jobs::finish(conn, job, &ending, now).await?;
    if let Outcome::Succeeded { result } = &outcome {
        observations::record(conn, &current, result, now).await?;
    }
    let title = current.step.title();
    let event = NewEvent::node(
        now,
        format!("agent:{}", reporter.name),
        kind,
        current.node,
        format!("{title}: {sentence}"),
    );
    let mut detail = json!({ "step": current.step, "job": job, "attempt": report.attempt, "round": current.round });
    if db::ssh_certificates::is_endless(conn, job, report.attempt).await? {
        detail["ssh_certificate_ends"] = json!("never");
    }
    db::events::insert(conn, event.under(current.operation).with(detail)).await?;
    note_certificate(conn, reporter, &current, &outcome, now).await?;
    Ok(Applied::Committed(current.node))
}

/// Emits an event when the BMC of a node shows another certificate than the pinned one. The agent
/// has sent no password, and a person decides.
async fn note_certificate(
    conn: &mut PgConnection,
    reporter: Reporter<'_>,
    job: &CurrentJob,
    outcome: &Outcome,
    now: Timestamp,
) -> Result<(), Error> {
    let Outcome::Failed { failure } = outcome else {
        return Ok(());
    };
    if failure.code != FailureCode::BmcCertificateChanged {
        return Ok(());
    }
    let actor = format!("agent:{}", reporter.name);
    let summary = cut_text(&failure.message);
    let event = NewEvent::node(now, actor, "bmc.certificate_changed", job.node, summary);
    db::events::insert(conn, event.under(job.operation)).await
}

/// Opens caution mode for the site when a node has worked for a later epoch. The current attempt is
/// behind the node only after a restore of the database. Only steps of the live image count,
/// because the live image is Muster's own. The owner of an installed system could otherwise stop
/// the site. A node stores no event and no seal: the caution rests on the word of node and agent,
/// and never extends to the fleet.
async fn notice_older_database(
    conn: &mut PgConnection,
    reporter: Reporter<'_>,
    job: &CurrentJob,
    outcome: &Outcome,
    now: Timestamp,
) -> Result<(), Error> {
    if let Outcome::Failed { failure } = outcome
        && failure.code == FailureCode::StaleOnNode
        && matches!(job.step, Step::WriteImage | Step::Wipe)
    {
        let because = format!(
            "Node {} has worked for a later epoch: {}.",
            job.node,
            cut_text(&failure.message)
        );
        let Reporter { agent, site, .. } = reporter;
        let witness = Witness::of_node(job.node, site, agent, &because);
        caution::notice(conn, &witness, now).await?;
    }
    Ok(())
}

/// Returns the outcome to store. A wipe succeeds only when every permitted disk was read back. Gate
/// results get waivers, and an error text is cut.
async fn verify(
    conn: &mut PgConnection,
    job: &CurrentJob,
    outcome: &Outcome,
    now: Timestamp,
) -> Result<Outcome, Error> {
    match (outcome, job.permit) {
        (
            Outcome::Succeeded {
                result: JobResult::Wiped { disks },
            },
            Some(permit),
        ) => {
            let missing = find_unverified(conn, permit, disks).await?;
            Ok(missing.map_or_else(|| outcome.clone(), wrap_failure))
        }
        (
            Outcome::Succeeded {
                result:
                    JobResult::Gated {
                        results,
                        fingerprint,
                    },
            },
            _,
        ) => {
            let judged = explain_gates(conn, job, results, now).await?;
            Ok(match judged {
                Ok(results) => Outcome::Succeeded {
                    result: JobResult::Gated {
                        results,
                        fingerprint: *fingerprint,
                    },
                },
                Err(gone) => wrap_failure(gone),
            })
        }
        (Outcome::Failed { failure }, _) => {
            let doubted =
                failure.code == FailureCode::SshAuthRefused && doubt_login(conn, job).await?;
            Ok(wrap_failure(Failure {
                code: failure.code.shortened(60),
                message: failure.message.chars().take(LONGEST_MESSAGE).collect(),
                retryable: failure.retryable || doubted,
            }))
        }
        (Outcome::Succeeded { .. } | Outcome::Cancelled, _) => Ok(outcome.clone()),
    }
}

/// Notes a refused login: the clock of the node may have changed since the report, so the next
/// certificates have no end. During a rotation the node may have lost the new SSH user CA, so the
/// former CA signs again. Returns whether another attempt has another certificate.
async fn doubt_login(conn: &mut PgConnection, job: &CurrentJob) -> Result<bool, Error> {
    db::node_clocks::forget(conn, job.node).await?;
    let withdrawn = db::taken_keys::withdraw_ca(conn, job.node).await?;
    Ok(db::ssh_certificates::mark_refused(conn, job.id).await? || withdrawn)
}

/// Replaces a result that is too large by a failure. The failure is final: the same machine would
/// send the same result again.
fn within_size(outcome: Outcome) -> Outcome {
    let size = match &outcome {
        Outcome::Succeeded { result } => {
            serde_json::to_vec(result).map_or(usize::MAX, |document| document.len())
        }
        Outcome::Failed { .. } | Outcome::Cancelled => 0,
    };
    if size <= RESULT_BYTES {
        return outcome;
    }
    wrap_failure(Failure {
        code: FailureCode::ResultTooLarge,
        message: format!(
            "the result of the step has {size} bytes, and the server stores at most {RESULT_BYTES}: \
             run `muster-node inventory` or the suite on the node, and look for the text that is too long"
        ),
        retryable: false,
    })
}

fn wrap_failure(failure: Failure) -> Outcome {
    Outcome::Failed { failure }
}

/// Returns the failure of a wipe when a permitted disk was not read back.
async fn find_unverified(
    conn: &mut PgConnection,
    permit: PermitId,
    disks: &[WipedDisk],
) -> Result<Option<Failure>, Error> {
    let mut left = db::permits::find_disks(conn, permit).await?;
    left.retain(|serial| {
        !disks
            .iter()
            .any(|disk| disk.serial == *serial && disk.verified_blocks > 0)
    });
    Ok((!left.is_empty()).then(|| Failure {
        code: FailureCode::WipeIncomplete,
        message: format!("no block was read back of {}", left.join(", ")),
        retryable: false,
    }))
}

/// Adds the suite's explanations and the present waivers to gate results. Returns a failure when
/// the suite was removed.
async fn explain_gates(
    conn: &mut PgConnection,
    job: &CurrentJob,
    results: &[GateResult],
    now: Timestamp,
) -> Result<Result<Vec<GateResult>, Failure>, Error> {
    let (suite, _) = db::specs::suite_of(conn, job.node, job.step, job.operation).await?;
    let Some(suite) = suite else {
        let gone = "the suite was removed during the run, so the results have no limits";
        return Ok(Err(Failure {
            code: FailureCode::SuiteGone,
            message: gone.to_owned(),
            retryable: false,
        }));
    };
    let mut results: Vec<GateResult> = results
        .iter()
        .map(|result| result.clone().explained(&suite))
        .collect();
    waivers::stamp(conn, job.node, &mut results, now).await?;
    cut_evidence(&mut results, RUN_BYTES);
    Ok(Ok(results))
}

/// Emits an event for the outcome of a replaced attempt. The outcome is never applied, and the
/// event is the only trace.
async fn record_stale(
    conn: &mut PgConnection,
    reporter: Reporter<'_>,
    job: JobId,
    report: &ReportOutcome,
    now: Timestamp,
) -> Result<(), Error> {
    let Some((node, operation)) = db::jobs::find(conn, job, reporter.agent).await? else {
        return Ok(());
    };
    let sentence = match &report.outcome {
        Outcome::Succeeded { .. } => "done".to_owned(),
        Outcome::Failed { failure } => cut_text(&failure.message),
        Outcome::Cancelled => "stopped".to_owned(),
    };
    let summary = format!(
        "attempt {} was replaced and reported later: {sentence}",
        report.attempt
    );
    let actor = format!("agent:{}", reporter.name);
    let event = NewEvent::node(now, actor, "step.stale", node, summary).under(operation);
    let detail = json!({ "job": job, "attempt": report.attempt });
    db::events::insert(conn, event.with(detail)).await
}

fn cut_text(text: &str) -> String {
    text.chars().take(300).collect()
}

/// Returns whether a result belongs to a step.
fn belongs_to_step(step: Step, result: &JobResult) -> bool {
    match result {
        JobResult::Live { .. } => step == Step::BootLive,
        JobResult::Facts { .. } => step == Step::Inventory,
        JobResult::PoweredOff => step == Step::PowerOff,
        JobResult::PoweredOn => matches!(step, Step::PowerOn | Step::PowerCycle),
        JobResult::BmcRotated => step == Step::RotateBmc,
        JobResult::ImageWritten(_) => step == Step::WriteImage,
        JobResult::Booted { .. } => {
            matches!(step, Step::BootDisk | Step::Reboot | Step::RebootTest)
        }
        JobResult::Converged(_) => matches!(step, Step::Converge | Step::Recheck | Step::Drift),
        JobResult::Gated { .. } => {
            matches!(step, Step::Gates | Step::GatesAfterReboot | Step::Sweep)
        }
        JobResult::Admitted { .. } => step == Step::Admit,
        JobResult::Paired { .. } => step == Step::Pair,
        JobResult::Drained => matches!(step, Step::Drain | Step::Hold),
        JobResult::Removed => step == Step::Remove,
        JobResult::Wiped { .. } => step == Step::Wipe,
        JobResult::Adopted { .. } => step == Step::Adopt,
        JobResult::Firmware { .. } => matches!(step, Step::Firmware | Step::FirmwareLook),
    }
}
