//! What a dpkg that was killed left: finished, taken away or put back, so that apt can go on from it.

use std::collections::BTreeSet;
use std::time::Duration;

use muster_core::stacks::ConvergePlan;
use muster_core::wire::node::{Failure, FailureCode};

use super::dpkg::Database;
use super::machine::Machine;
use super::record::Record;
use super::{apt, kernel, reboot};
use crate::failure::{fatal, retryable};
use crate::job::JobContext;
use crate::tool::{self, Call};

/// Triggers of a kernel package alone take minutes on an emulated machine.
const TIMEOUT: Duration = Duration::from_secs(900);

/// Finishes what a killed dpkg left. It need not succeed: what still lacks a dependency is mended by the transaction itself.
///
/// # Errors
/// `package_half_installed` when nobody can finish a package, nor take it away; `io`.
pub(super) fn finish(
    machine: &Machine,
    plan: &ConvergePlan,
    cx: &JobContext,
) -> Result<(), Failure> {
    let database = Database::read(machine)?;
    if !database.interrupted {
        return Ok(());
    }
    // The note of the killed run went with a power cut, and what dpkg finishes now differs from no plan afterwards.
    let other = kernel::of_another(machine)?;
    let asking = database
        .unfinished()
        .filter(|name| reboot::asked_by(name, true) && !other(name));
    reboot::note(machine, asking.map(|name| format!("package {name}")))?;
    cx.log("an earlier package transaction was interrupted: dpkg finishes it first");
    end_unpacking(machine, plan, &database, cx)?;
    if let Some(said) = dpkg(machine, cx, &["--configure", "-a"])? {
        cx.log(&format!("dpkg could not finish all of it yet: {said}"));
    }
    Ok(())
}

/// A package that was cut while it unpacked is unpacked again by the transaction, where the plan has it. Where it has not, apt refuses to do anything at
/// all, also to remove it: the bundle has no such archive.
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
            format!("{name}, cut in unpacking: {said}"),
        )
    };
    for name in go {
        cx.log(&format!("{name} was cut while it was unpacked, and leaves"));
        // What depends on it leaves as well, or it would stay.
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
                "{name} was cut while it was unpacked, and its archive is gone: a lock that has it finishes it"
            );
            return Err(fatal(FailureCode::PackageHalfInstalled, why));
        };
        cx.log(&format!(
            "{name} was cut while it was unpacked, and stays: {archive} is unpacked once more"
        ));
        if let Some(said) = dpkg(machine, cx, &["--unpack", &archive])? {
            return Err(failed(name, said));
        }
    }
    Ok(())
}

/// The archive that dpkg was given of a package, byte for byte.
fn archive_of(machine: &Machine, record: &Record, name: &str) -> Option<String> {
    let names = std::fs::read_dir(machine.path(apt::ARCHIVES))
        .into_iter()
        .flatten()
        .flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let mut paths = names
        .filter(|file| file.ends_with(".deb") && file.split('_').next() == Some(name))
        .map(|file| format!("{}/{file}", apt::ARCHIVES));
    paths.find(|path| {
        apt::digest_of(&machine.path(path)).is_ok_and(|digest| record.was_given(&digest))
    })
}

/// Runs dpkg to its end; what it said where it failed.
fn dpkg(machine: &Machine, cx: &JobContext, arguments: &[&str]) -> Result<Option<String>, Failure> {
    let argv: Vec<&str> = ["dpkg", "--force-confdef", "--force-confold"]
        .into_iter()
        .chain(arguments.iter().copied())
        .collect();
    let call = Call {
        argv: &argv,
        env: &apt::ENVIRONMENT,
        timeout: Some(TIMEOUT),
        ..Call::default()
    };
    let done = cx.uncut(|| machine.run(cx, &call))?;
    Ok((!done.status.success()).then(|| tool::tail(&done.stderr, 400)))
}
