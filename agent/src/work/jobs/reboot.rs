//! Out of one boot and into another. `once`: the boot id before is committed with the act; another boot id is the proof that it happened.

use std::time::Duration;

use bytes::Bytes;
use muster_core::ids::PermitId;
use muster_core::wire::agent::{JobResult, Login, Power};
use muster_core::wire::node::Failure;
use tokio::time::Instant;

use super::power::{self, By};
use super::reach::{OtherKey, TRY, boot_id, noticed, reach};
use crate::bmc::BootOnce;
use crate::ssh::Session;
use crate::ssh::command::Command;
use crate::work::context::JobContext;

const ACT: &str = "reboot";
/// A system that was told to reboot and is not back after this hangs on its way down or up: the BMC resets it.
const HUNG: Duration = Duration::from_mins(15);
/// Between looks at a system that is still going down: each costs it a log-in.
const GOING_DOWN: Duration = Duration::from_secs(3);
/// Between looks at one that does not answer.
const COMING_UP: Duration = Duration::from_secs(1);

pub(super) async fn run(
    context: &JobContext,
    power: &Power,
    login: &Login,
    permit: PermitId,
) -> Result<JobResult, Failure> {
    let before = match context.former_act(&[ACT]) {
        Some(record) => record.before.clone(),
        None => tell(context, login, permit).await?,
    };
    tokio::select! {
        after = other_boot(context, login, &before) => return after.map(|boot_id| JobResult::Booted { boot_id }),
        () = tokio::time::sleep(HUNG) => {}
    }
    match power::by(context, power)? {
        By::Bmc(bmc) => {
            context.voice.log(format!("not back after {} min: the BMC resets it", HUNG.as_secs() / 60));
            power::start(context, &bmc, permit, BootOnce::None).await?;
        }
        By::Person(person) => {
            context.voice.log(format!(
                "not back after {} min: {person} must look at {}",
                HUNG.as_secs() / 60,
                context.job.node_name
            ));
        }
    }
    other_boot(context, login, &before).await.map(|boot_id| JobResult::Booted { boot_id })
}

/// Commits the act with the boot id it ends, and tells the system.
async fn tell(context: &JobContext, login: &Login, permit: PermitId) -> Result<String, Failure> {
    let session = reach(context, login, OtherKey::Refuse).await?;
    let before = boot_id(&session).await?;
    context.redeem_power(permit).await?;
    let _go_or_already = context.start_act(ACT, &before).await?;
    if let Err(error) = session.exec(Command::Reboot, Bytes::new()).await {
        context.voice.log(format!("asked it to reboot: {error}"));
    }
    Ok(before)
}

/// Waits for a boot id other than `before`. A system that still has the old one some time after it was told is told again: that it is in the
/// old boot shows that the act has not happened.
async fn other_boot(context: &JobContext, login: &Login, before: &str) -> Result<String, Failure> {
    /// Services may take systemd's 90 s, twice, to stop.
    const TELL_AGAIN: Duration = Duration::from_mins(4);
    let mut told = Instant::now();
    let mut before_this = None;
    loop {
        let asked = Instant::now();
        let mut pause = COMING_UP;
        if let Ok(session) = Session::connect(login, TRY).await
            && let Ok(now) = boot_id(&session).await
        {
            if now != before {
                noticed(context, before_this);
                context.voice.moving();
                return Ok(now);
            }
            pause = GOING_DOWN;
            if told.elapsed() > TELL_AGAIN {
                told = Instant::now();
                context.voice.log("still in the boot before; telling it again");
                let _broken_connection_is_usual = session.exec(Command::Reboot, Bytes::new()).await;
            }
        }
        context
            .voice
            .waiting_for(format!("waiting for {} to leave boot {before} and come back", context.job.node_name));
        before_this = Some(asked);
        tokio::time::sleep(pause).await;
    }
}
