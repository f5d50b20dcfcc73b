//! Power acts within their rules: seen before, permitted now, committed before done, seen after.

use std::time::Duration;

use muster_core::ids::PermitId;
use muster_core::wire::agent::{ActReply, BmcTarget};
use muster_core::wire::node::Failure;

use crate::bmc::{Bmc, BmcError, BmcView, BootOnce, PowerState, Reset};
use crate::watch::Stopped;
use crate::work::context::{JobContext, failed};

/// Names of the acts, as committed: both bring the machine through its firmware.
const ACTS: [&str; 2] = ["power_on", "reset"];
/// A power state between on and off, or none at all, lasts seconds.
const SETTLE: Duration = Duration::from_mins(2);
/// Until a machine shows on after it was told.
const POWER_ON: Duration = Duration::from_mins(2);
/// No BMC shows the dip of a restart later than this.
const DIP: Duration = Duration::from_secs(15);
/// Pause before a BMC is asked again that could not answer.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// Whose act the machine starts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Started {
    Now,
    /// An earlier attempt committed it, so long ago by the server's clock. It may have happened, or not.
    Earlier {
        age: Duration,
    },
}

pub(super) fn open(context: &JobContext, target: &BmcTarget) -> Result<Bmc, Failure> {
    Ok(context.agent.bmcs.open(target, context.job.id)?)
}

/// What the BMC says; asked again while it cannot answer, until the job's deadline.
pub(super) async fn observe(context: &JobContext, bmc: &Bmc) -> Result<BmcView, Failure> {
    persist(context, || bmc.observe()).await
}

/// Powers the machine on, or resets it, so that it boots from `next`. After an earlier attempt that committed the same, it only looks.
pub(super) async fn start(
    context: &JobContext,
    bmc: &Bmc,
    permit: PermitId,
    next: BootOnce,
) -> Result<(Started, BmcView), Failure> {
    if let Some(record) = context.former_act(&ACTS) {
        let age = Duration::from_secs(record.age_s);
        context.voice.log(format!(
            "attempt {} committed {} {} s ago; looking what came of it",
            record.attempt, record.act, record.age_s
        ));
        return Ok((Started::Earlier { age }, observe(context, bmc).await?));
    }
    let set = persist(context, || bmc.set_boot_once(next)).await?;
    let view = settled(context, bmc).await?;
    let (act, reset) = match view.power {
        PowerState::Off => (ACTS[0], Reset::On),
        _ => (ACTS[1], Reset::ForceRestart),
    };
    context.redeem_power(permit).await?;
    if let ActReply::Already(record) = context.start_act(act, &format!("power {}; {set}", view.power)).await? {
        return Ok((Started::Earlier { age: Duration::from_secs(record.age_s) }, view));
    }
    context.voice.log(format!("power was {}; {act}", view.power));
    perform(context, bmc, reset).await?;
    Ok((Started::Now, view))
}

/// Cuts the power. Looked at before and after by the caller.
pub(super) async fn force_off(context: &JobContext, bmc: &Bmc) -> Result<(), Failure> {
    once_not_busy(context, bmc, Reset::ForceOff).await
}

/// Does a committed act and looks at what it did.
async fn perform(context: &JobContext, bmc: &Bmc, reset: Reset) -> Result<(), Failure> {
    let watch = context.watch(POWER_ON);
    match reset {
        Reset::ForceRestart => {
            if !offers_restart(context, bmc).await? {
                force_off(context, bmc).await?;
                bmc.wait_power(PowerState::Off, &watch).await?;
                once_not_busy(context, bmc, Reset::On).await?;
                bmc.wait_power(PowerState::On, &watch).await?;
            } else if !bmc.wait_restart(DIP, &watch).await? {
                context.voice.log("the BMC showed on all through the restart; the booted system will tell");
            }
        }
        Reset::On | Reset::ForceOff | Reset::GracefulShutdown => {
            once_not_busy(context, bmc, reset).await?;
            bmc.wait_power(PowerState::On, &watch).await?;
        }
    }
    context.voice.moving();
    Ok(())
}

/// Restarts in one act where the BMC can; `false` where it cannot, and did nothing.
async fn offers_restart(context: &JobContext, bmc: &Bmc) -> Result<bool, Failure> {
    match once_not_busy(context, bmc, Reset::ForceRestart).await {
        Ok(()) => Ok(true),
        Err(failure) if failure.code == "bmc_unsupported" => Ok(false),
        Err(failure) => Err(failure),
    }
}

/// Sends one power act. A BMC that says it is busy has not acted and is asked again; one that does not answer may have, and is looked at.
async fn once_not_busy(context: &JobContext, bmc: &Bmc, reset: Reset) -> Result<(), Failure> {
    let watch = context.watch(SETTLE);
    loop {
        match bmc.reset(reset).await {
            Ok(()) => return Ok(()),
            Err(error @ BmcError::Timeout { .. }) => {
                context.voice.log(error.to_string());
                return Ok(());
            }
            Err(BmcError::Busy { said, retry_after }) => {
                watch.waiting_for(format!("waiting for the BMC, which is busy: {said}"));
                if let Err(Stopped::Cancelled | Stopped::DeadlinePassed) =
                    watch.pause(retry_after.unwrap_or(ASK_AGAIN)).await
                {
                    return Err(BmcError::Busy { said, retry_after }.into());
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits until the power is on or off, for a while.
async fn settled(context: &JobContext, bmc: &Bmc) -> Result<BmcView, Failure> {
    let watch = context.watch(SETTLE);
    loop {
        let view = observe(context, bmc).await?;
        match view.power {
            PowerState::On | PowerState::Off => return Ok(view),
            PowerState::PoweringOn | PowerState::PoweringOff | PowerState::Unknown => {}
        }
        watch.waiting_for(format!("waiting for the BMC to show on or off; it shows {}", view.power));
        if watch.pause(ASK_AGAIN).await.is_err() {
            return Err(failed("power_unknown", format!("the BMC shows {} for {} s", view.power, SETTLE.as_secs())));
        }
    }
}

/// Asks until the BMC can answer or the job's time is over; only for what may be asked twice.
async fn persist<T, F: Future<Output = Result<T, BmcError>>>(
    context: &JobContext,
    ask: impl Fn() -> F,
) -> Result<T, Failure> {
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(error) if error.retryable() => {
                context.voice.waiting_for(format!("waiting for the BMC of {} ({error})", context.job.node_name));
                tokio::time::sleep(ASK_AGAIN).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

impl From<BmcError> for Failure {
    fn from(error: BmcError) -> Self {
        Self { code: error.code().into(), message: error.to_string(), retryable: error.retryable() }
    }
}
