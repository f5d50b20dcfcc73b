//! Builds what an agent is told when it leases a job. Secrets are opened here, go to the agent, and are stored nowhere else.

mod adopt; // The first login to a machine that runs already
mod bmc; // BMCs, and their passwords
mod cluster; // Members as the scheduler must know them
mod firmware; // Firmware and BIOS, as the stack wants them of this machine
mod network; // The network that a node is installed with
mod pair; // Two nodes that measure each other
mod stack; // The stack, resolved for one node

use anyhow::{Context, anyhow, bail};
use jiff::Timestamp;
use muster_core::clusters::{ClusterSpec, LEAVING, MEASURED, SlurmCluster};
use muster_core::facts::Facts;
use muster_core::gates::xid::XidOverrides;
use muster_core::ids::PermitId;
use muster_core::lifecycle::state::State;
use muster_core::lifecycle::steps::Step;
use muster_core::stacks::ConvergePlan;
use muster_core::values::Digest;
use muster_core::wire::job::{BootLive, Job, JobSpec};
use muster_core::wire::login::Login;
use muster_core::wire::node::{GatePlan, WipePlan, WriteImage};
use serde::Deserialize;
use sqlx::PgConnection;

use crate::app::App;
use crate::db;
use crate::db::jobs::LeasedRow;
use crate::db::specs::{OrderNode, Wiring};
use crate::engine::compatibility::Onto;
use crate::engine::outcomes::wanted;
use crate::engine::waivers;
use crate::keys::Keys;

use self::bmc::power;
pub use self::bmc::secret_place;
pub use self::cluster::members;

/// Port of the agent's boot listener.
const BOOT_PORT: u16 = 8090;
const SSH_PORT: u16 = 22;
/// Beside the times of a suite's gates: log-ins, and the tools' start and end.
const GATES_MARGIN_S: u64 = 15 * 60;

/// Everything an order is built from.
struct Sources<'a> {
    keys: &'a Keys,
    row: &'a LeasedRow,
    node: OrderNode,
    wiring: Wiring,
    agent_address: std::net::Ipv4Addr,
    now: Timestamp,
}

/// Builds the job an agent gets for a leased row.
///
/// # Errors
/// When something the step needs is not declared or a secret cannot be opened: a sentence for the person who declared it.
pub async fn build(
    app: &App,
    conn: &mut PgConnection,
    row: &LeasedRow,
    now: Timestamp,
) -> anyhow::Result<Job> {
    let (sources, subnet) = sources(&app.keys, conn, row, now).await?;
    let step: Step = row.step.parse()?;
    let spec = spec(conn, &sources, &subnet, step).await?;
    anyhow::ensure!(
        spec.kind() == kind(step),
        "the order of {step} is of the kind {}, not {}",
        spec.kind(),
        kind(step)
    );
    Ok(Job {
        id: row.id,
        attempt: row.attempt,
        node: row.node,
        node_name: sources.node.name.clone(),
        epoch: row.epoch,
        timeout_s: u64::try_from(row.timeout_s)
            .unwrap_or(0)
            .max(longest_s(&spec)),
        acts: db::acts::list(conn, row.id, row.round, now).await?,
        spec,
    })
}

/// What an order may take by its own word: a suite with hours of load in it is not cut short by its step's usual time.
fn longest_s(spec: &JobSpec) -> u64 {
    match spec {
        JobSpec::Gates { plan, .. } => plan.suite.longest_s(&plan.only) + GATES_MARGIN_S,
        _ => 0,
    }
}

/// The kind of order that a step is given to an agent as: whether an agent can read it is asked before it is built.
pub fn kind(step: Step) -> &'static str {
    match step {
        Step::BootLive => "boot_live",
        Step::Inventory => "inventory",
        Step::PowerOff => "power_off",
        Step::PowerOn => "power_on",
        Step::PowerCycle => "power_cycle",
        Step::Firmware | Step::FirmwareLook => "firmware",
        Step::RotateBmc => "rotate_bmc",
        Step::WriteImage => "write_image",
        Step::BootDisk => "boot_disk",
        Step::Converge | Step::Recheck | Step::Drift => "converge",
        Step::Adopt => "adopt",
        Step::Reboot | Step::RebootTest => "reboot",
        Step::Gates | Step::GatesAfterReboot | Step::Sweep => "gates",
        Step::Admit => "slurm_admit",
        Step::Drain | Step::Hold => "slurm_drain",
        Step::Pair => "pair",
        Step::Remove => "slurm_remove",
        Step::Wipe => "wipe",
    }
}

