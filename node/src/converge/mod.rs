//! Brings the installed OS to its plan: observe, change the differences, observe again. The plan
//! alone decides the wanted state.
//!
//! Every run is the same. A run on a node that already matches starts only programs that read, and
//! writes no file. A run after a kill finishes the interrupted work, from dpkg's database and from
//! `pending`.

mod alternatives; // Groups of alternatives of the driver
mod apt; // Packages, in one transaction from the bundle
mod archives; // Archives for dpkg
mod cdi; // The specification of the GPUs for container runtimes
mod damage; // Changed files of the driver's packages
pub(crate) mod dkms; // Modules built on the node
pub(crate) mod dpkg; // dpkg's record and locks
pub mod file; // Files, written atomically
mod forecast; // apt's forecast of a transaction
mod heal; // Repair after a killed dpkg
mod item; // Wanted and found state of an item
pub(crate) mod kernel; // Settings, modules, command line, release
pub(crate) mod kernel_facts; // Releases, modules and the command line, from files
pub mod managed; // Configuration files made from the plan
mod misplaced; // Folders and other things in the place of files
pub(crate) mod module_file; // The file behind a module's name
mod pending; // Unfinished work of a killed run
mod postponed; // Service starts by packages
mod progress; // Progress of apt and dpkg, measured from outside
mod reboot; // A due reboot, and the units waiting for the reboot
mod record; // Packages and files brought by former locks, removed with the locks
mod report; // The report of a run
mod room; // Free space on the target file systems
pub(crate) mod services; // The stack's services
#[cfg(test)]
mod tests;
pub(crate) mod units; // systemd units as systemd and dpkg describe them

use std::collections::BTreeSet;

use muster_core::stacks::{ConvergePlan, ConvergeReport};
use muster_core::wire::node::{Failure, FailureCode};

use crate::failure::fatal;
use crate::files;
use crate::job::JobContext;
use crate::machine::Machine;
use cdi::Specification;
use file::Target;
use item::Item;
use pending::Pending;
use record::{LeavingPackages, Record};

pub(crate) use cdi::make_gpu_nodes;

/// Converges the machine muster-node runs on.
///
/// # Errors
/// `bad_plan` for a plan with invalid content; otherwise the failure that stopped the run. After
/// every failure another run is allowed.
pub fn run(plan: &ConvergePlan, cx: &JobContext) -> Result<ConvergeReport, Failure> {
    run_on(&Machine::host(), plan, cx)
}

/// Converges a machine.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_on(
    machine: &Machine,
    plan: &ConvergePlan,
    cx: &JobContext,
) -> Result<ConvergeReport, Failure> {
    let problems = plan.problems();
    if !problems.is_empty() {
        return Err(fatal(
            FailureCode::BadPlan,
            problems[..problems.len().min(10)].join("; "),
        ));
    }
    let key = files::random()?;
    cx.progress("comparing the node with its plan", None, None, None);
    let wanted = Wanted::of(machine, plan)?;
    wanted
        .stay
        .iter()
        .for_each(|item| cx.log(&format!("{} is {}", item.name, item.wanted)));
    let before = observe(machine, plan, &wanted, &key, cx)?;
    if plan.dry_run {
        let mut asking = Vec::new();
        for target in &wanted.targets {
            asking.extend(reboot::asked_by_file(machine, target)?.then(|| target.item_name()));
        }
        return Ok(report::forecast(plan, &before, &asking));
    }
    let mut pending = Pending::load(machine)?;
    let settled = before.iter().all(|item| item.fits || item.by_reboot);
    pending.paths.extend(
        reboot::not_brought(machine, &before)?
            .into_iter()
            .map(str::to_owned),
    );
    let database = dpkg::Database::read(machine)?;
    if settled && pending.is_empty() && !database.interrupted {
        Record::load(machine)?.prune(machine, &database, plan)?;
        return report::conclude(plan, &before, &before);
    }
    note_debts(&mut pending, &before);
    pending.packages.extend(wanted.owners);
    pending.store(machine)?;
    change(machine, plan, &before, &mut pending, cx)?;
    cx.progress("comparing the node with its plan again", None, None, None);
    let after = observe(machine, plan, &Wanted::of(machine, plan)?, &key, cx)?;
    let report = report::conclude(plan, &before, &after)?;
    match item::held_back(&after) {
        // Units not restarted stay pending, because another plan may make the reboot unnecessary.
        true => pending.without_boot_files().store(machine)?,
        false => Pending::clear(machine)?,
    }
    Ok(report)
}

/// The plan applied to this node's present state; the arrival or removal of a package changes the
/// result.
struct Wanted {
    packages: LeavingPackages,
    targets: Vec<Target>,
    /// Written after the other files: the driver and its device nodes must be there.
    specification: Specification,
    /// Items removed from the stack that stay on the node, with the reason.
    stay: Vec<Item>,
    /// Packages whose files are restored to the content from before a stack.
    owners: BTreeSet<String>,
}

