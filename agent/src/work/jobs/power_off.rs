//! Powers a machine off and confirms the state. Observe, then act: a machine already off is left
//! unchanged.

use std::time::Duration;

use bytes::Bytes;
use muster_core::ids::PermitId;
use muster_core::wire::bmc::Power;
use muster_core::wire::login::Login;
use muster_core::wire::node::{Failure, FailureCode};
use muster_core::wire::result::JobResult;

use super::power::{self, By};
use super::reach::{TRY, kept};
use crate::bmc::{Bmc, BmcError, PowerState};
use crate::ssh::command::Command;
use crate::ssh::{Session, SshError};
use crate::work::context::{JobContext, failed, fatal};

/// Number of failed connections in a row counted as "off" without a BMC.
const UNREACHABLE: u32 = 3;
const KNOCK_EVERY: Duration = Duration::from_secs(10);

pub(super) async fn run(
    context: &JobContext,
    power: &Power,
    login: Option<&Login>,
    permit: PermitId,
) -> Result<JobResult, Failure> {
    match (power::by(context, power).await?, login) {
        (By::Bmc(bmc), login) => off_by_bmc(context, &bmc, login, permit).await,
        (By::Person(_), Some(login)) => off_by_ssh(context, login, permit).await,
        (By::Person(person), None) => {
            let unseen = format!(
                "{} has neither a BMC nor a login: only {person} can see whether it is off",
                context.job.node_name
            );
            Err(fatal(FailureCode::PowerUnobservable, unseen))
        }
    }
}

/// Powers off through the operating system if reachable, else through the BMC.
pub(super) async fn off_by_bmc(
    context: &JobContext,
    bmc: &Bmc,
    login: Option<&Login>,
    permit: PermitId,
) -> Result<JobResult, Failure> {
    let limits = context.agent.bmcs.limits();
    if power::observe(context, bmc).await?.power == PowerState::Off {
        return Ok(JobResult::PoweredOff);
    }
    context.redeem_power(permit).await?;
    if let Some(login) = login
        && ask(context, login).await
        && seen_off(context, bmc, limits.shutdown).await?.is_none()
    {
        return Ok(JobResult::PoweredOff);
    }
    context.voice.log("the BMC cuts the power");
    power::force_off(context, bmc).await?;
    match seen_off(context, bmc, limits.power_off).await? {
        None => Ok(JobResult::PoweredOff),
        Some(seen) => Err(failed(
            FailureCode::PowerOffNotSeen,
            format!(
                "the BMC still shows {seen} {} s after it was told to cut the power",
                limits.power_off.as_secs()
            ),
        )),
    }
}

/// Waits until the BMC shows off. Returns the state that it shows instead.
async fn seen_off(
    context: &JobContext,
    bmc: &Bmc,
    within: Duration,
) -> Result<Option<String>, Failure> {
    match bmc
        .wait_power(PowerState::Off, &context.watch(within))
        .await
    {
        Ok(_) => Ok(None),
        Err(BmcError::NothingHappened { seen, .. }) => Ok(Some(seen)),
        Err(error) => Err(error.into()),
    }
}

/// Powers off without a BMC. The power state is not visible, so a system without an answer after
/// the request counts as off. The result states the assumption.
async fn off_by_ssh(
    context: &JobContext,
    login: &Login,
    permit: PermitId,
) -> Result<JobResult, Failure> {
    context.redeem_power(permit).await?;
    ask(context, login).await;
    let mut unreachable = 0;
    while unreachable < UNREACHABLE {
        context.voice.waiting_for(format!(
            "{} to stop answering on SSH",
            context.job.node_name
        ));
        tokio::time::sleep(KNOCK_EVERY).await;
        match Session::connect(login, TRY).await {
            Err(SshError::Unreachable { .. } | SshError::Timeout { .. }) => unreachable += 1,
            Ok(_) | Err(_) => unreachable = 0,
        }
    }
    context.voice.log(format!(
        "it did not answer on SSH {UNREACHABLE} times in a row; there is no BMC to see more"
    ));
    Ok(JobResult::PoweredOff)
}

/// Requests a shutdown from the system. Returns whether the request was delivered.
async fn ask(context: &JobContext, login: &Login) -> bool {
    let asked = async {
        let session = match kept(context, login).await {
            Some(session) => session,
            None => Session::connect(login, TRY).await?,
        };
        session.exec(Command::PowerOff, Bytes::new()).await
    };
    match asked.await {
        Ok(_) | Err(SshError::Lost(_)) => true,
        Err(error) => {
            context.voice.log(format!(
                "the system could not be asked to shut down: {error}"
            ));
            false
        }
    }
}