async fn sources<'a>(
    keys: &'a Keys,
    conn: &mut PgConnection,
    row: &'a LeasedRow,
    now: Timestamp,
) -> anyhow::Result<(Sources<'a>, SubnetDocument)> {
    let node = db::specs::find_node(conn, row.node).await?;
    let wiring = db::specs::find_wiring(conn, row.node)
        .await?
        .ok_or_else(|| anyhow!("{} has no MAC with an address on a subnet", node.name))?;
    let subnet: SubnetDocument =
        serde_json::from_value(wiring.subnet.clone()).context("the subnet's spec")?;
    Ok((
        Sources {
            keys,
            row,
            node,
            wiring,
            agent_address: subnet.agent_address,
            now,
        },
        subnet,
    ))
}

async fn spec(
    conn: &mut PgConnection,
    s: &Sources<'_>,
    subnet: &SubnetDocument,
    step: Step,
) -> anyhow::Result<JobSpec> {
    Ok(match step {
        Step::BootLive => JobSpec::BootLive(boot_live(conn, s).await?),
        // Where no live image runs, it is the installed system that is looked at: a node in service is not rebooted for a look.
        Step::Inventory => inventory(conn, s).await?,
        Step::PowerOff => {
            // Its system is asked first, whichever it runs.
            let login = live(conn, s).await?.or_else(|| installed(s).ok());
            JobSpec::PowerOff {
                power: power(conn, s).await?,
                login,
                permit: permit(s)?,
            }
        }
        Step::PowerOn => JobSpec::PowerOn {
            power: power(conn, s).await?,
            permit: permit(s)?,
        },
        Step::Firmware => {
            stack::allow(conn, s, Onto::System).await?;
            JobSpec::Firmware(firmware::order(conn, s, step).await?)
        }
        Step::FirmwareLook => JobSpec::Firmware(firmware::order(conn, s, step).await?),
        Step::PowerCycle => JobSpec::PowerCycle {
            power: power(conn, s).await?,
            permit: permit(s)?,
        },
        Step::RotateBmc => JobSpec::RotateBmc(bmc::rotate(conn, s).await?),
        Step::WriteImage => {
            // What would be refused once it is there is not worth the disk.
            stack::allow(conn, s, Onto::Image).await?;
            JobSpec::WriteImage {
                login: live(conn, s).await?.context("no live image is pinned")?,
                plan: write_image(conn, s, subnet).await?,
            }
        }
        Step::BootDisk => JobSpec::BootDisk {
            power: power(conn, s).await?,
            login: installed(s)?,
            live: live(conn, s).await?,
            permit: permit(s)?,
        },
        Step::Converge | Step::Recheck => {
            stack::allow(conn, s, Onto::System).await?;
            JobSpec::Converge {
                login: installed(s)?,
                plan: stack::plan(conn, s).await?,
            }
        }
        Step::Drift => {
            let plan = ConvergePlan {
                dry_run: true,
                ..stack::plan(conn, s).await?
            };
            JobSpec::Converge {
                login: installed(s)?,
                plan,
            }
        }
        Step::Adopt => JobSpec::Adopt(adopt::order(conn, s).await?),
        Step::Reboot | Step::RebootTest => JobSpec::Reboot {
            power: power(conn, s).await?,
            login: installed(s)?,
            permit: permit(s)?,
        },
        Step::Gates | Step::GatesAfterReboot => {
            let login = live(conn, s).await?.map_or_else(|| installed(s), Ok)?;
            JobSpec::Gates {
                login,
                plan: gates(conn, s).await?,
            }
        }
        Step::Sweep => JobSpec::Gates {
            login: installed(s)?,
            plan: sweep(conn, s).await?,
        },
        Step::Admit => {
            let revision = db::specs::next_revision(conn).await?;
            let lifts = lifts(s.node.state).map(str::to_owned);
            JobSpec::SlurmAdmit {
                cluster: slurm(s)?,
                revision,
                name: s.node.name.clone(),
                login: installed(s)?,
                lifts,
            }
        }
        Step::Pair => JobSpec::Pair(Box::new(pair::order(conn, s).await?)),
        Step::Hold => drain(s, MEASURED)?,
        Step::Drain => drain(s, LEAVING)?,
        Step::Remove => {
            let revision = db::specs::next_revision(conn).await?;
            JobSpec::SlurmRemove {
                cluster: slurm(s)?,
                revision,
                name: s.node.name.clone(),
            }
        }
        Step::Wipe => JobSpec::Wipe {
            login: live(conn, s).await?.context("no live image is pinned")?,
            plan: WipePlan {
                permit: permit(s)?,
                operation: s.row.operation.context("the job has no operation")?,
                claim: db::specs::find_last_claim(conn, s.row.node).await?,
                disk_serials: disks(facts(conn, s).await?),
            },
        },
    })
}

