//! Five packages with exact mutual versions, on a machine in service: the packages are upgraded and
//! downgraded together, only by Muster. The next converge
//! reports and repairs each disturbance: a power cut, manual changes, a full disk, another package
//! manager.

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use muster_api::client::Client;
use muster_api::operations::Operation;

use super::super::DemoOptions;
use super::super::cast::state;
use super::super::declare::put;
use super::cast::Cast;
use super::declare::{self, POOL};
use super::driver::{self, Draft, LockedStack, STACK, publish};
use super::packages::{all_of, check_versions, read_versions};
use super::storms;
use super::tuple::{self, BUILDING, SERVICE, SLOW, TUPLE};
use crate::machine::oracle::Cause;

const NODE: &str = "n1";
/// Time limit for a converge of an emulated machine, with boots and gates.
const CONVERGE: Duration = Duration::from_secs(15 * 60);
/// A foreign repository: the newest versions, and the versions chosen by a person.
const THEIRS: [&str; 2] = ["1.0", "3.0"];
/// Path of the repository on the machine.
const FOREIGN: &str = "/root/foreign";
/// Space left on the disk: less than the minimum for a package.
const LEFT_FREE: u64 = 40 << 20;
/// Another package manager, running until stopped.
const HOLD: &str = r#"use Fcntl;
open(F, ">>", "/var/lib/dpkg/lock-frontend") or die;
my $lock = pack("ssx4qqix4", F_WRLCK, 0, 0, 0, 0);
fcntl(F, F_SETLK, $lock) or die;
open(H, ">", "/run/held") or die;
sleep 1200;
"#;
/// Failure of the step waiting for the lock.
const LOCK_TOLD: &str = "/var/lib/dpkg/lock-frontend has been held by process";
/// Waits for the lock of the package manager.
const HELD: &str = "for try in $(seq 100); do [ -e /run/held ] && exit 0; sleep 0.2; done; exit 1";

/// Runs all steps, and prints the duration of each.
pub(super) async fn run(options: &DemoOptions, cast: &mut Cast<'_>) -> anyhow::Result<()> {
    let (work, setup) = (cast.dir.join("pins"), cast.watch.elapsed());
    driver::build_repository(&work).await?;
    let first = driver::lock(options, cast, &work, Draft::of_version("1.0")).await?;
    let second = driver::lock(options, cast, &work, Draft::of_version("2.0")).await?;
    tuple::repository(&work.join("foreign"), &THEIRS).await?;
    cast.veteran(NODE)?
        .give(&work.join("foreign"), FOREIGN)
        .await?;
    let mut took = Vec::new();
    let mut began = Instant::now();
    let mut done = |what: &str| {
        took.push(format!("{what:<44} {:>4} s", began.elapsed().as_secs()));
        began = Instant::now();
    };
    cast.watch
        .say("tools of gates fork and take memory without end");
    storms::tell(cast, NODE).await?;
    done("tools without end stopped at their limits");
    installs(cast, &first).await?;
    done("installed");
    upgrades_through_a_power_cut(cast, &second).await?;
    done("upgraded, the power cut in the transaction");
    nobody_else_moves_them(cast).await?;
    done("held against apt and unattended-upgrades");
    hands_are_found(cast).await?;
    done("drift by hand found, named and mended");
    a_full_disk_is_told(cast, &first).await?;
    done("a full disk refused, nothing touched");
    a_lock_is_waited_for(cast).await?;
    done("a foreign lock waited for; rolled back");
    leaves_with_its_lock(options, cast).await?;
    done("gone with the stack that brought them");
    println!(
        "\n=== pins; the machine was in service after {} s",
        setup.as_secs()
    );
    took.iter().for_each(|line| println!("{line}"));
    Ok(())
}

async fn installs(cast: &mut Cast<'_>, stack: &LockedStack) -> anyhow::Result<()> {
    cast.watch
        .say(&format!("1. {POOL} asks for {}", stack.version));
    publish(cast, STACK, stack).await?;
    let plan = cast.programs.cli(&["stack", "plan", NODE], &[]).await?;
    println!("{}", plan.trim_end());
    for (package, _) in TUPLE {
        ensure!(
            plan.contains(&format!("package {package} ")),
            "the plan does not name {package}"
        );
    }
    ensure!(
        read_versions(cast, NODE).await? == all_of("absent"),
        "a plan has installed something"
    );
    converge(cast).await?;
    check_versions(cast, NODE, stack.version).await
}

