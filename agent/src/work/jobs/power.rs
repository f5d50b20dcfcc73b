//! Power acts by fixed rules: read the state, redeem the permit, commit the act, act, and read the
//! state again.

use std::time::Duration;

use muster_core::ids::PermitId;
use muster_core::wire::bmc::Power;
use muster_core::wire::bmc::{BmcTarget, IpmiTarget};
use muster_core::wire::calls::ActReply;
use muster_core::wire::node::{Failure, FailureCode};

use super::identity;
use crate::bmc::{Bmc, BmcError, BmcView, BootOnce, BootOverride, PowerState, Reset};
use crate::watch::Stopped;
use crate::work::context::{JobContext, failed, fatal};

/// Names of the committed acts. Both start the machine through its firmware.
const ACTS: [&str; 2] = ["power_on", "reset"];

/// The origin of the act starting the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Started {
    Now,
    /// An earlier attempt committed the act, `age` ago by the clock of the server. The act may or
    /// may not have happened.
    Earlier {
        age: Duration,
    },
}

/// Returns whether an earlier attempt committed the start of the machine.
pub(super) fn was_started(context: &JobContext) -> bool {
    context.former_act(&ACTS).is_some()
}

/// The power control of the machine.
#[derive(Clone, Debug)]
pub(super) enum By<'order> {
    Bmc(Bmc),
    /// A person presses the power button.
    Person(&'order str),
}

/// Returns the power control of the machine. A BMC reporting another machine than expected is
/// rejected.
pub(super) async fn by<'order>(
    context: &JobContext,
    power: &'order Power,
) -> Result<By<'order>, Failure> {
    if let Power::Manual { person } = power {
        return Ok(By::Person(person));
    }
    let bmc = its_password(context, power).await?;
    if let Some(machine) = power.machine() {
        identity::behind(machine, &observe(context, &bmc).await?)?;
    }
    Ok(By::Bmc(bmc))
}

/// Like [`by`], but asks the BMC only once, for read-only jobs. Returns the inner `Err` for an
/// unreachable BMC.
pub(super) async fn heard(
    context: &JobContext,
    power: &Power,
) -> Result<Result<(Bmc, BmcView), BmcError>, Failure> {
    let bmc = open(context, power)?;
    let (bmc, said) = match (bmc.observe().await, other(power)) {
        (Err(BmcError::BadCredentials { .. }), Some(other)) => {
            let bmc = open(context, &other)?;
            let said = bmc.observe().await;
            (bmc, said)
        }
        (said, _) => (bmc, said),
    };
    let view = match said {
        Ok(view) => view,
        Err(error) => return Ok(Err(error)),
    };
    if let Some(machine) = power.machine() {
        identity::behind(machine, &view)?;
    }
    Ok(Ok((bmc, view)))
}

/// Opens the BMC with the accepted password. During a password change either of the two passwords
/// can be valid.
async fn its_password(context: &JobContext, power: &Power) -> Result<Bmc, Failure> {
    let bmc = open(context, power)?;
    let Some(other) = other(power) else {
        return Ok(bmc);
    };
    match observe_once(context, &bmc).await {
        Err(BmcError::BadCredentials { .. }) => {
            context.voice.log(format!(
                "the BMC of {} takes the password it was being given",
                context.job.node_name
            ));
            open(context, &other)
        }
        _ => Ok(bmc),
    }
}

/// Returns the same BMC with the alternative password.
fn other(power: &Power) -> Option<Power> {
    match power {
        Power::Redfish(target) => {
            let password = target.also.clone()?;
            Some(Power::Redfish(BmcTarget {
                password,
                also: None,
                ..target.clone()
            }))
        }
        Power::Ipmi(target) => {
            let password = target.also.clone()?;
            Some(Power::Ipmi(IpmiTarget {
                password,
                also: None,
                ..target.clone()
            }))
        }
        Power::Manual { .. } => None,
    }
}

/// Opens the BMC with the password of the order.
pub(super) fn open(context: &JobContext, power: &Power) -> Result<Bmc, Failure> {
    let (bmcs, job) = (&context.agent.bmcs, context.job.id);
    Ok(match power {
        Power::Redfish(target) => bmcs.open(target, job)?,
        Power::Ipmi(target) => bmcs.open(target, job)?,
        Power::Manual { person } => {
            return Err(fatal(
                FailureCode::NoBmc,
                format!("{} has no BMC: ask {person}", context.job.node_name),
            ));
        }
    })
}

