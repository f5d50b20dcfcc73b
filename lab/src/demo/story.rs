//! The acts of the main job, in order. Every act has a deadline. An act ends when the API confirms
//! the effect, and the machine confirms a physical effect too.

use anyhow::{Context, ensure};
use muster_api::claims::{ClaimSpec, CreateClaim};
use muster_api::client::Client;

use super::cast::{BAD_DISK, DEGRADED, FAILING, GOOD, LONG, SHORT, SMALL, state};
use super::chaos::Chaos;
use super::jobs::start_job;
use super::oracle::Written;
use super::programs::Programs;
use super::watch::Watch;
use super::{
    Adoption, DemoOptions, Disturbance, adopt, cabling, change, declare, firmware, hold, network,
    oracle, report, shared,
};
use crate::machine::PowerState;
use crate::machine::oracle::Cause;
use crate::nfs::Nfs;
use crate::slurm::Slurm;
use crate::{Rack, RackPlan};

pub(super) async fn tell(
    options: &DemoOptions,
    rack: &Rack,
    slurm: &Slurm,
    nfs: &Nfs,
    programs: &Programs,
) -> anyhow::Result<()> {
    let client = programs.client();
    let watch = Watch::new();
    watch.say(&format!(
        "the console is at {} (user admin, password {})",
        programs.url(),
        programs.password()
    ));
    watch.say(&format!("machines run by {}", rack.accel));
    watch.say("declare the site, its images, the stack, the suite, the cluster, and three nodes");
    declare::site(client, options).await?;
    programs.start_agent(client).await?;
    let plan = planned(rack)?;
    declare::fleet(client, options, &plan, slurm).await?;
    if options.adoption == Adoption::Alone {
        let veteran = adopt::switch_on(options, rack, slurm, &plan, &watch).await?;
        veteran.join(options, slurm).await?;
        return adopt::tell(options, rack, slurm, programs, &veteran, &watch).await;
    }
    let disturbed = options.disturbance == Disturbance::Kills;
    let mut chaos = Chaos::new(disturbed);
    let mut written = match disturbed {
        true => Some(Written::new(
            hold::stranger_arrives(rack, options, &watch).await?,
        )),
        false => None,
    };
    inspect(rack, client, &watch).await?;
    cabling::is_told(programs, &watch).await?;
    if disturbed {
        hold::stranger_is_left_alone(rack, client, &watch).await?;
    }
    serve(rack, programs, client, &watch, &mut chaos, written.as_mut()).await?;
    let veteran = match options.adoption {
        Adoption::Also => Some(adopt::switch_on(options, rack, slurm, &plan, &watch).await?),
        Adoption::None | Adoption::Alone => None,
    };
    let joining = async {
        match &veteran {
            Some(veteran) => veteran.join(options, slurm).await,
            None => Ok(()),
        }
    };
    let serving = use_and_leave(options, rack, slurm, nfs, programs, &watch);
    // An act keeps only a single emulated processor busy, so both acts run at the same time.
    let ((), job) = tokio::try_join!(joining, serving)?;
    chaos.finish()?;
    if let Some(written) = written {
        written.check(&watch)?;
    }
    if let Some(veteran) = &veteran {
        adopt::tell(options, rack, slurm, programs, veteran, &watch).await?;
    }
    oracle::check_acts(rack, client, &watch).await?;
    report::print(client, &[GOOD, FAILING, SMALL], &job, &options.dir).await
}

fn planned(rack: &Rack) -> anyhow::Result<RackPlan> {
    let text = std::fs::read(rack.dir.join("rack.json")).context("the rack's plan")?;
    Ok(serde_json::from_slice(&text)?)
}

/// Accepts all nodes. Every node boots into the live image and is inspected. Two nodes become
/// available. The machine with too little memory may still be on the way into quarantine.
async fn inspect(rack: &Rack, client: &Client, watch: &Watch) -> anyhow::Result<()> {
    watch.say("accept three powered-off machines");
    for node in [GOOD, FAILING, SMALL] {
        client.node_action(node, "accept", Some("the demo")).await?;
    }
    let button = &rack.slot(SMALL)?.machine;
    let mut pressed = false;
    let ended = watch.until(client, "inspection", LONG, async |fleet| {
        let small = fleet.get(SMALL);
        let asked = small.is_some_and(|status| {
            status
                .why
                .waiting_for
                .as_deref()
                .is_some_and(|text| text.contains("the lab"))
        });
        if asked && !pressed && button.power() == PowerState::Off {
            button.press_button(Cause::Button).await?;
            pressed = true;
        }
        for node in [GOOD, FAILING] {
            ensure!(
                !matches!(state(fleet, node), "failed" | "quarantined"),
                "{node} did not become available"
            );
        }
        ensure!(
            state(fleet, SMALL) != "available",
            "{SMALL} has less memory than its profile and was let through"
        );
        // The small machine has no BMC. The machine counts as off after half a minute without SSH.
        let compared = small.is_some_and(|status| status.facts_observed_at.is_some());
        Ok(compared && state(fleet, GOOD) == "available" && state(fleet, FAILING) == "available")
    });
    ended.await
}