impl Wanted {
    fn of(machine: &Machine, plan: &ConvergePlan) -> Result<Self, Failure> {
        let record = Record::load(machine)?;
        let database = dpkg::Database::read(machine)?;
        let packages = record.leaving(machine, &database, plan)?;
        let specification = Specification::of(machine, plan, &database, &record)?;
        let leaving = record.leaving_files(machine, plan, specification.path())?;
        let mut targets = managed::files(plan)?;
        targets
            .iter_mut()
            .for_each(|target| target.former = record.wrote_openly(&target.path));
        if let Some(release) = kernel::chosen(machine, plan, &packages) {
            managed::boot_by_default(&mut targets, &release);
        }
        targets.extend(leaving.go);
        let stay = packages.items().chain(leaving.stay).collect();
        Ok(Self {
            packages,
            targets,
            specification,
            stay,
            owners: leaving.owners,
        })
    }
}

fn observe(
    machine: &Machine,
    plan: &ConvergePlan,
    wanted: &Wanted,
    key: &[u8; 32],
    cx: &JobContext,
) -> Result<Vec<Item>, Failure> {
    let database = dpkg::Database::read(machine)?;
    let mut items = database.items(plan, &wanted.packages.go);
    damage::mark(&mut items, &damage::find(machine, plan, &database, cx)?);
    items.extend(alternatives::items(machine, plan, cx)?);
    for target in managed::apt_files(plan).iter().chain(&wanted.targets) {
        items.push(target.observe(machine, key)?);
    }
    items.extend(wanted.specification.observe(machine, key)?);
    items.extend(kernel::items(machine, plan, cx)?);
    let held = item::held_back(&items);
    items.extend(services::items(machine, plan, held, cx)?);
    items.extend(wanted.stay.iter().cloned());
    Ok(items)
}

/// Records the coming changes, and so the units to restart and the files to rebuild.
fn note_debts(pending: &mut Pending, before: &[Item]) {
    for item in before.iter().filter(|item| !item.fits) {
        if let Some(name) = item.name.strip_prefix("package ") {
            pending.packages.insert(name.to_owned());
        }
        if let Some(path) = item.name.strip_prefix("file ") {
            pending.paths.insert(path.to_owned());
        }
        // A unit started before this change has to be started again.
        if ["package ", "file "]
            .iter()
            .any(|kind| item.name.starts_with(kind))
        {
            pending.begun.clear();
        }
    }
}

/// Applies the changes. Packages are first, because files may belong to users created by packages;
/// services are last, because services read the files.
fn change(
    machine: &Machine,
    plan: &ConvergePlan,
    before: &[Item],
    pending: &mut Pending,
    cx: &JobContext,
) -> Result<(), Failure> {
    cx.check()?;
    apt::write_sources(machine, plan)?;
    apt::converge(machine, plan, before, cx)?;
    alternatives::apply(machine, plan, cx)?;
    // Files, settings and boot files are written although a module is missing. Modules are not
    // loaded then, and services not started.
    let built = dkms::check(machine, plan, cx);
    cx.check()?;
    if let Err(failure) = &built {
        cx.log(&failure.message);
    }
    // Computed again, because a package may just have installed a file of the same name.
    write_files(machine, plan, &Wanted::of(machine, plan)?.targets, cx)?;
    let held = item::held_back(&kernel::items(machine, plan, cx)?);
    if held {
        cx.log(
            "a reboot is due: modules and services of the new kernel or driver wait for the reboot",
        );
    }
    kernel::apply(machine, plan, held || built.is_err(), cx)?;
    kernel::apply_boot(machine, pending, cx)?;
    cx.check()?;
    built?;
    services::reload(machine, plan, pending, cx)?;
    // A service may read the specification at its start. Device nodes may appear with services, so
    // the specification is written again at the end; the result of the last write counts.
    if let Err(failure) = cdi::apply(machine, plan, cx) {
        cx.log(&failure.message);
    }
    // A due boot starts the units. Units of the plan may need a postponed unit.
    if !held {
        postponed::start(machine, plan, cx)?;
    }
    services::apply(machine, plan, pending, held, cx)?;
    cdi::apply(machine, plan, cx)
}

/// Writes the differing files, and removes or restores the files that left the stack.
fn write_files(
    machine: &Machine,
    plan: &ConvergePlan,
    targets: &[Target],
    cx: &JobContext,
) -> Result<(), Failure> {
    let mut record = Record::load(machine)?;
    record.begin_keeping(machine, plan)?;
    let key = files::random()?;
    for target in targets {
        if target.observe(machine, &key)?.fits {
            continue;
        }
        if reboot::asked_by_file(machine, target)? {
            reboot::note(machine, std::iter::once(target.item_name()))?;
        }
        let planned = plan.files.iter().any(|file| file.path == target.path);
        if planned {
            record.write(machine, target)?;
        } else if target.content.is_none() {
            services::let_go(machine, plan, &target.path, cx)?;
        }
        target.write(machine)?;
        let left = !planned && record.left(machine, &target.path)?;
        cx.log(&match (&target.content, left) {
            (None, _) => format!("removed {}", target.path),
            (Some(_), true) => {
                format!("restored {} to its content before the stack", target.path)
            }
            (Some(_), false) => format!("wrote {}", target.path),
        });
    }
    Ok(())
}