/// What of a subnet's spec an order needs.
#[derive(Deserialize)]
struct SubnetDocument {
    network: ipnet::Ipv4Net,
    agent_address: std::net::Ipv4Addr,
    #[serde(default)]
    gateway: Option<std::net::Ipv4Addr>,
    #[serde(default)]
    dns: Vec<std::net::Ipv4Addr>,
}

/// What of a site's spec an order needs.
#[derive(Deserialize)]
struct SiteDocument {
    #[serde(default)]
    live: Option<LiveDocument>,
    #[serde(default)]
    xid: Option<XidOverrides>,
}

#[derive(Deserialize)]
struct LiveDocument {
    kernel: Digest,
    initrd: Digest,
}

async fn boot_live(conn: &mut PgConnection, s: &Sources<'_>) -> anyhow::Result<BootLive> {
    let site: SiteDocument =
        serde_json::from_value(s.node.site_spec.clone()).context("the site's spec")?;
    let image = site
        .live
        .context("the site declares no live image (spec.live)")?;
    let nonce = s.row.nonce.clone().context("the job has no nonce")?;
    Ok(BootLive {
        power: power(conn, s).await?,
        permit: permit(s)?,
        macs: s.wiring.macs.clone(),
        address: s.wiring.address,
        user_key: s
            .keys
            .certify(&format!("muster-live:{nonce}"), &s.row.id.to_string())?,
        nonce,
        kernel: image.kernel,
        initrd: image.initrd,
        expect_uuid: s.node.smbios_uuid.clone(),
        expect_serial: s.node.serial.clone(),
    })
}

fn permit(s: &Sources<'_>) -> anyhow::Result<PermitId> {
    s.row.permit.context("the job has no permit")
}

/// What the node has, and in the live image what is at the other ends of its declared cables: an installed system listens to no switch.
async fn inventory(conn: &mut PgConnection, s: &Sources<'_>) -> anyhow::Result<JobSpec> {
    let Some(login) = live(conn, s).await? else {
        return Ok(JobSpec::Inventory {
            login: installed(s)?,
            cabled: Vec::new(),
        });
    };
    let planned = db::cabling::find_plan_of(conn, s.row.node).await?;
    let cables = planned.map(|(node, plan)| {
        plan.cables
            .into_iter()
            .filter(move |cable| cable.node == node)
    });
    Ok(JobSpec::Inventory {
        login,
        cabled: cables
            .into_iter()
            .flatten()
            .map(|cable| cable.nic)
            .collect(),
    })
}

/// A login to the live image, while one is pinned.
async fn live(conn: &mut PgConnection, s: &Sources<'_>) -> anyhow::Result<Option<Login>> {
    let Some(host_key) = s.node.live_host_key.clone() else {
        return Ok(None);
    };
    let Some(nonce) = db::specs::find_live_nonce(conn, s.row.node).await? else {
        return Ok(None);
    };
    let user_key = s
        .keys
        .certify(&format!("muster-live:{nonce}"), &s.row.id.to_string())?;
    Ok(Some(Login {
        address: s.wiring.address,
        port: SSH_PORT,
        host_key,
        user_key,
    }))
}

/// A login to the installed OS.
fn installed(s: &Sources<'_>) -> anyhow::Result<Login> {
    let host_key = s
        .node
        .os_host_key
        .clone()
        .context("no installed OS is known")?;
    let user_key = s.keys.certify(&principal(s), &s.row.id.to_string())?;
    Ok(Login {
        address: s.wiring.address,
        port: SSH_PORT,
        host_key,
        user_key,
    })
}

/// Who may log in to the installed OS: this node at the assignment epoch it was imaged for.
fn principal(s: &Sources<'_>) -> String {
    format!("muster:{}:{}", s.node.id, s.node.os_epoch)
}

fn boot_url(s: &Sources<'_>, path: &str) -> String {
    format!("http://{}:{BOOT_PORT}/boot/v1/{path}", s.agent_address)
}

async fn facts(conn: &mut PgConnection, s: &Sources<'_>) -> anyhow::Result<Facts> {
    db::facts::latest_live(conn, s.row.node)
        .await?
        .context("the node was never inspected")
}

fn disks(facts: Facts) -> Vec<String> {
    let mut serials: Vec<String> = facts
        .disks
        .into_iter()
        .filter_map(|disk| disk.serial)
        .collect();
    serials.sort();
    serials
}

