//! Repair after a killed dpkg: packages are finished, removed or unpacked again, so that apt can
//! continue.

use std::collections::BTreeSet;
use std::time::Duration;

use muster_core::stacks::ConvergePlan;
use muster_core::wire::node::{Failure, FailureCode};

use super::dpkg::Database;
use super::record::Record;
use super::{archives, kernel_facts, reboot};
use crate::failure::{fatal, retryable};
use crate::job::JobContext;
use crate::machine::Machine;
use crate::tool::{self, Call};

/// Triggers of a kernel package alone take minutes on an emulated machine.
const TIMEOUT: Duration = Duration::from_secs(900);

/// Finishes the work of a killed dpkg. Partial success is enough: the transaction repairs packages
/// with a missing dependency.
///
/// # Errors
/// `package_half_installed` when a package can be neither finished nor removed; `packages_failed`
/// when dpkg fails; `io`.
pub(super) fn finish(
    machine: &Machine,
    plan: &ConvergePlan,
    cx: &JobContext,
) -> Result<(), Failure> {
    let database = Database::read(machine)?;
    if !database.interrupted {
        return Ok(());
    }
    // Notes the reboot again: a power cut removes the note of the killed run, and packages finished
    // here match the plan afterwards.
    let other = kernel_facts::of_another(machine)?;
    let asking = database
        .unfinished()
        .filter(|name| reboot::asked_by(name, true) && !other(name));
    reboot::note(machine, asking.map(|name| format!("package {name}")))?;
    cx.log("an earlier package transaction was interrupted: dpkg finishes it first");
    end_unpacking(machine, plan, &database, cx)?;
    if let Some(said) = dpkg(machine, cx, &["--configure", "-a"])? {
        cx.log(&format!(
            "dpkg could not finish every package; apt continues: {said}"
        ));
    }
    Ok(())
}

/// Repairs packages interrupted while unpacking. The transaction unpacks packages of the plan
/// again. For other packages apt refuses all work, even a removal, because the bundle lacks the
/// archive.
fn end_unpacking(
    machine: &Machine,
    plan: &ConvergePlan,
    database: &Database,
    cx: &JobContext,
) -> Result<(), Failure> {
    let planned = |name: &str| plan.packages.iter().any(|package| package.name == name);
    let cut: BTreeSet<&str> = database
        .cut_in_unpacking()
        .filter(|name| !planned(name))
        .collect();
    let record = Record::load(machine)?;
    let leaving = record.leaving(machine, database, plan)?.go;
    let (go, stay): (BTreeSet<&str>, BTreeSet<&str>) = cut.into_iter().partition(|name| {
        leaving.contains(*name) || plan.absent.iter().any(|absent| absent == name)
    });
    let failed = |name: &str, said: String| {
        retryable(
            FailureCode::PackagesFailed,
            format!("{name} was interrupted while unpacking, and dpkg failed: {said}"),
        )
    };
    for name in go {
        cx.log(&format!(
            "{name} was interrupted while unpacking: dpkg removes the package"
        ));
        // Packages depending on the removed package leave as well; otherwise the package would have
        // stayed.
        let argv = [
            "--force-remove-reinstreq",
            "--force-depends",
            "--purge",
            name,
        ];
        if let Some(said) = dpkg(machine, cx, &argv)? {
            return Err(failed(name, said));
        }
    }
    for name in stay {
        let Some(archive) = archive_of(machine, &record, name) else {
            let why = format!(
                "{name} was interrupted while unpacking, and its archive is gone: converge to a lock that contains {name}"
            );
            return Err(fatal(FailureCode::PackageHalfInstalled, why));
        };
        cx.log(&format!(
            "{name} was interrupted while unpacking: dpkg unpacks {archive} again"
        ));
        if let Some(said) = dpkg(machine, cx, &["--unpack", &archive])? {
            return Err(failed(name, said));
        }
    }
    Ok(())
}

/// Returns the archive of a package last passed to dpkg, compared byte for byte.
fn archive_of(machine: &Machine, record: &Record, name: &str) -> Option<String> {
    let names = std::fs::read_dir(machine.path(archives::ARCHIVES))
        .into_iter()
        .flatten()
        .flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let mut paths = names
        .filter(|file| file.ends_with(".deb") && file.split('_').next() == Some(name))
        .map(|file| format!("{}/{file}", archives::ARCHIVES));
    paths.find(|path| {
        archives::digest_of(&machine.path(path)).is_ok_and(|digest| record.was_given(&digest))
    })
}

/// Runs dpkg to its end; returns the end of stderr when dpkg failed.
fn dpkg(machine: &Machine, cx: &JobContext, arguments: &[&str]) -> Result<Option<String>, Failure> {
    let argv: Vec<&str> = ["dpkg", "--force-confdef", "--force-confold"]
        .into_iter()
        .chain(arguments.iter().copied())
        .collect();
    let call = Call {
        argv: &argv,
        env: &archives::ENVIRONMENT,
        timeout: Some(TIMEOUT),
        ..Call::default()
    };
    let done = cx.uncut(|| machine.run(cx, &call))?;
    Ok((!done.status.success()).then(|| tool::tail(&done.stderr, 400)))
}
