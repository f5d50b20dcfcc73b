//! Boots from the live image into the installed system. `once`: the reset is committed before
//! execution, and a later attempt with a committed reset waits for the system. A system answering
//! with the recorded host key counts as booted, independent of the cause of the boot.

use bytes::Bytes;
use muster_core::ids::PermitId;
use muster_core::wire::bmc::Power;
use muster_core::wire::calls::ActReply;
use muster_core::wire::login::Login;
use muster_core::wire::node::Failure;
use muster_core::wire::result::JobResult;

use super::power::{self, By};
use super::reach::{OtherKey, TRY, keep, reach};
use crate::bmc::BootOnce;
use crate::ssh::Session;
use crate::ssh::command::Command;
use crate::work::context::JobContext;

const ACT: &str = "reboot";

pub(super) async fn run(
    context: &JobContext,
    power: &Power,
    login: &Login,
    live: Option<&Login>,
    permit: PermitId,
) -> Result<JobResult, Failure> {
    if !context
        .agent
        .sessions
        .other_answers(context.job.node, login)
        .await
        && let Ok(session) = Session::connect(login, TRY).await
    {
        return booted(context, login, session).await;
    }
    match power::by(context, power).await? {
        By::Bmc(bmc) => drop(power::start(context, &bmc, permit, BootOnce::None).await?),
        By::Person(person) => by_hand(context, person, live, permit).await?,
    }
    let session = reach(context, login, OtherKey::NotYet).await?;
    booted(context, login, session).await
}

async fn booted(
    context: &JobContext,
    login: &Login,
    session: Session,
) -> Result<JobResult, Failure> {
    let boot_id = session.boot_id().await?;
    keep(context, login, session);
    Ok(JobResult::Booted { boot_id })
}

/// Restarts a machine without a BMC: through the live session if still present, else by a person.
async fn by_hand(
    context: &JobContext,
    person: &str,
    live: Option<&Login>,
    permit: PermitId,
) -> Result<(), Failure> {
    let asking = format!(
        "{person} must restart {} from its own disk",
        context.job.node_name
    );
    if context.former_act(&[ACT]).is_some() {
        context
            .voice
            .log("an earlier attempt restarted it from the live image");
        return Ok(());
    }
    let Some(live) = live else {
        context.voice.log(asking);
        return Ok(());
    };
    let session = match Session::connect(live, TRY).await {
        Ok(session) => session,
        Err(error) => {
            context.voice.log(format!(
                "the live image cannot be told to restart ({error}); {asking}"
            ));
            return Ok(());
        }
    };
    let before = session.boot_id().await?;
    context.redeem_power(permit).await?;
    if let ActReply::Go = context.start_act(ACT, &before).await? {
        // The connection breaks during the shutdown, so an error is the usual result.
        if let Err(error) = session.exec(Command::Reboot, Bytes::new()).await {
            context
                .voice
                .log(format!("asked the live image to restart: {error}"));
        }
    }
    Ok(())
}
