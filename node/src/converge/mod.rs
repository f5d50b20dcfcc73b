//! Makes the installed OS what its plan says: observe, change what differs, observe again. It must not decide what the node should be; the plan does.
//!
//! Every run is the same run: one on a node that already fits starts at most one program and writes nothing; one that follows a kill finishes what
//! was begun, from dpkg's own record and from [`pending`].

mod apt; // Packages, in one transaction from the bundle
pub(crate) mod dpkg; // dpkg's record and locks
pub mod file; // Files, whole or not at all
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

use muster_core::stacks::{ConvergePlan, ConvergeReport};
use muster_core::wire::node::Failure;

use crate::failure::fatal;
use crate::files;
use crate::job::JobContext;
use file::Target;
use item::Item;
use machine::Machine;
use pending::Pending;
use record::Record;

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
pub(crate) fn run_on(machine: &Machine, plan: &ConvergePlan, cx: &JobContext) -> Result<ConvergeReport, Failure> {
    let problems = plan.problems();
    if !problems.is_empty() {
        return Err(fatal("bad_plan", problems[..problems.len().min(10)].join("; ")));
    }
    let mut targets = managed::files(plan)?;
    let leaving = Record::load(machine)?.leaving_files(machine, plan)?;
    targets.extend(leaving.go);
    leaving.stay.iter().for_each(|item| cx.log(&format!("{} is {}", item.name, item.wanted)));
    let key = files::random()?;
    let observe = || -> Result<Vec<Item>, Failure> {
        let mut items = observe(machine, plan, &targets, &key, cx)?;
        items.extend(leaving.stay.iter().cloned());
        Ok(items)
    };
    cx.progress("compares the node with its plan", None, None, None);
    let before = observe()?;
    if plan.dry_run {
        let mut asking = Vec::new();
        for target in &targets {
            asking.extend(reboot::asked_by_file(machine, target)?.then(|| target.item_name()));
        }
        return Ok(item::forecast(plan, &before, &asking));
    }
    let mut pending = Pending::load(machine)?;
    let settled = before.iter().all(|item| item.fits || item.by_reboot);
    if settled && pending.is_empty() && !dpkg::Database::read(machine)?.interrupted {
        return item::conclude(plan, &before, &before);
    }
    note_debts(&mut pending, &before);
    pending.store(machine)?;
    change(machine, plan, &targets, &pending, cx)?;
    cx.progress("looks whether it took", None, None, None);
    let after = observe()?;
    let report = item::conclude(plan, &before, &after)?;
    match item::held_back(&after) {
        // What was not restarted is still owed, should another plan make the reboot needless.
        true => pending.without_boot_files().store(machine)?,
        false => Pending::clear(machine)?,
    }
    Ok(report)
}

fn observe(
    machine: &Machine,
    plan: &ConvergePlan,
    targets: &[Target],
    key: &[u8; 32],
    cx: &JobContext,
) -> Result<Vec<Item>, Failure> {
    let database = dpkg::Database::read(machine)?;
    let leaving = Record::load(machine)?.leaving(machine, &database, plan)?;
    let mut items = database.items(plan, &leaving);
    for target in managed::apt_files(plan).iter().chain(targets) {
        items.push(target.observe(machine, key)?);
    }
    items.extend(kernel::items(machine, plan, cx)?);
    let held = item::held_back(&items);
    items.extend(services::items(machine, plan, held, cx)?);
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
    }
}

/// Packages first, because files may belong to users that packages make; services last, because they read the files.
fn change(
    machine: &Machine,
    plan: &ConvergePlan,
    targets: &[Target],
    pending: &Pending,
    cx: &JobContext,
) -> Result<(), Failure> {
    cx.check()?;
    apt::write_sources(machine, plan)?;
    apt::converge(machine, plan, cx)?;
    cx.check()?;
    write_files(machine, plan, targets, cx)?;
    let held = item::held_back(&kernel::items(machine, plan, cx)?);
    if held {
        cx.log("a reboot is due: modules and services that would meet the old kernel or driver wait for it");
    }
    kernel::apply(machine, plan, held, cx)?;
    kernel::apply_boot(machine, pending, cx)?;
    cx.check()?;
    services::apply(machine, plan, pending, held, cx)
}

/// Writes what differs, and removes what left the stack.
fn write_files(machine: &Machine, plan: &ConvergePlan, targets: &[Target], cx: &JobContext) -> Result<(), Failure> {
    let mut record = Record::load(machine)?;
    // Looked at again, because a package may just have brought a file of the same name.
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
        match target.content {
            Some(_) => cx.log(&format!("wrote {}", target.path)),
            None => {
                record.removed(machine, &target.path)?;
                cx.log(&format!("removed {}", target.path));
            }
        }
    }
    Ok(())
}
