//! Guarantees during faults. A node boots from its disk with server and agent dead. A BMC that
//! refuses logins or hangs gives its own node a clear reason and leaves other nodes unaffected.

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use muster_api::claims::ClaimSpec;
use muster_api::client::Client;
use muster_api::nodes::NodeSpec;

use super::DemoOptions;
use super::cast::{FAILING, GOOD, LONG, state};
use super::programs::Programs;
use super::watch::Watch;
use crate::Rack;
use crate::bmc::faults::{Fault, FaultKind};
use crate::machine::PowerState;
use crate::machine::console::CONSOLE_LOG;
use crate::machine::oracle::Cause;
use crate::parts::Part;
use crate::plan::{STRANGER, STRANGER_DISK};

/// Address and SSH port of the failing node's installed OS.
const FAILING_SSH: ([u8; 4], u16) = ([10, 77, 0, 12], 22);
const BOOT_LIMIT: Duration = Duration::from_secs(6 * 60);

/// Switches on an undeclared machine with an OS on its disk. Returns the number of bytes stored by
/// a single write of the image.
pub(super) async fn stranger_arrives(
    rack: &Rack,
    options: &DemoOptions,
    watch: &Watch,
) -> anyhow::Result<u64> {
    watch.say("a machine that nobody declared, with an OS on its disk, is switched on");
    let machine = &rack.slot(STRANGER)?.machine;
    machine
        .image_disk(STRANGER_DISK, &options.artifacts.image())
        .await?;
    let stored = machine.disk_use(STRANGER_DISK)?.stored;
    machine.press_button(Cause::Button).await?;
    Ok(stored)
}

/// Checks that the undeclared machine came up from its own disk in its first boot. The node must be
/// shown as `discovered`. At the end the machine is powered off.
pub(super) async fn stranger_is_left_alone(
    rack: &Rack,
    client: &Client,
    watch: &Watch,
) -> anyhow::Result<()> {
    let machine = &rack.slot(STRANGER)?.machine;
    let console = machine.dir.join(CONSOLE_LOG);
    let up = watch.until(
        client,
        "the undeclared machine to boot from its disk",
        BOOT_LIMIT,
        async |_| Ok(String::from_utf8_lossy(&std::fs::read(&console)?).contains("login:")),
    );
    up.await?;
    ensure!(machine.boots() == 1, "it took {} boots", machine.boots());
    let nodes = client.list_all::<NodeSpec>(None).await?;
    let seen = nodes
        .iter()
        .find(|node| {
            node.spec
                .macs
                .iter()
                .any(|known| known.mac == machine.plan.mac)
        })
        .context("it is not among the nodes")?;
    ensure!(
        seen.status.state == "discovered",
        "it is {}, not discovered",
        seen.status.state
    );
    watch.say(&format!(
        "it booted from its disk, untouched, and is shown as {} ({})",
        seen.name, seen.status.state
    ));
    Ok(machine.power_off(Cause::Lab).await?)
}

/// Kills server and agent, and switches a node off and on again. The node must boot from its own
/// disk without an answer from Muster. Both programs are restarted at the end.
pub(super) async fn boots_alone(
    rack: &Rack,
    programs: &Programs,
    watch: &Watch,
) -> anyhow::Result<()> {
    watch.say(&format!(
        "server and agent are killed; {FAILING} loses its power and is switched on again"
    ));
    programs.kill(Part::Agent).await?;
    programs.kill(Part::Server).await?;
    let machine = &rack.slot(FAILING)?.machine;
    machine.power_off(Cause::Lab).await?;
    machine
        .wait_for_power(PowerState::Off, Duration::from_secs(30))
        .await?;
    machine.press_button(Cause::Button).await?;
    let asked = Instant::now();
    while !answers(rack).await? {
        if asked.elapsed() > BOOT_LIMIT {
            bail!(
                "{FAILING} did not come up from its disk in {} s without server and agent",
                BOOT_LIMIT.as_secs()
            );
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    watch.say(&format!(
        "{FAILING} booted from its disk in {} s, alone",
        asked.elapsed().as_secs()
    ));
    programs.start_again(Part::Server).await?;
    programs.start_again(Part::Agent).await
}

/// Returns whether an SSH server greets at the failing node's address.
async fn answers(rack: &Rack) -> anyhow::Result<bool> {
    let greeted = rack.netns.within(|| {
        use std::io::Read as _;
        let limit = Duration::from_secs(2);
        let mut stream = std::net::TcpStream::connect_timeout(&FAILING_SSH.into(), limit).ok()?;
        stream.set_read_timeout(Some(limit)).ok()?;
        let mut greeting = [0; 4];
        stream.read_exact(&mut greeting).ok()?;
        Some(greeting == *b"SSH-")
    })?;
    Ok(greeted == Some(true))
}

/// Releases the failing node while its BMC refuses the password. The node must fail with a reason
/// naming the credentials, without an account lockout. The release of the other node continues.
/// With the password accepted again, and after a simulated BMC hang, a retry completes the release.
pub(super) async fn bad_bmc(rack: &Rack, client: &Client, watch: &Watch) -> anyhow::Result<()> {
    let bmc = rack
        .slot(FAILING)?
        .bmc
        .as_ref()
        .context("the failing node has a BMC")?;
    watch.say(&format!(
        "the BMC of {FAILING} changes its password, and its claim is released"
    ));
    bmc.inject(Fault::always(FaultKind::PasswordChanged));
    let claim = client.get::<ClaimSpec>(&format!("claim-{FAILING}")).await?;
    client
        .erase_claim(claim.name.as_str(), claim.generation)
        .await?;
    let failed = watch.until(
        client,
        "the refused login to be told",
        LONG,
        async |fleet| {
            ensure!(
                !matches!(state(fleet, GOOD), "failed" | "quarantined"),
                "{GOOD} suffered from another node's BMC"
            );
            Ok(state(fleet, FAILING) == "failed")
        },
    );
    failed.await?;
    let reason = client
        .get::<NodeSpec>(FAILING)
        .await?
        .status
        .reason
        .unwrap_or_default();
    ensure!(
        reason.contains("credentials"),
        "the reason does not name the credentials: {reason}"
    );
    ensure!(
        bmc.lockouts() == 0,
        "the BMC locked an account {} times",
        bmc.lockouts()
    );
    watch.say(&format!("{FAILING} says why: {reason}"));
    bmc.clear_faults();
    bmc.inject(Fault::next(1, FaultKind::Hang));
    client
        .node_action(FAILING, "retry", Some("the BMC was mended"))
        .await?;
    let back = watch.until(client, "the retried release", LONG, async |fleet| {
        ensure!(
            !matches!(state(fleet, FAILING), "quarantined"),
            "{FAILING} did not come back"
        );
        Ok(state(fleet, FAILING) == "available")
    });
    back.await
}
