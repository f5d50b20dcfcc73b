//! Runs from power-on to a session in the live image. `once`: the power act is committed before
//! execution. A later attempt with a committed act waits for the boot, and fails as retryable when
//! the window of the boot is over. The engine then creates a new boot with a new nonce and permit.

use std::time::Duration;

use muster_core::firmware::BmcInventory;
use muster_core::values::Mac;
use muster_core::wire::bmc::Power;
use muster_core::wire::calls::{Seen, Sighting};
use muster_core::wire::job::BootLive;
use muster_core::wire::login::Login;
use muster_core::wire::node::{Failure, FailureCode, LiveReport};
use muster_core::wire::result::JobResult;
use tokio::time::Instant;

use super::identity;
use super::power::{self, By, Started};
use super::reach::{OtherKey, keep, reach};
use super::signed_live::check_signature;
use super::supply::hold_blob;
use crate::bmc::{Bmc, BmcError, BmcView, BootOnce, PowerState};
use crate::boot::arm::{ArmError, ArmedHandle, BootFault};
use crate::work::context::{JobContext, failed, fatal};

/// Time limit from the power act to the report. Firmware with many DIMMs and option ROMs takes ten
/// minutes, the image itself one.
const WINDOW: Duration = Duration::from_mins(25);
/// Time after power-on. A machine that is still off then counts as not started.
const OFF_FOR_LONG: Duration = Duration::from_mins(2);
/// Interval of power checks for a machine started by an earlier attempt.
const LOOK_EVERY: Duration = Duration::from_secs(20);
const SSH_PORT: u16 = 22;

pub(super) async fn run(context: &JobContext, spec: &BootLive) -> Result<JobResult, Failure> {
    check_signature(&context.agent.live_keys, spec)?;
    hold_blob(context, spec.kernel).await?;
    hold_blob(context, spec.initrd).await?;
    let armed = context
        .agent
        .boots
        .arm(context.job.node, spec)
        .map_err(not_armed)?;
    let boot = async {
        if let Some(report) = context.agent.reports.find(&spec.nonce) {
            armed.spend_script();
            let bmc = observed_bmc(context, &spec.power).await?;
            return log_in(context, spec, &report, bmc).await;
        }
        let (report, bmc) = start_and_wait(context, spec, &armed).await?;
        // The save and the login run in parallel, so the machine does not wait for the disk of the
        // agent.
        let ((), live) = tokio::join!(save(context, &report), log_in(context, spec, &report, bmc));
        live
    };
    let ended = tokio::select! {
        result = boot => result,
        fault = armed.fault() => Err(spoiled(&fault)),
    };
    if ended.is_ok() {
        armed.hold();
    }
    ended
}

/// A BMC and the state read at the start of the boot.
type SeenBmc = Option<(Bmc, BmcView)>;

async fn observed_bmc(context: &JobContext, by: &Power) -> Result<SeenBmc, Failure> {
    match power::by(context, by).await? {
        By::Person(_) => Ok(None),
        By::Bmc(bmc) => {
            let view = power::observe(context, &bmc).await?;
            Ok(Some((bmc, view)))
        }
    }
}

async fn start_and_wait(
    context: &JobContext,
    spec: &BootLive,
    armed: &ArmedHandle,
) -> Result<(LiveReport, SeenBmc), Failure> {
    let mac = spec.macs[0];
    match power::by(context, &spec.power).await? {
        By::Person(person) => {
            let node = &context.job.node_name;
            let by_hand = format!("{person} to power on {node} (network boot)");
            Ok((wait_for_report(context, armed, mac, &by_hand).await?, None))
        }
        By::Bmc(bmc) => {
            let (started, view) = power::start(context, &bmc, spec.permit, BootOnce::Pxe).await?;
            Ok((
                wait_in_window(context, armed, mac, &bmc, started).await?,
                Some((bmc, view)),
            ))
        }
    }
}

/// Saves the report for a later attempt.
async fn save(context: &JobContext, report: &LiveReport) {
    let (kept, copy) = (context.agent.reports.clone(), report.clone());
    let saved = tokio::task::spawn_blocking(move || kept.save(&copy)).await;
    if let Ok(Err(error)) = saved {
        context.voice.log(format!(
            "the live image's report could not be kept for a restart: {error}"
        ));
    }
}

/// Waits for the report until the window of the power act is over.
async fn wait_in_window(
    context: &JobContext,
    armed: &ArmedHandle,
    mac: Mac,
    bmc: &Bmc,
    started: Started,
) -> Result<LiveReport, Failure> {
    let age = match started {
        Started::Now => Duration::ZERO,
        Started::Earlier { age } => age,
    };
    let starting = format!("DHCP from {mac}");
    tokio::select! {
        report = wait_for_report(context, armed, mac, &starting) => report,
        stayed_off = stays_off(context, bmc, age) => Err(stayed_off),
        () = tokio::time::sleep(WINDOW.saturating_sub(age)) => {
            let last = context.voice.awaited().unwrap_or(starting.clone());
            Err(failed(FailureCode::BootWindowOver, format!("no report of the live image {} min after power-on; still waiting for {last}", WINDOW.as_secs() / 60)))
        }
    }
}

