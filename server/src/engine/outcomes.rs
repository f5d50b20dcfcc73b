//! Applies what an agent reports: ends the job, records what was observed, makes the node due. The lifecycle decides what it means.

use jiff::Timestamp;
use muster_core::gates::{Suite, SuiteVerdict, judge};
use muster_core::ids::{AgentId, JobId};
use muster_core::wire::agent::{JobResult, Outcome, ReportOutcome};
use serde_json::json;
use sqlx::PgConnection;

use crate::db;
use crate::db::events::NewEvent;
use crate::db::jobs::{CurrentJob, Ending};
use crate::error::Error;

/// Commits an outcome under its attempt. A stale one is kept as an event and refused.
///
/// # Errors
/// [`Error::Conflict`] `stale_attempt`; otherwise when the database fails.
pub async fn apply(
    conn: &mut PgConnection,
    agent: (AgentId, &str),
    job: JobId,
    report: &ReportOutcome,
    now: Timestamp,
) -> Result<(), Error> {
    let stale = || Error::conflict("stale_attempt", "Another attempt of this job is current.");
    let current = db::jobs::lock_current(conn, job, agent.0, report.attempt).await?.ok_or_else(stale)?;
    let (ending, kind, told) = match &report.outcome {
        Outcome::Succeeded { result } => (Ending::Succeeded(result), "step.succeeded", "done".to_owned()),
        Outcome::Failed { failure } => (Ending::Failed(failure), "step.failed", failure.message.clone()),
        Outcome::Cancelled => (Ending::Cancelled, "step.cancelled", "stopped".to_owned()),
    };
    db::jobs::finish(conn, job, &ending, now).await?;
    if let Outcome::Succeeded { result } = &report.outcome {
        observe(conn, &current, result, now).await?;
    }
    let title = current.step.parse::<muster_core::lifecycle::steps::Step>().map_or(current.step.as_str(), |step| step.title());
    let event = NewEvent::node(now, format!("agent:{}", agent.1), kind, current.node, format!("{title}: {told}"));
    let detail = json!({ "step": current.step, "job": job, "attempt": report.attempt, "round": current.round });
    db::events::insert(conn, event.under(current.operation).with(detail)).await?;
    db::lifecycle::make_due(conn, current.node, now).await
}

/// Keeps what a step saw of its node.
async fn observe(conn: &mut PgConnection, job: &CurrentJob, result: &JobResult, now: Timestamp) -> Result<(), Error> {
    match result {
        JobResult::Live { host_key, boot_id, bmc_certificate, .. } => {
            let certificate = bmc_certificate.map(|digest| digest.to_string());
            db::specs::set_live(conn, job.node, host_key, boot_id, certificate.as_deref()).await
        }
        JobResult::Facts { facts } => db::facts::insert(conn, job.node, "live", facts, now).await,
        JobResult::ImageWritten(written) => {
            db::specs::set_installed(conn, job.node, &written.host_key, &written.disk_serial).await
        }
        JobResult::Booted { boot_id } => db::specs::set_os_boot(conn, job.node, boot_id).await,
        JobResult::Gated { results, fingerprint } => {
            let suite = db::specs::suite_of(conn, job.node).await?;
            let wanted = wanted(&suite, &job.step);
            let verdict = match judge(&suite, &wanted, results) {
                SuiteVerdict::Pass => "pass",
                SuiteVerdict::Fail => "fail",
                SuiteVerdict::Unknown => "unknown",
            };
            let name = format!("{} {}", suite.name, suite.version);
            let run = (name.as_str(), verdict, fingerprint.to_string());
            db::gates::insert(conn, job.node, job.id, (run.0, run.1, &run.2), results, now).await?;
            Ok(())
        }
        JobResult::PoweredOff
        | JobResult::Converged(_)
        | JobResult::Admitted { .. }
        | JobResult::Drained
        | JobResult::Removed
        | JobResult::Wiped { .. } => Ok(()),
    }
}

/// The gates a step was to run: all of the suite, or those a reboot may break.
pub(super) fn wanted(suite: &Suite, step: &str) -> Vec<String> {
    match step {
        "gates_after_reboot" => {
            suite.gates.iter().filter(|gate| gate.after_reboot).map(|gate| gate.id.clone()).collect()
        }
        _ => Vec::new(),
    }
}