async fn write_image(
    conn: &mut PgConnection,
    s: &Sources<'_>,
    subnet: &SubnetDocument,
) -> anyhow::Result<WriteImage> {
    let image = s.node.image.as_ref().context("the pool names no image")?;
    let profile = s
        .node
        .profile
        .as_ref()
        .context("the node has no hardware profile")?;
    let facts = facts(conn, s).await?;
    Ok(WriteImage {
        permit: permit(s)?,
        operation: s.row.operation.context("the job has no operation")?,
        claim: s.node.claim.context("the node is not claimed")?,
        disk_serial: profile.root_disk(&facts)?.to_owned(),
        url: boot_url(s, &format!("blob/sha256/{}", image.digest.hex())),
        digest: image.digest,
        size: image.size,
        raw_digest: image.raw_digest,
        raw_size: image.raw_size,
        esp_partition: image.partitions.esp,
        root_partition: image.partitions.root,
        hostname: s.node.name.clone(),
        network: network::of(conn, s, subnet, &facts).await?,
        user_ca: s.keys.user_ca_line()?,
        // The OS that is about to be written knows this epoch, whatever was there before.
        principal: format!("muster:{}:{}", s.node.id, s.row.epoch),
    })
}

async fn gates(conn: &mut PgConnection, s: &Sources<'_>) -> anyhow::Result<GatePlan> {
    let suite = match db::specs::find_asked_suite(conn, s.row.operation).await? {
        Some(Ok(suite)) => suite,
        Some(Err(name)) => bail!("there is no suite {name} any more"),
        None => s.node.suite.clone().context("the pool names no suite")?,
    };
    let only = wanted(&suite, &s.row.step);
    let site: SiteDocument =
        serde_json::from_value(s.node.site_spec.clone()).context("the site's spec")?;
    let address = |address: std::net::Ipv4Addr| address.to_string();
    let waived_until = waivers::gates(conn, s.row.node, s.now).await?;
    Ok(GatePlan {
        only,
        suite,
        profile: s
            .node
            .profile
            .clone()
            .context("the node has no hardware profile")?,
        // Gates compare against pins and settings; they need no file's content, least of all a secret.
        stack: match s.node.claim {
            Some(_) => Some(stack::without_contents(stack::plan(conn, s).await?)),
            None => None,
        },
        variables: [
            ("agent_address".to_owned(), address(s.agent_address)),
            (
                "agent_url".to_owned(),
                boot_url(s, "").trim_end_matches('/').to_owned(),
            ),
            ("address".to_owned(), address(s.wiring.address)),
            ("hostname".to_owned(), s.node.name.clone()),
        ]
        .into(),
        in_use: false,
        waived: waived_until.keys().cloned().collect(),
        waived_until,
        health: db::sweeps::find_suite(conn, s.row.node, "smoke").await?,
        xid: site.xid,
        firmware: firmware::compared(conn, s).await?,
    })
}

/// Beside its jobs, when what needs a drained node is not run, unless its scheduler holds it back and said that no job runs there.
async fn sweep(conn: &mut PgConnection, s: &Sources<'_>) -> anyhow::Result<GatePlan> {
    let suite = db::sweeps::find_suite(conn, s.row.node, "sweep")
        .await?
        .context("the pool names no sweep")?;
    let in_use = !db::sweeps::is_alone(conn, s.row.node, s.row.operation).await?;
    Ok(GatePlan {
        suite,
        only: Vec::new(),
        in_use,
        ..gates(conn, s).await?
    })
}

/// The one drain of ours that a node is given back from: what its health check had it drained for meanwhile is not forgotten. One that comes through its
/// gates is given back from any.
fn lifts(state: State) -> Option<&'static str> {
    match state {
        State::InService => Some(MEASURED),
        State::Draining => Some(LEAVING),
        State::Admitting
        | State::Discovered
        | State::Inspecting
        | State::Available
        | State::Imaging
        | State::Installing
        | State::Validating
        | State::Repairing
        | State::Quarantined
        | State::Failed
        | State::Wiping
        | State::Maintenance
        | State::Retired => None,
    }
}

fn drain(s: &Sources<'_>, reason: &str) -> anyhow::Result<JobSpec> {
    Ok(JobSpec::SlurmDrain {
        cluster: slurm(s)?,
        name: s.node.name.clone(),
        reason: reason.to_owned(),
    })
}

fn slurm(s: &Sources<'_>) -> anyhow::Result<SlurmCluster> {
    match s
        .node
        .cluster
        .clone()
        .context("the pool names no cluster")?
    {
        ClusterSpec::Slurm(cluster) => Ok(cluster),
    }
}