/// Returns a failure once the machine is off later than `OFF_FOR_LONG` after power-on. The power-on
/// then had no effect, or the machine was switched off again.
async fn stays_off(context: &JobContext, bmc: &Bmc, age: Duration) -> Failure {
    let started = Instant::now();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let since = age + started.elapsed();
        if since < OFF_FOR_LONG {
            continue;
        }
        match power::observe(context, bmc).await {
            Ok(view) if view.power == PowerState::Off => {
                return failed(
                    FailureCode::PowerOnNotSeen,
                    format!("the BMC shows it off {} s after power-on", since.as_secs()),
                );
            }
            Ok(_) => {}
            Err(failure) => context
                .voice
                .log(format!("the BMC could not be asked: {}", failure.message)),
        }
    }
}

/// Waits for the report and logs the sightings of the machine.
async fn wait_for_report(
    context: &JobContext,
    armed: &ArmedHandle,
    mac: Mac,
    at_first: &str,
) -> Result<LiveReport, Failure> {
    context.voice.waiting_for(at_first);
    let mut seen = armed.last_seen();
    let report = armed.report();
    tokio::pin!(report);
    loop {
        tokio::select! {
            report = &mut report => {
                context.voice.moving();
                return report.map_err(|fault| spoiled(&fault));
            }
            Ok(()) = seen.changed() => {
                if let Some(sighting) = seen.borrow_and_update().as_ref() {
                    context.voice.log(format!("seen: {:?} of {} {}", sighting.what, sighting.mac, sighting.detail));
                    if let Some(next) = next_stage(sighting) {
                        context.voice.waiting_for(format!("{next} from {mac}"));
                    }
                }
            }
        }
    }
}

/// Returns a description of the stage after a sighting.
fn next_stage(sighting: &Sighting) -> Option<String> {
    match sighting.what {
        // DHCP is used at least twice: by the firmware and by the loaded iPXE.
        Seen::Dhcp => Some(format!("what DHCP gave it to load ({})", sighting.detail)),
        Seen::Tftp => Some("the boot script (iPXE was fetched)".into()),
        Seen::Script => Some("the kernel (the boot script was given)".into()),
        Seen::Kernel => Some("the live image's report (kernel or initrd was fetched)".into()),
        Seen::Report | Seen::RogueDhcp | Seen::FetchedTwice => None,
    }
}

/// Logs in with the reported host key and checks the identity of the machine.
async fn log_in(
    context: &JobContext,
    spec: &BootLive,
    report: &LiveReport,
    bmc: SeenBmc,
) -> Result<JobResult, Failure> {
    let login = Login {
        address: spec.address,
        port: SSH_PORT,
        host_key: report.host_key.clone(),
        user_key: spec.user_key.clone(),
    };
    // The firmware has finished, so the values of the BMC are the values of this boot.
    let (session, inventory) = tokio::join!(
        reach(context, &login, OtherKey::Refuse),
        told_by(bmc.as_ref())
    );
    let session = session?;
    let facts = super::inventory::read(&session, &[]).await?.facts;
    let wanted = identity::Wanted {
        uuid: spec.expect_uuid.as_deref(),
        serial: spec.expect_serial.as_deref(),
    };
    identity::check("the inventory", wanted, &facts.smbios)?;
    if let Some((_, view)) = &bmc {
        identity::before(view, &facts.smbios)?;
    }
    keep(context, &login, session);
    let bmc_certificate = bmc.and_then(|(bmc, _)| bmc.certificate());
    Ok(JobResult::Live {
        host_key: report.host_key.clone(),
        boot_id: facts.boot_id,
        address: spec.address,
        bmc_certificate,
        inventory,
    })
}

/// Reads firmware and BIOS settings from the BMC. Returns `None` for IPMI.
async fn told_by(bmc: Option<&(Bmc, BmcView)>) -> Option<Box<BmcInventory>> {
    let (bmc, _) = bmc?;
    match bmc.inventory().await {
        Err(BmcError::Unsupported { .. }) => None,
        Err(error) => Some(Box::new(BmcInventory::unread(error.to_string()))),
        Ok(inventory) => Some(Box::new(inventory)),
    }
}

fn not_armed(error: ArmError) -> Failure {
    match error {
        ArmError::Busy { .. } => failed(FailureCode::BootBusy, error.to_string()),
        ArmError::Macs(_) | ArmError::Nonce => fatal(FailureCode::BootSpec, error.to_string()),
    }
}

/// A retry with a new nonce can succeed. The server decides whether an operator must check the
/// machine first.
fn spoiled(fault: &BootFault) -> Failure {
    failed(FailureCode::BootSpoiled, fault.to_string())
}
