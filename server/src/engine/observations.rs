//! Records the observations of a successful job: power, facts, firmware, installed systems, gates,
//! drift.

use jiff::Timestamp;
use muster_core::facts::Facts;
use muster_core::gates::{GateResult, Judged, Suite, judge};
use muster_core::lifecycle::steps::Step;
use muster_core::parts;
use muster_core::wire::result::JobResult;
use sqlx::PgConnection;

use super::{cabling, drift, firmware, remains, waivers};
use crate::db;
use crate::db::events::NewEvent;
use crate::db::gates::NewRun;
use crate::db::jobs::CurrentJob;
use crate::db::observed::SeenPower;
use crate::error::Error;

/// Records the observations of a job's result.
///
/// # Errors
/// When the database fails.
pub(super) async fn record(
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
            db::observed::set_power(conn, job.node, SeenPower::On, now).await?;
            if let Some(inventory) = inventory {
                firmware::record_inventory(conn, job, inventory, now).await?;
            }
            let certificate = bmc_certificate.map(|digest| digest.to_string());
            db::observed::set_live(conn, job.node, host_key, boot_id, certificate.as_deref()).await
        }
        JobResult::Facts { facts } => record_facts(conn, job, facts, now).await,
        JobResult::ImageWritten(written) => {
            let (host_key, disk) = (&written.host_key, &written.disk_serial);
            db::observed::set_installed(conn, job.node, host_key, disk, job.epoch).await?;
            db::claims::record_imaged(conn, job.node).await
        }
        JobResult::Firmware { inventory, changed } => {
            firmware::record_changes(conn, job, changed, now).await?;
            firmware::record_inventory(conn, job, inventory, now).await
        }
        JobResult::Adopted { host_key, boot_id } => {
            db::observed::set_adopted(conn, job.node, host_key, boot_id, job.epoch).await?;
            db::taken_keys::accept_ca(conn, job.node, job.id, true).await
        }
        JobResult::Booted { boot_id } => {
            db::observed::set_power(conn, job.node, SeenPower::On, now).await?;
            db::observed::set_os_boot(conn, job.node, boot_id).await
        }
        JobResult::PoweredOn => record_switch(conn, job, SeenPower::On, now).await,
        JobResult::PoweredOff => record_switch(conn, job, SeenPower::Off, now).await,
        JobResult::BmcRotated => record_rotation(conn, job, now).await,
        JobResult::Gated {
            results,
            fingerprint,
        } => record_gates(conn, job, results, &fingerprint.to_string(), now).await,
        JobResult::Converged(report) => {
            db::taken_keys::accept_ca(conn, job.node, job.id, false).await?;
            drift::record_items(conn, job, report, now).await
        }
        // A run of pairs reads the result from the job.
        JobResult::Paired { .. }
        | JobResult::Admitted { .. }
        | JobResult::Drained
        | JobResult::Removed => Ok(()),
        JobResult::Wiped { .. } => remains::end_wiped(conn, job.node, job.permit).await,
    }
}

async fn record_facts(
    conn: &mut PgConnection,
    job: &CurrentJob,
    facts: &Facts,
    now: Timestamp,
) -> Result<(), Error> {
    let before = db::facts::latest_live(conn, job.node).await?;
    db::facts::insert(conn, job.node, facts, now).await?;
    cabling::record_faults(conn, job.node, before.as_ref(), facts, now).await?;
    db::components::record_parts(conn, job.node, &parts::seen_in(facts), now).await?;
    remains::merge(conn, job.node, "muster", now).await
}

/// Records a switch of power by a job.
async fn record_switch(
    conn: &mut PgConnection,
    job: &CurrentJob,
    power: SeenPower,
    now: Timestamp,
) -> Result<(), Error> {
    db::observed::set_power(conn, job.node, power, now).await?;
    db::observed::forget_boot(conn, job.node).await
}

/// Stores a run of gates with the suite's verdict.
async fn record_gates(
    conn: &mut PgConnection,
    job: &CurrentJob,
    results: &[GateResult],
    fingerprint: &str,
    now: Timestamp,
) -> Result<(), Error> {
    let (suite, profile) = db::specs::suite_of(conn, job.node, job.step, job.operation).await?;
    let suite = suite.ok_or_else(|| {
        Error::internal(anyhow::anyhow!("gates of {} ran without a suite", job.node))
    })?;
    let wanted = select_gates(&suite, job.step);
    let by = Judged {
        suite: &suite,
        profile: profile.as_ref(),
        wanted: &wanted,
        now,
    };
    let run = NewRun {
        node: job.node,
        job: job.id,
        suite: &format!("{} {}", suite.name, suite.version),
        verdict: judge(&by, results).as_str(),
        fingerprint,
    };
    waivers::record_use(conn, job, &suite, profile.as_ref(), results, now).await?;
    db::gates::insert(conn, run, results, now).await?;
    Ok(())
}

/// Records a change of the BMC's password: the next password becomes current, and the former
/// password is deleted.
async fn record_rotation(
    conn: &mut PgConnection,
    job: &CurrentJob,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(account) = db::bmc_passwords::find_account(conn, job.node).await? else {
        return Ok(());
    };
    if db::bmc_passwords::promote(conn, &account, now).await? {
        let summary = format!("the password of {account} was changed, and the BMC accepts it");
        let event =
            NewEvent::node(now, "muster", "bmc.rotated", job.node, summary).under(job.operation);
        db::events::insert(conn, event).await?;
    }
    Ok(())
}

/// Returns the gates of a step: after a reboot only the gates marked `after_reboot`, otherwise the
/// whole suite, written as an empty list.
pub(super) fn select_gates(suite: &Suite, step: Step) -> Vec<String> {
    if step != Step::GatesAfterReboot {
        return Vec::new();
    }
    suite
        .gates
        .iter()
        .filter(|gate| gate.after_reboot)
        .map(|gate| gate.id.clone())
        .collect()
}
