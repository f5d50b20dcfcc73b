//! Applies what an agent reports: ends the job, records what was observed, gives the node its turn. The lifecycle decides what it means.

use jiff::Timestamp;
use muster_core::gates::{Judged, Suite, judge};
use muster_core::ids::{AgentId, JobId, NodeId};
use muster_core::lifecycle::steps::Step;
use muster_core::parts;
use muster_core::wire::calls::ReportOutcome;
use muster_core::wire::node::Failure;
use muster_core::wire::result::{JobResult, Outcome};
use serde_json::json;
use sqlx::PgConnection;

use super::{cabling, drift, firmware, waivers};
use crate::db;
use crate::db::events::NewEvent;
use crate::db::jobs::{CurrentJob, Ending};
use crate::db::specs::SeenPower;
use crate::error::Error;

/// Characters of an error text that are kept: it is shown in one place on a page.
const LONGEST_MESSAGE: usize = 2000;

/// What the agent reports when muster-node has worked for a later epoch or attempt.
const STALE_ON_NODE: &str = "stale_on_node";

/// What became of an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// Its node is to have a turn.
    Committed(NodeId),
    /// Another attempt is current: it is kept as an event and changes nothing.
    Stale,
}

/// Commits an outcome under its attempt. The caller commits a stale one too: its event is worth keeping.
///
/// # Errors
/// 422 when the result is not one of the job's step; otherwise when the database fails.
pub async fn apply(
    conn: &mut PgConnection,
    agent: (AgentId, &str),
    job: JobId,
    report: &ReportOutcome,
    now: Timestamp,
) -> Result<Applied, Error> {
    let Some(current) = db::jobs::lock_current(conn, job, agent.0, report.attempt).await? else {
        keep_stale(conn, agent, job, report, now).await?;
        return Ok(Applied::Stale);
    };
    if let Outcome::Succeeded { result } = &report.outcome
        && !answers(&current.step, result)
    {
        return Err(Error::unprocessable(
            "/outcome/result",
            "other_step",
            format!("The job's step is {}.", current.step),
        ));
    }
    if let Outcome::Failed { failure } = &report.outcome
        && failure.code == STALE_ON_NODE
        && matches!(current.step.parse(), Ok(Step::WriteImage | Step::Wipe))
    {
        // Said by the live image, which is ours: whoever has an installed system could stop the whole fleet by it.
        // The current attempt of the current epoch cannot be behind its node, unless the database is.
        let because = format!(
            "A node says so of {}: {}.",
            current.node,
            short(&failure.message)
        );
        super::caution::notice(conn, &because, now).await?;
    }
    let outcome = settled(conn, &current, &report.outcome, now).await?;
    let (ending, kind, told) = match &outcome {
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
        observe(conn, &current, result, now).await?;
    }
    let title = current
        .step
        .parse::<Step>()
        .map_or(current.step.as_str(), |step| step.title());
    let event = NewEvent::node(
        now,
        format!("agent:{}", agent.1),
        kind,
        current.node,
        format!("{title}: {told}"),
    );
    let detail = json!({ "step": current.step, "job": job, "attempt": report.attempt, "round": current.round });
    db::events::insert(conn, event.under(current.operation).with(detail)).await?;
    Ok(Applied::Committed(current.node))
}

/// The outcome as it counts: a wipe is done when every disk it was permitted for was read back, and an error text has an end.
async fn settled(
    conn: &mut PgConnection,
    job: &CurrentJob,
    outcome: &Outcome,
    now: Timestamp,
) -> Result<Outcome, Error> {
    let failed = |code: &str, message: String, retryable| Outcome::Failed {
        failure: Failure {
            code: code.chars().take(60).collect(),
            message,
            retryable,
        },
    };
    match (outcome, job.permit) {
        (
            Outcome::Succeeded {
                result: JobResult::Wiped { disks },
            },
            Some(permit),
        ) => {
            let mut left = db::permits::find_disks(conn, permit).await?;
            left.retain(|serial| {
                !disks
                    .iter()
                    .any(|disk| disk.serial == *serial && disk.verified_blocks > 0)
            });
            match left.is_empty() {
                true => Ok(outcome.clone()),
                false => Ok(failed(
                    "wipe_incomplete",
                    format!("no block was read back of {}", left.join(", ")),
                    false,
                )),
            }
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
            let Some(suite) = db::specs::suite_of(conn, job.node, &job.step, job.operation)
                .await?
                .0
            else {
                let gone = "the suite was removed while its gates ran: nothing says what they are held against";
                return Ok(failed("suite_gone", gone.to_owned(), false));
            };
            let explained = results
                .iter()
                .map(|result| result.clone().explained(&suite));
            let (mut results, fingerprint): (Vec<_>, _) = (explained.collect(), *fingerprint);
            waivers::stamp(conn, job.node, &mut results, now).await?;
            Ok(Outcome::Succeeded {
                result: JobResult::Gated {
                    results,
                    fingerprint,
                },
            })
        }
        (Outcome::Failed { failure }, _) => Ok(failed(
            &failure.code,
            failure.message.chars().take(LONGEST_MESSAGE).collect(),
            failure.retryable,
        )),
        (Outcome::Succeeded { .. } | Outcome::Cancelled, _) => Ok(outcome.clone()),
    }
}