async fn upgrades_through_a_power_cut(
    cast: &mut Cast<'_>,
    stack: &LockedStack,
) -> anyhow::Result<()> {
    cast.watch.say(&format!(
        "2. it asks for {}, and the power is cut while they are half configured",
        stack.version
    ));
    publish(cast, STACK, stack).await?;
    cast.veteran(NODE)?.run(&["touch", SLOW]).await?;
    cast.ask("converge", &[NODE], &["--reason", "the rehearsal"])
        .await?;
    let machine = std::sync::Arc::clone(cast.machine(NODE)?);
    let (client, veteran) = (cast.programs.client(), &cast.veterans[0]);
    let cut = cast.watch.until(
        client,
        "the packages to be half configured",
        CONVERGE,
        async |_| Ok(veteran.run(&["test", "-e", BUILDING]).await.is_ok()),
    );
    cut.await?;
    let half = read_versions(cast, NODE).await?;
    ensure!(
        half != all_of("1.0") && half != all_of("2.0"),
        "nothing is half done: {half:?}"
    );
    cast.watch.say(&format!(
        "the power goes, and comes again; they are {}",
        half.join(", ")
    ));
    machine.power_cycle(Cause::Lab).await?;
    let ended = in_service(cast).await?;
    let log = cast.programs.client().operation_log(ended.id, 0).await?;
    let healed = log
        .items
        .iter()
        .any(|line| line.text.contains("was interrupted"));
    ensure!(
        healed,
        "the next run found nothing to finish: {:?}",
        log.items
    );
    let unlimited = log
        .items
        .iter()
        .any(|line| line.text.contains("without a limit of processes"));
    ensure!(
        !unlimited,
        "the job of the gates has no cgroup for its tools: {:?}",
        log.items
    );
    check_versions(cast, NODE, stack.version).await
}

async fn nobody_else_moves_them(cast: &mut Cast<'_>) -> anyhow::Result<()> {
    cast.watch
        .say("3. a foreign repository has something newer; apt and unattended-upgrades take it from wherever they may");
    let veteran = cast.veteran(NODE)?;
    let source = format!("deb [trusted=yes] file:{FOREIGN} /");
    veteran
        .run(&[&format!(
            "echo '{source}' >/etc/apt/sources.list.d/foreign.list"
        )])
        .await?;
    let everywhere = "Unattended-Upgrade::Origins-Pattern { \"site=*\"; \"origin=*\"; };";
    veteran
        .run(&[&format!(
            "echo '{everywhere}' >/etc/apt/apt.conf.d/99everywhere"
        )])
        .await?;
    veteran.run(&["apt-get -q update"]).await?;
    let unpinned = "apt-get -s -o Dir::Etc::PreferencesParts=/dev/null dist-upgrade";
    let would = veteran.run(&[unpinned]).await?;
    ensure!(
        would.contains("Inst drv-meta [2.0] (3.0"),
        "nothing would move them without the pins: {would}"
    );
    for moving in [
        "upgrade",
        "dist-upgrade",
        "install drv-fabric",
        "install --only-upgrade drv-meta",
    ] {
        veteran
            .run(&[&format!(
                "DEBIAN_FRONTEND=noninteractive apt-get -y {moving}"
            )])
            .await?;
        check_versions(cast, NODE, "2.0")
            .await
            .with_context(|| format!("apt-get {moving}"))?;
    }
    let said = cast
        .veteran(NODE)?
        .run(&["unattended-upgrade -v --no-minimal-upgrade-steps 2>&1"])
        .await?;
    println!("{}", said.trim_end());
    check_versions(cast, NODE, "2.0")
        .await
        .context("unattended-upgrade")
}

async fn hands_are_found(cast: &mut Cast<'_>) -> anyhow::Result<()> {
    cast.watch.say("4. somebody takes them back by hand, edits a file, sets a kernel parameter, stops a service");
    let names: Vec<String> = TUPLE
        .iter()
        .map(|(name, _)| format!("{name}=1.0"))
        .collect();
    let back = format!(
        "DEBIAN_FRONTEND=noninteractive apt-get -y --allow-downgrades install {}",
        names.join(" ")
    );
    for hand in [
        back.as_str(),
        "echo NCCL_DEBUG=INFO >/etc/nccl.conf",
        "sysctl -q -w vm.swappiness=60",
        &format!("systemctl stop {SERVICE}"),
    ] {
        cast.veteran(NODE)?.run(&[hand]).await?;
    }
    let told = cast
        .programs
        .cli(&["stack", "drift", NODE, "--look"], &[])
        .await?;
    println!("{}", told.trim_end());
    let mut named: Vec<String> = TUPLE
        .iter()
        .map(|(name, _)| format!("package {name}"))
        .collect();
    named.extend([
        "file /etc/nccl.conf".into(),
        format!("service {SERVICE}"),
        "sysctl vm.swappiness".into(),
    ]);
    named.sort();
    let drift = cast.programs.client().node_drift(NODE).await?;
    let mut found: Vec<&str> = drift.items.iter().map(|item| item.item.as_str()).collect();
    found.sort_unstable();
    ensure!(
        found == named,
        "{found:?} were found, and {named:?} were changed"
    );
    check_versions(cast, NODE, "1.0")
        .await
        .context("a look mends nothing")?;
    converge(cast).await?;
    check_versions(cast, NODE, "2.0").await?;
    let told = cast
        .programs
        .cli(&["stack", "drift", NODE, "--look"], &[])
        .await?;
    ensure!(
        told.contains("no difference"),
        "something was left:\n{told}"
    );
    Ok(())
}