/// Claims two nodes. A claimed node gets the image and the stack, runs the gates, and joins Slurm.
/// The first node enters service, but the disk of the second node fails earlier. The third machine
/// must end in quarantine.
async fn serve(
    rack: &Rack,
    programs: &Programs,
    client: &Client,
    watch: &Watch,
    chaos: &mut Chaos,
    mut written: Option<&mut Written>,
) -> anyhow::Result<()> {
    watch.say(&format!(
        "claim {GOOD} and {FAILING} for the pool; a disk of {FAILING} will raise a critical warning"
    ));
    for node in [GOOD, FAILING] {
        let spec = ClaimSpec::new("cpu", Some(node.into()), None);
        client
            .create_claim(&CreateClaim {
                name: Some(format!("claim-{node}").parse()?),
                spec,
            })
            .await?;
    }
    let failing = &rack.slot(FAILING)?.machine;
    let served = watch.until(client, "service", LONG, async |fleet| {
        chaos.watch(rack, programs, client).await?;
        if let Some(written) = &mut written {
            written.look(rack).await?;
        }
        if matches!(state(fleet, FAILING), "installing" | "validating")
            && failing.power() == PowerState::On
        {
            // The emulated disk loses the warning at every boot. A real disk keeps the warning.
            failing.set_nvme_warning(BAD_DISK, DEGRADED).await.ok();
        }
        ensure!(
            !matches!(state(fleet, GOOD), "failed" | "quarantined"),
            "{GOOD} did not get into service"
        );
        ensure!(
            !matches!(state(fleet, FAILING), "failed" | "in_service"),
            "{FAILING} was not stopped by its gates"
        );
        ensure!(
            state(fleet, SMALL) != "available",
            "{SMALL} has less memory than its profile and was let through"
        );
        Ok(state(fleet, GOOD) == "in_service"
            && state(fleet, FAILING) == "quarantined"
            && state(fleet, SMALL) == "quarantined")
    });
    served.await
}

/// Uses the nodes from the firmware check until the release. Returns the report of the job.
async fn use_and_leave(
    options: &DemoOptions,
    rack: &Rack,
    slurm: &Slurm,
    nfs: &Nfs,
    programs: &Programs,
    watch: &Watch,
) -> anyhow::Result<String> {
    let client = programs.client();
    let disturbed = options.disturbance == Disturbance::Kills;
    firmware::holds(rack, client, watch, &[GOOD, FAILING]).await?;
    let job = run_a_job(slurm, watch).await?;
    shared::is_served(client, slurm, nfs, watch).await?;
    if disturbed {
        change::recover(rack, client).await?;
    }
    network::check_network(rack, slurm, watch).await?;
    if disturbed {
        change::run(options, rack, slurm, programs, watch).await?;
    }
    leave(options, rack, slurm, client, watch).await?;
    Ok(job)
}

/// Runs a job on the admitted node. Returns the output of `sinfo` and of the job.
async fn run_a_job(slurm: &Slurm, watch: &Watch) -> anyhow::Result<String> {
    watch.say(&format!("srun on {GOOD}"));
    let said = slurm
        .srun(&["-p", "gpu", "-D", "/", "-w", GOOD, "uname", "-a"])
        .await?;
    ensure!(said.contains(GOOD), "srun ran elsewhere: {said}");
    Ok(format!(
        "{}\n$ srun -p gpu -D / -w {GOOD} uname -a\n{said}",
        slurm.sinfo().await?
    ))
}

/// Releases the good node. A run with faults also releases the failing node at the same time, with
/// a bad BMC.
async fn leave(
    options: &DemoOptions,
    rack: &Rack,
    slurm: &Slurm,
    client: &Client,
    watch: &Watch,
) -> anyhow::Result<()> {
    let turning_bad = async {
        match options.disturbance {
            Disturbance::Kills => hold::bad_bmc(rack, client, watch).await,
            Disturbance::None => Ok(()),
        }
    };
    tokio::try_join!(release(rack, slurm, client, watch), turning_bad)?;
    Ok(())
}

/// Releases a node. The running job ends first. The node then leaves Slurm, is wiped and inspected,
/// and becomes available again.
async fn release(rack: &Rack, slurm: &Slurm, client: &Client, watch: &Watch) -> anyhow::Result<()> {
    watch.say(&format!(
        "start a job of 20 s on {GOOD} and release its claim at once"
    ));
    let mut job = start_job(slurm, client, watch, "20", &[]).await?;
    let claim = client.get::<ClaimSpec>(&format!("claim-{GOOD}")).await?;
    client
        .erase_claim(claim.name.as_str(), claim.generation)
        .await?;
    let mut finished = None;
    let drained = watch.until(client, "the drain", SHORT, async |fleet| {
        finished = finished.or(job.try_wait()?);
        Ok(!matches!(state(fleet, GOOD), "in_service" | "draining"))
    });
    drained.await?;
    // The process `srun` ends a moment after the job.
    let ended = match finished {
        Some(status) => status,
        None => tokio::time::timeout(SHORT, job.wait())
            .await
            .context("the job does not end")??,
    };
    ensure!(
        ended.success(),
        "the job did not end by itself before the node left"
    );
    gone(slurm).await?;
    slurm.restart().await?;
    gone(slurm).await?;
    watch.say("the node is out of Slurm, also after slurmctld was restarted");
    let back = watch.until(client, "the wipe and the inspection", LONG, async |fleet| {
        ensure!(
            !matches!(state(fleet, GOOD), "failed" | "quarantined"),
            "{GOOD} did not come back"
        );
        Ok(state(fleet, GOOD) == "available")
    });
    back.await?;
    oracle::disks_are_clean(rack, GOOD, watch)
}

async fn gone(slurm: &Slurm) -> anyhow::Result<()> {
    let listed = slurm.sinfo().await?;
    ensure!(
        !listed.split_whitespace().any(|word| word == GOOD),
        "{GOOD} is still in Slurm:\n{listed}"
    );
    Ok(())
}