/// Reads the state of the BMC. Retries only while the BMC cannot answer.
async fn observe_once(context: &JobContext, bmc: &Bmc) -> Result<BmcView, BmcError> {
    loop {
        match bmc.observe().await {
            Err(error) if error.retryable() => {
                wait_for(context, &error).await;
            }
            said => return said,
        }
    }
}

/// Reads the state of the BMC. Retries until the deadline of the job while the BMC cannot answer.
pub(super) async fn observe(context: &JobContext, bmc: &Bmc) -> Result<BmcView, Failure> {
    persist(context, || bmc.observe()).await
}

/// Powers on or resets the machine, so that the next boot uses `next`. If an earlier attempt
/// committed the same act, only reads the state.
pub(super) async fn start(
    context: &JobContext,
    bmc: &Bmc,
    permit: PermitId,
    next: BootOnce,
) -> Result<(Started, BmcView), Failure> {
    context.agent.sessions.forget(context.job.node);
    if let Some(record) = context.former_act(&ACTS) {
        let age = Duration::from_secs(record.age_s);
        context.voice.log(format!(
            "attempt {} committed {} {} s ago; looking what came of it",
            record.attempt, record.act, record.age_s
        ));
        return Ok((Started::Earlier { age }, observe(context, bmc).await?));
    }
    let set = set_boot(context, bmc, next).await?;
    let view = settled(context, bmc).await?;
    let (act, way, set) = match (view.power, set) {
        (PowerState::Off, Some(set)) => (ACTS[0], Way::On, set.to_string()),
        (_, Some(set)) => (ACTS[1], Way::Restart, set.to_string()),
        (_, None) => (
            ACTS[1],
            Way::OffAndOn { next: Some(next) },
            "boot override not to be set before it is off".to_owned(),
        ),
    };
    context.redeem_power(permit).await?;
    if let ActReply::Already(record) = context
        .start_act(act, &format!("power {}; {set}", view.power))
        .await?
    {
        return Ok((
            Started::Earlier {
                age: Duration::from_secs(record.age_s),
            },
            view,
        ));
    }
    context
        .voice
        .log(format!("power was {}; {set}; {act}", view.power));
    perform(context, bmc, way).await?;
    Ok((Started::Now, view))
}

/// Powers on a machine, unless already on, and waits until the BMC reports on. Repeating the call
/// is harmless.
pub(super) async fn turn_on(
    context: &JobContext,
    bmc: &Bmc,
    permit: PermitId,
) -> Result<(), Failure> {
    if settled(context, bmc).await?.power == PowerState::On {
        return Ok(());
    }
    context.agent.sessions.forget(context.job.node);
    context.redeem_power(permit).await?;
    let _go_or_already = context.start_act(ACTS[0], "power off").await?;
    perform(context, bmc, Way::On).await
}

/// Sets the target of the next boot. Returns `None` when the machine is on and the BMC accepts no
/// change in this state.
async fn set_boot(
    context: &JobContext,
    bmc: &Bmc,
    next: BootOnce,
) -> Result<Option<BootOverride>, Failure> {
    let set = persist(context, || async {
        match bmc.set_boot_once(next).await {
            Err(ignored @ BmcError::NothingHappened { .. }) => Ok(Err(ignored)),
            other => other.map(Ok),
        }
    });
    match set.await? {
        Ok(set) => Ok(Some(set)),
        Err(ignored) if observe(context, bmc).await?.power == PowerState::Off => {
            Err(ignored.into())
        }
        Err(ignored) => {
            context
                .voice
                .log(format!("{ignored}; it is tried again with the power off"));
            Ok(None)
        }
    }
}

/// Cuts the power. The caller reads the state before and after.
pub(super) async fn force_off(context: &JobContext, bmc: &Bmc) -> Result<(), Failure> {
    context.agent.sessions.forget(context.job.node);
    Ok(once_not_busy(context, bmc, Reset::ForceOff).await?)
}

/// The way to start a machine through its firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    On,
    Restart,
    /// Power off, then on. The boot override is set in between, if not set before.
    OffAndOn {
        next: Option<BootOnce>,
    },
}

