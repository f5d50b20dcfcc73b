//! Reboots a system into a new boot. `once`: the old boot id is committed with the act, and a new
//! boot id proves the reboot.

use std::time::Duration;

use bytes::Bytes;
use muster_core::ids::PermitId;
use muster_core::wire::bmc::Power;
use muster_core::wire::login::Login;
use muster_core::wire::node::Failure;
use muster_core::wire::result::JobResult;
use tokio::time::Instant;

use super::power::{self, By};
use super::reach::{TRY, away_at, keep, noticed, pause_after, reach_up};
use crate::bmc::{BootOnce, PowerState};
use crate::ssh::command::Command;
use crate::ssh::{Session, SshError};
use crate::work::context::JobContext;

const ACT: &str = "reboot";
/// Time limit for a reboot. A slower system hangs during shutdown or startup, and the BMC resets
/// the machine.
const HUNG: Duration = Duration::from_mins(15);
/// Interval of checks during the shutdown. Each check costs the system a login.
const GOING_DOWN: Duration = Duration::from_secs(3);
/// Time before repeating the request. Services can take 90 s of systemd twice to stop.
const TELL_AGAIN: Duration = Duration::from_mins(4);

pub(super) async fn run(
    context: &JobContext,
    power: &Power,
    login: &Login,
    permit: PermitId,
) -> Result<JobResult, Failure> {
    let (before, told) = match context.former_act(&[ACT]) {
        Some(record) => (record.before.clone(), None),
        None => tell(context, login, permit)
            .await
            .map(|(before, told)| (before, Some(told)))?,
    };
    let (lost, off) = tokio::select! {
        after = other_boot(context, login, &before, told) => return after.map(|boot_id| JobResult::Booted { boot_id }),
        () = tokio::time::sleep(HUNG) => (format!("not back after {} min", HUNG.as_secs() / 60), false),
        () = stays_off(context, power) => ("its BMC shows that it stays off".to_owned(), true),
    };
    match power::by(context, power).await? {
        By::Bmc(bmc) => {
            context.voice.log(format!("{lost}: the BMC starts it"));
            match off {
                // A person may have pressed the power button first, with the same effect.
                true => power::turn_on(context, &bmc, permit).await?,
                false => drop(power::start(context, &bmc, permit, BootOnce::None).await?),
            }
        }
        By::Person(person) => {
            context.voice.log(format!(
                "{lost}: {person} must look at {}",
                context.job.node_name
            ));
        }
    }
    other_boot(context, login, &before, None)
        .await
        .map(|boot_id| JobResult::Booted { boot_id })
}

/// Returns after the BMC reported power off at every check for a while. Never returns for a BMC
/// without an answer, or without a BMC.
async fn stays_off(context: &JobContext, power: &Power) {
    if let Power::Manual { .. } = power {
        return std::future::pending().await;
    }
    let long = context.agent.bmcs.limits().stays_off;
    let mut off_since = None;
    loop {
        tokio::time::sleep(long / 4).await;
        let seen = power::heard(context, power)
            .await
            .ok()
            .and_then(Result::ok)
            .map(|(_, view)| view);
        off_since = match seen {
            Some(view) if view.power == PowerState::Off => off_since.or(Some(Instant::now())),
            Some(_) | None => None,
        };
        if off_since.is_some_and(|since: Instant| since.elapsed() >= long) {
            return;
        }
    }
}

/// Commits the act with the current boot id, and requests the reboot. Returns the boot id and the
/// session in the old boot.
async fn tell(
    context: &JobContext,
    login: &Login,
    permit: PermitId,
) -> Result<(String, Session), Failure> {
    let session = reach_up(context, login).await?;
    let before = session.boot_id().await?;
    context.redeem_power(permit).await?;
    let _go_or_already = context.start_act(ACT, &before).await?;
    if let Err(error) = session.exec(Command::Reboot, Bytes::new()).await {
        context.voice.log(format!("asked it to reboot: {error}"));
    }
    Ok((before, session))
}

/// Waits for a boot id other than `before`. If the old boot id is still present after a while, the
/// request is repeated, because the old boot id proves the reboot did not happen.
async fn other_boot(
    context: &JobContext,
    login: &Login,
    before: &str,
    mut still: Option<Session>,
) -> Result<String, Failure> {
    let mut told = Instant::now();
    let mut before_this = None;
    let awaited = format!(
        "{} to leave boot {before} and come back",
        context.job.node_name
    );
    loop {
        context.voice.waiting_for(awaited.clone());
        if let Some(session) = still.take() {
            // The session ends with the old boot, so the next boot is detected at once.
            let _gone_or_still_there = tokio::time::timeout(GOING_DOWN, session.gone()).await;
        }
        let asked = Instant::now();
        match look(login).await {
            Ok((session, now)) if now != before => {
                noticed(context, before_this, session.opened());
                context.voice.moving();
                keep(context, login, session);
                return Ok(now);
            }
            Ok((session, _)) => {
                if told.elapsed() > TELL_AGAIN {
                    told = Instant::now();
                    context
                        .voice
                        .log("still in the boot before; telling it again");
                    let _broken_connection_is_usual =
                        session.exec(Command::Reboot, Bytes::new()).await;
                }
                still = Some(session);
                before_this = Some(asked);
            }
            Err(error) => {
                before_this = Some(away_at(&error, asked));
                tokio::time::sleep(pause_after(&error)).await;
            }
        }
    }
}

async fn look(login: &Login) -> Result<(Session, String), SshError> {
    let session = Session::connect(login, TRY).await?;
    let boot_id = session.boot_id().await?;
    Ok((session, boot_id))
}