/// What an attempt says that is not current any more: never applied, and the one trace of what it may have done.
async fn keep_stale(
    conn: &mut PgConnection,
    (agent, name): (AgentId, &str),
    job: JobId,
    report: &ReportOutcome,
    now: Timestamp,
) -> Result<(), Error> {
    let Some((node, operation)) = db::jobs::find(conn, job, agent).await? else {
        return Ok(());
    };
    let told = match &report.outcome {
        Outcome::Succeeded { .. } => "done".to_owned(),
        Outcome::Failed { failure } => short(&failure.message),
        Outcome::Cancelled => "stopped".to_owned(),
    };
    let summary = format!(
        "attempt {} was replaced and said afterwards: {told}",
        report.attempt
    );
    let event = NewEvent::node(now, format!("agent:{name}"), "step.stale", node, summary);
    db::events::insert(
        conn,
        event
            .under(operation)
            .with(json!({ "job": job, "attempt": report.attempt })),
    )
    .await
}

fn short(text: &str) -> String {
    text.chars().take(300).collect()
}

/// Whether a result is one that a step can have.
fn answers(step: &str, result: &JobResult) -> bool {
    let Ok(step) = step.parse::<Step>() else {
        return false;
    };
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

/// Keeps what a step saw of its node.
async fn observe(
    conn: &mut PgConnection,
    job: &CurrentJob,
    result: &JobResult,
    now: Timestamp,
) -> Result<(), Error> {
    match result {
        JobResult::Live {
            host_key,
            boot_id,
            bmc_certificate,
            inventory,
            ..
        } => {
            db::specs::set_power(conn, job.node, SeenPower::On, now).await?;
            if let Some(inventory) = inventory {
                firmware::see(conn, job, inventory, now).await?;
            }
            let certificate = bmc_certificate.map(|digest| digest.to_string());
            db::specs::set_live(conn, job.node, host_key, boot_id, certificate.as_deref()).await
        }
        JobResult::Facts { facts } => {
            let before = db::facts::latest_live(conn, job.node).await?;
            db::facts::insert(conn, job.node, facts, now).await?;
            cabling::tell(conn, job.node, (before.as_ref(), facts), now).await?;
            db::components::see(conn, job.node, &parts::seen_in(facts), now).await
        }
        JobResult::ImageWritten(written) => {
            db::specs::set_installed(
                conn,
                job.node,
                &written.host_key,
                &written.disk_serial,
                job.epoch,
            )
            .await
        }
        JobResult::Firmware { inventory, changed } => {
            firmware::tell(conn, job, changed, now).await?;
            firmware::see(conn, job, inventory, now).await
        }
        JobResult::Adopted { host_key, boot_id } => {
            db::specs::set_adopted(conn, job.node, host_key, boot_id).await
        }
        JobResult::Booted { boot_id } => {
            db::specs::set_power(conn, job.node, SeenPower::On, now).await?;
            db::specs::set_os_boot(conn, job.node, boot_id).await
        }
        JobResult::PoweredOn => {
            db::specs::set_power(conn, job.node, SeenPower::On, now).await?;
            db::specs::forget_boot(conn, job.node).await
        }
        JobResult::BmcRotated => rotated(conn, job, now).await,
        JobResult::PoweredOff => {
            db::specs::set_power(conn, job.node, SeenPower::Off, now).await?;
            db::specs::forget_boot(conn, job.node).await
        }
        JobResult::Gated {
            results,
            fingerprint,
        } => {
            let (suite, profile) =
                db::specs::suite_of(conn, job.node, &job.step, job.operation).await?;
            let suite = suite.ok_or_else(|| {
                Error::internal(anyhow::anyhow!("gates of {} ran without a suite", job.node))
            })?;
            let wanted = wanted(&suite, &job.step);
            let by = Judged {
                suite: &suite,
                profile: profile.as_ref(),
                wanted: &wanted,
                now,
            };
            let name = format!("{} {}", suite.name, suite.version);
            let run = (
                name.as_str(),
                judge(&by, results).as_str(),
                fingerprint.to_string(),
            );
            waivers::tell(conn, job, (&suite, profile.as_ref()), results, now).await?;
            db::gates::insert(conn, job.node, job.id, (run.0, run.1, &run.2), results, now).await?;
            Ok(())
        }
        JobResult::Converged(report) => drift::tell(conn, job, report, now).await,
        // Pairs: their run takes it from the job.
        JobResult::Paired { .. }
        | JobResult::Admitted { .. }
        | JobResult::Drained
        | JobResult::Removed
        | JobResult::Wiped { .. } => Ok(()),
    }
}

/// The BMC was seen to take the password that it was to have: from now on that is the one, and no other is known.
async fn rotated(conn: &mut PgConnection, job: &CurrentJob, now: Timestamp) -> Result<(), Error> {
    let Some(account) = db::bmc_passwords::find_account(conn, job.node).await? else {
        return Ok(());
    };
    if db::bmc_passwords::promote(conn, &account, now).await? {
        let summary =
            format!("the password of {account} was changed, and the BMC was seen to take it");
        let event =
            NewEvent::node(now, "muster", "bmc.rotated", job.node, summary).under(job.operation);
        db::events::insert(conn, event).await?;
    }
    Ok(())
}

/// The gates a step was to run: all of the suite, or those a reboot may break.
pub(super) fn wanted(suite: &Suite, step: &str) -> Vec<String> {
    match step {
        "gates_after_reboot" => suite
            .gates
            .iter()
            .filter(|gate| gate.after_reboot)
            .map(|gate| gate.id.clone())
            .collect(),
        _ => Vec::new(),
    }
}