/// Executes a committed act and checks the effect.
async fn perform(context: &JobContext, bmc: &Bmc, way: Way) -> Result<(), Failure> {
    let limits = context.agent.bmcs.limits();
    let watch = context.watch(limits.power_on);
    match way {
        Way::On => {
            once_not_busy(context, bmc, Reset::On).await?;
            bmc.wait_power(PowerState::On, &watch).await?;
        }
        Way::Restart => {
            match once_not_busy(context, bmc, Reset::ForceRestart).await {
                Ok(()) => {
                    if !bmc.wait_restart(limits.dip, &watch).await? {
                        context.voice.log("the BMC showed on all through the restart; the booted system will tell");
                    }
                }
                // The restart had no effect, because some BMCs do not support it as a single
                // action.
                Err(BmcError::Unsupported { .. }) => off_and_on(context, bmc, None).await?,
                Err(error) => return Err(error.into()),
            }
        }
        Way::OffAndOn { next } => off_and_on(context, bmc, next).await?,
    }
    context.voice.moving();
    Ok(())
}

async fn off_and_on(
    context: &JobContext,
    bmc: &Bmc,
    next: Option<BootOnce>,
) -> Result<(), Failure> {
    let limits = context.agent.bmcs.limits();
    force_off(context, bmc).await?;
    bmc.wait_power(PowerState::Off, &context.watch(limits.power_off))
        .await?;
    if let Some(next) = next {
        let set = persist(context, || bmc.set_boot_once(next)).await?;
        context.voice.log(format!("with the power off: {set}"));
    }
    once_not_busy(context, bmc, Reset::On).await?;
    bmc.wait_power(PowerState::On, &context.watch(limits.power_on))
        .await?;
    Ok(())
}

/// Sends a power action. A busy or unreachable BMC has not acted, so the request is repeated. After
/// a timeout the BMC may have acted, so the caller reads the state.
async fn once_not_busy(context: &JobContext, bmc: &Bmc, reset: Reset) -> Result<(), BmcError> {
    let limits = context.agent.bmcs.limits();
    let watch = context.watch(limits.between);
    loop {
        let (error, pause) = match bmc.reset(reset).await {
            Ok(()) => return Ok(()),
            Err(error @ BmcError::Timeout { .. }) => {
                context.voice.log(error.to_string());
                return Ok(());
            }
            Err(error @ (BmcError::Busy { .. } | BmcError::Unreachable { .. })) => {
                let pause = error.pause(limits.ask_again);
                (error, pause)
            }
            Err(error) => return Err(error),
        };
        watch.waiting_for(format!("the BMC of {} ({error})", context.job.node_name));
        if let Err(Stopped::Cancelled | Stopped::DeadlinePassed) = watch.pause(pause).await {
            return Err(error);
        }
    }
}

/// Waits for a limited time until the power is on or off.
async fn settled(context: &JobContext, bmc: &Bmc) -> Result<BmcView, Failure> {
    let limits = context.agent.bmcs.limits();
    let watch = context.watch(limits.between);
    loop {
        let view = observe(context, bmc).await?;
        match view.power {
            PowerState::On | PowerState::Off => return Ok(view),
            PowerState::PoweringOn | PowerState::PoweringOff | PowerState::Unknown => {}
        }
        watch.waiting_for(format!(
            "the BMC to show on or off; it shows {}",
            view.power
        ));
        if watch.pause(limits.ask_again).await.is_err() {
            return Err(failed(
                FailureCode::PowerUnknown,
                format!(
                    "the BMC shows {} for {} s",
                    view.power,
                    limits.between.as_secs()
                ),
            ));
        }
    }
}

/// Repeats a call until the BMC answers or the time of the job is over. Use only for calls safe to
/// repeat.
pub(super) async fn persist<T, F: Future<Output = Result<T, BmcError>>>(
    context: &JobContext,
    ask: impl Fn() -> F,
) -> Result<T, Failure> {
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(error) if error.retryable() => {
                wait_for(context, &error).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits before the same call, as long as a busy BMC asks for.
async fn wait_for(context: &JobContext, error: &BmcError) {
    context
        .voice
        .waiting_for(format!("the BMC of {} ({error})", context.job.node_name));
    let ask_again = context.agent.bmcs.limits().ask_again;
    tokio::time::sleep(error.pause(ask_again)).await;
}

impl From<BmcError> for Failure {
    fn from(error: BmcError) -> Self {
        Self {
            code: error.code(),
            message: error.to_string(),
            retryable: error.retryable(),
        }
    }
}