async fn a_full_disk_is_told(cast: &mut Cast<'_>, stack: &LockedStack) -> anyhow::Result<()> {
    cast.watch.say(&format!(
        "5. {POOL} goes back to {}, and the disk is full",
        stack.version
    ));
    publish(cast, STACK, stack).await?;
    let fill = format!(
        "fallocate -l $(($(df --output=avail -B1 / | tail -1) - {LEFT_FREE})) /root/filler"
    );
    cast.veteran(NODE)?.run(&[&fill]).await?;
    cast.ask("converge", &[NODE], &["--reason", "the rehearsal"])
        .await?;
    let client = cast.programs.client();
    let mut reason = String::new();
    let failed = cast.watch.until(
        client,
        "the full disk to be told",
        CONVERGE,
        async |fleet| {
            reason = fleet
                .get(NODE)
                .and_then(|node| node.reason.clone())
                .unwrap_or_default();
            Ok(state(fleet, NODE) == "failed")
        },
    );
    failed.await?;
    ensure!(
        reason.contains("MiB are free on /"),
        "another reason: {reason}"
    );
    println!("{}", cast.ask("why", &[NODE], &[]).await?.trim_end());
    check_versions(cast, NODE, "2.0").await?;
    cast.veteran(NODE)?
        .run(&["rm", "/root/filler"])
        .await
        .map(drop)
}

async fn a_lock_is_waited_for(cast: &mut Cast<'_>) -> anyhow::Result<()> {
    cast.watch
        .say("6. there is room again, and another package manager is at work");
    let script = cast.dir.join("pins/hold.pl");
    std::fs::write(&script, HOLD)?;
    cast.veteran(NODE)?.give(&script, "/root/hold.pl").await?;
    cast.veteran(NODE)?
        .run(&["systemd-run --unit=other-packages perl /root/hold.pl"])
        .await?;
    cast.veteran(NODE)?
        .run(&[HELD])
        .await
        .context("nobody holds the lock")?;
    cast.ask("retry", &[NODE], &["--reason", "there is room again"])
        .await?;
    let client = cast.programs.client();
    let waits = cast.watch.until(
        client,
        "the lock to be waited for",
        CONVERGE,
        async |fleet| {
            let why = fleet
                .get(NODE)
                .and_then(|node| node.why.waiting_for.clone())
                .unwrap_or_default();
            Ok(why.contains("(perl)") && why.contains("/var/lib/dpkg/lock-frontend"))
        },
    );
    waits.await?;
    println!("{}", cast.ask("why", &[NODE], &[]).await?.trim_end());
    let mut told = None;
    let heard = cast
        .watch
        .until(client, "the lock to be told", CONVERGE, async |_| {
            let timeline = client.node_timeline(NODE).await?.items;
            told = timeline
                .into_iter()
                .map(|entry| entry.summary)
                .find(|summary| summary.contains(LOCK_TOLD));
            Ok(told.is_some())
        });
    heard.await?;
    cast.watch.say(&told.unwrap_or_default());
    check_versions(cast, NODE, "2.0").await?;
    cast.veteran(NODE)?
        .run(&["systemctl stop other-packages"])
        .await?;
    in_service(cast).await?;
    check_versions(cast, NODE, "1.0").await
}

async fn leaves_with_its_lock(options: &DemoOptions, cast: &mut Cast<'_>) -> anyhow::Result<()> {
    cast.watch
        .say("7. the pool asks for the stack of before again");
    put(
        cast.programs.client(),
        "stacks",
        STACK,
        declare::stack(options)?,
    )
    .await?;
    converge(cast).await?;
    ensure!(
        read_versions(cast, NODE).await? == all_of("absent"),
        "they are there still: {:?}",
        read_versions(cast, NODE).await?
    );
    let left = cast
        .veteran(NODE)?
        .run(&["ls /usr/bin/unattended-upgrade /etc/nccl.conf 2>/dev/null || true"])
        .await?;
    ensure!(left.trim().is_empty(), "left behind: {left}");
    cast.serves(NODE).await
}

async fn converge(cast: &Cast<'_>) -> anyhow::Result<()> {
    cast.ask(
        "converge",
        &[NODE],
        &["--reason", "the rehearsal", "--wait", "--timeout", "10m"],
    )
    .await
    .map(drop)
}

/// Waits for the success of the node's latest operation.
async fn in_service(cast: &mut Cast<'_>) -> anyhow::Result<Operation> {
    let client = cast.programs.client();
    let mut last = None;
    let serves = cast
        .watch
        .until(client, "the node to serve again", CONVERGE, async |fleet| {
            let operation = newest(client).await?;
            ensure!(
                !matches!(state(fleet, NODE), "failed" | "quarantined"),
                "{NODE} is {}",
                state(fleet, NODE)
            );
            let over = operation.done && state(fleet, NODE) == "in_service";
            last = Some(operation);
            Ok(over)
        });
    serves.await?;
    last.context("nothing was asked of the node")
}

/// Returns the node's latest operation.
async fn newest(client: &Client) -> anyhow::Result<Operation> {
    let page = client.list_operations(&[("limit", "1")]).await?;
    match page.items.into_iter().next() {
        Some(operation) => Ok(client.operation(operation.id).await?),
        None => bail!("nothing was asked of anybody"),
    }
}
