//! Builds the order of a job when an agent leases the job. Secrets are opened here, go to the
//! agent, and are stored nowhere else.

mod adopt; // The first login to a running machine
mod bmc; // BMCs and BMC passwords
mod boot; // Boots of the live image and of the installed system
mod certificates; // SSH user certificates of logins
mod cluster; // Members: entry, drain and removal
mod firmware; // Firmware and BIOS, as required by the stack
mod gates; // The gates of a suite, and the sweep of a pool
mod image; // The image for the root disk
mod inventory; // The facts of a machine
mod logins; // Logins to the live image and to the installed system
mod network; // The network configuration of an installation
mod offers; // The new SSH user CA in orders
mod pair; // Measurements between two nodes
mod power; // Power on, off and cycle
mod revoked; // Revoked SSH certificates
mod sources; // The data behind an order
mod stack; // The stack, resolved for one node
mod wipe; // The disks to erase

use jiff::Timestamp;
use muster_core::lifecycle::steps::Step;
use muster_core::wire::job::{Job, JobSpec, Origin};
use muster_core::wire::orders::readable;
use sqlx::PgConnection;

use self::sources::{Sources, SubnetDocument};
use crate::app::App;
use crate::db;
use crate::db::jobs::LeasedRow;

pub use self::bmc::secret_place;
pub use self::cluster::members;

/// Builds the job for a leased row.
///
/// # Errors
///
/// When a declared object required by the step is missing, or a secret cannot be opened. The text
/// is a sentence for the author of the declaration.
pub async fn build(
    app: &App,
    conn: &mut PgConnection,
    row: &LeasedRow,
    now: Timestamp,
) -> anyhow::Result<Job> {
    let (sources, subnet) = sources::load(&app.keys, conn, row, now).await?;
    let step = row.step;
    let spec = build_spec(conn, &sources, &subnet, step).await?;
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
        origin: row.operation.map(|operation| Origin {
            operation,
            request_id: row.request_id.clone(),
        }),
        epoch: row.epoch,
        timeout_s: u64::try_from(row.timeout_s)
            .unwrap_or(0)
            .max(longest_s(&spec)),
        acts: db::acts::list(conn, row.id, row.round, now).await?,
        revoked_keys: revoked::find(conn, &sources).await?,
        spec,
    })
}

/// Builds the job for a leased row in the form that an agent with this header value reads.
///
/// # Errors
///
/// As of [`build`].
pub async fn build_for(
    app: &App,
    conn: &mut PgConnection,
    row: &LeasedRow,
    declared: Option<&str>,
    now: Timestamp,
) -> anyhow::Result<Job> {
    let job = readable(declared, build(app, conn, row, now).await?);
    offers::record_offer(app, conn, &job).await?;
    Ok(job)
}

/// Returns the time needed by an order beyond the usual time of its step, in seconds.
fn longest_s(spec: &JobSpec) -> u64 {
    if let JobSpec::Gates { plan, .. } = spec {
        gates::longest_s(plan)
    } else {
        0
    }
}

/// Returns the kind of a step's order. Before building the order, the server checks that the agent
/// can read the kind.
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
        Step::Admit => "admit",
        Step::Drain | Step::Hold => "drain",
        Step::Pair => "pair",
        Step::Remove => "remove",
        Step::Wipe => "wipe",
    }
}

async fn build_spec(
    conn: &mut PgConnection,
    s: &Sources<'_>,
    subnet: &SubnetDocument,
    step: Step,
) -> anyhow::Result<JobSpec> {
    match step {
        Step::BootLive => boot::order_live(conn, s).await,
        Step::Inventory => inventory::order(conn, s).await,
        Step::PowerOff => power::order_off(conn, s).await,
        Step::PowerOn => power::order_on(conn, s).await,
        Step::PowerCycle => power::order_cycle(conn, s).await,
        Step::Firmware | Step::FirmwareLook => {
            Ok(JobSpec::Firmware(firmware::order(conn, s, step).await?))
        }
        Step::RotateBmc => Ok(JobSpec::RotateBmc(bmc::rotate(conn, s).await?)),
        Step::WriteImage => image::order(conn, s, subnet).await,
        Step::BootDisk => boot::order_disk(conn, s).await,
        Step::Converge | Step::Recheck => stack::order_converge(conn, s).await,
        Step::Drift => stack::order_drift(conn, s).await,
        Step::Adopt => Ok(JobSpec::Adopt(adopt::order(conn, s).await?)),
        Step::Reboot | Step::RebootTest => boot::order_reboot(conn, s).await,
        Step::Gates | Step::GatesAfterReboot => gates::order(conn, s).await,
        Step::Sweep => gates::order_sweep(conn, s).await,
        Step::Admit => cluster::order_admit(conn, s).await,
        Step::Pair => Ok(JobSpec::Pair(Box::new(pair::order(conn, s).await?))),
        Step::Hold => cluster::order_hold(s),
        Step::Drain => cluster::order_drain(conn, s).await,
        Step::Remove => cluster::order_remove(conn, s).await,
        Step::Wipe => wipe::order(conn, s).await,
    }
}
