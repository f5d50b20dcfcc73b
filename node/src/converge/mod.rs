//! Makes the installed OS what its plan says: observe, change what differs, observe again. It must not decide what the node should be; the plan does.
//!
//! Every run is the same run: one on a node that already fits starts at most one program and writes nothing; one that follows a kill finishes what
//! was begun, from dpkg's own record and from [`pending`].

mod apt; // Packages, in one transaction from the bundle
pub(crate) mod dpkg; // dpkg's record and locks
pub mod file; // Files, whole or not at all
mod heal; // What a killed dpkg left
mod item; // What must be and what is; the report
pub(crate) mod kernel; // Settings, modules, command line, release
pub(crate) mod machine; // The system that is converged
pub mod managed; // Configuration files made from the plan
mod pending; // Debts of a run that was killed
mod reboot; // A reboot that is due, and what it holds back
mod record; // What former locks brought, which leaves with them
mod room; // Room for packages where they unpack to
pub(crate) mod services; // systemd units
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use muster_core::stacks::{ConvergePlan, ConvergeReport};
use muster_core::wire::node::{Failure, FailureCode};

use crate::failure::fatal;
use crate::files;
use crate::job::JobContext;
use file::Target;
use item::Item;
use machine::Machine;
use pending::Pending;
use record::{LeavingPackages, Record};

/// Converges the machine muster-node runs on.
///
/// # Errors
/// `bad_plan` when the plan holds what must not reach a node; else what stopped it. Every failure can be followed by another run.
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
    cx.progress("compares the node with its plan", None, None, None);
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
        return Ok(item::forecast(plan, &before, &asking));
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
        return item::conclude(plan, &before, &before);
    }
    note_debts(&mut pending, &before);
    pending.packages.extend(wanted.owners);
    pending.store(machine)?;
    change(machine, plan, &mut pending, cx)?;
    cx.progress("looks whether it took", None, None, None);
    let after = observe(machine, plan, &Wanted::of(machine, plan)?, &key, cx)?;
    let report = item::conclude(plan, &before, &after)?;
    match item::held_back(&after) {
        // What was not restarted is still owed, should another plan make the reboot needless.
        true => pending.without_boot_files().store(machine)?,
        false => Pending::clear(machine)?,
    }
    Ok(report)
}

/// What the plan comes to on this node as it is: a package that comes or goes changes it.
struct Wanted {
    packages: LeavingPackages,
    targets: Vec<Target>,
    /// What left the stack and stays, with the reason.
    stay: Vec<Item>,
    /// Packages whose files are again as they were before a stack wrote them.
    owners: BTreeSet<String>,
}

impl Wanted {
    fn of(machine: &Machine, plan: &ConvergePlan) -> Result<Self, Failure> {
        let record = Record::load(machine)?;
        let packages = record.leaving(machine, &dpkg::Database::read(machine)?, plan)?;
        let leaving = record.leaving_files(machine, plan)?;
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
    let mut items = dpkg::Database::read(machine)?.items(plan, &wanted.packages.go);
    for target in managed::apt_files(plan).iter().chain(&wanted.targets) {
        items.push(target.observe(machine, key)?);
    }
    items.extend(kernel::items(machine, plan, cx)?);
    let held = item::held_back(&items);
    items.extend(services::items(machine, plan, held, cx)?);
    items.extend(wanted.stay.iter().cloned());
    Ok(items)
}

/// What is about to change, and so what will have to be restarted or rebuilt for it.
fn note_debts(pending: &mut Pending, before: &[Item]) {
    for item in before.iter().filter(|item| !item.fits) {
        if let Some(name) = item.name.strip_prefix("package ") {
            pending.packages.insert(name.to_owned());
        }
        if let Some(path) = item.name.strip_prefix("file ") {
            pending.paths.insert(path.to_owned());
        }
        // What starts now starts without it.
        if ["package ", "file "]
            .iter()
            .any(|kind| item.name.starts_with(kind))
        {
            pending.begun.clear();
        }
    }
}

/// Packages first, because files may belong to users that packages make; services last, because they read the files.
fn change(
    machine: &Machine,
    plan: &ConvergePlan,
    pending: &mut Pending,
    cx: &JobContext,
) -> Result<(), Failure> {
    cx.check()?;
    apt::write_sources(machine, plan)?;
    apt::converge(machine, plan, cx)?;
    cx.check()?;
    // Looked at again, because a package may just have brought a file of the same name.
    write_files(machine, plan, &Wanted::of(machine, plan)?.targets, cx)?;
    let held = item::held_back(&kernel::items(machine, plan, cx)?);
    if held {
        cx.log("a reboot is due: modules and services that would meet the old kernel or driver wait for it");
    }
    kernel::apply(machine, plan, held, cx)?;
    kernel::apply_boot(machine, pending, cx)?;
    cx.check()?;
    services::apply(machine, plan, pending, held, cx)
}

/// Writes what differs, and removes or puts back what left the stack.
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
                format!("put {} back as it was before a stack wrote it", target.path)
            }
            (Some(_), false) => format!("wrote {}", target.path),
        });
    }
    Ok(())
}
