//! The halted rollout is resumed while a foreign process holds the lock of dpkg. The step waits,
//! fails with the name of the process, and is tried again.

use anyhow::Context;

use super::super::cast::Cast;
use super::super::packages::check_versions;
use super::node::{CHANGE, FOLDER, NODE, wait_until_done};

/// A foreign package manager, running until stopped.
const HOLD: &str = r#"use Fcntl;
open(F, ">>", "/var/lib/dpkg/lock-frontend") or die;
my $lock = pack("ssx4qqix4", F_WRLCK, 0, 0, 0, 0);
fcntl(F, F_SETLK, $lock) or die;
open(H, ">", "/run/held") or die;
sleep 1200;
"#;
/// Waits until the foreign package manager holds the lock.
const HELD: &str = "for try in $(seq 100); do [ -e /run/held ] && exit 0; sleep 0.2; done; exit 1";
const LOCK: &str = "/var/lib/dpkg/lock-frontend";
/// Failure of the step, behind the path of the lock.
const FAILURE: &str = "has been held by process";
/// The reason of the operator.
const REASON: &str = "the disk has room again";

/// Resumes the halted rollout with the lock held, until the step has failed. Then the lock is free,
/// and the rollout ends.
pub(super) async fn resume_rollout(cast: &Cast<'_>, rollout: &str) -> anyhow::Result<()> {
    cast.watch.say(&format!(
        "6. {rollout} is resumed, and a foreign process holds the lock of dpkg"
    ));
    hold_lock(cast).await?;
    take_again(cast, rollout).await?;
    wait_until_blocked(cast).await?;
    println!("{}", cast.ask("why", &[NODE], &[]).await?.trim_end());
    wait_for_failure(cast).await?;
    check_versions(cast, NODE, "2.0").await?;
    cast.veteran(NODE)?
        .run(&["systemctl stop other-packages"])
        .await?;
    wait_until_done(cast, rollout).await?;
    check_versions(cast, NODE, "1.0").await
}

/// Starts the foreign package manager on the machine, and waits until the lock is held.
async fn hold_lock(cast: &Cast<'_>) -> anyhow::Result<()> {
    let script = cast.dir.join(FOLDER).join("hold.pl");
    std::fs::write(&script, HOLD)?;
    let veteran = cast.veteran(NODE)?;
    veteran.give(&script, "/root/hold.pl").await?;
    veteran
        .run(&["systemd-run --unit=other-packages perl /root/hold.pl"])
        .await?;
    veteran
        .run(&[HELD])
        .await
        .map(drop)
        .context("no process holds the lock")
}

/// Resumes the rollout as an operator does. The failure stays counted, so the rollout must tolerate
/// a failure before the node is taken again.
async fn take_again(cast: &Cast<'_>, rollout: &str) -> anyhow::Result<()> {
    let programs = cast.programs;
    let more = ["--failures", "1", "--reason", REASON];
    programs.cli(&["rollout", "adjust", rollout], &more).await?;
    let why = ["--reason", REASON];
    let retry = ["rollout", "retry", rollout, NODE];
    programs.cli(&retry, &why).await?;
    let resumed = programs.cli(&["rollout", "resume", rollout], &why).await?;
    println!("{}", resumed.trim_end());
    Ok(())
}

/// Waits until the reason of the node's wait names the process and the lock.
async fn wait_until_blocked(cast: &Cast<'_>) -> anyhow::Result<()> {
    let client = cast.programs.client();
    let what = "the step to wait for the lock";
    let waits = cast.watch.until(client, what, CHANGE, async |fleet| {
        let condition = fleet
            .get(NODE)
            .and_then(|node| node.why.waiting_for.clone())
            .unwrap_or_default();
        Ok(condition.contains("(perl)") && condition.contains(LOCK))
    });
    waits.await
}

/// Waits until the failure of the step is in the timeline, and prints the failure.
async fn wait_for_failure(cast: &Cast<'_>) -> anyhow::Result<()> {
    let (client, mut found) = (cast.programs.client(), None);
    let failure = format!("{LOCK} {FAILURE}");
    let what = "the step to fail at the lock";
    let fails = cast.watch.until(client, what, CHANGE, async |_| {
        let timeline = client.node_timeline(NODE).await?.items;
        let mut summaries = timeline.into_iter().map(|entry| entry.summary);
        found = summaries.find(|summary| summary.contains(&failure));
        Ok(found.is_some())
    });
    fails.await?;
    cast.watch.say(&found.unwrap_or_default());
    Ok(())
}
