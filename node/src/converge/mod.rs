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
    let targets = managed::files(plan)?;
    let key = files::random()?;
    let observe = || observe(machine, plan, &targets, &key, cx);
    cx.progress("compares the node with its plan", None, None, None);
    let before = observe()?;
    if plan.dry_run {
        return Ok(item::forecast(plan, &before));
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
    Pending::clear(machine)?;
    Ok(report)
}

fn observe(
    machine: &Machine,
    plan: &ConvergePlan,
    targets: &[Target],
    key: &[u8; 32],
    cx: &JobContext,
) -> Result<Vec<Item>, Failure> {
    let mut items = dpkg::Database::read(machine)?.items(plan);
    for target in managed::apt_files(plan).iter().chain(targets) {
        items.push(target.observe(machine, key)?);
    }
    items.extend(kernel::items(machine, plan)?);
    items.extend(services::items(machine, plan, cx)?);
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
    // Looked at again, because a package may just have brought a file of the same name.
    let key = files::random()?;
    for target in targets {
        if !target.observe(machine, &key)?.fits {
            target.write(machine)?;
            cx.log(&format!("wrote {}", target.path));
        }
    }
    kernel::apply(machine, plan, cx)?;
    kernel::apply_boot(machine, plan, pending, cx)?;
    cx.check()?;
    services::apply(machine, plan, pending, cx)
}
