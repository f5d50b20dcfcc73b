//! Packages: the whole set in one apt transaction, from the bundle alone.
//!
//! apt runs with its own configuration and ignores every source, preference, hook and proxy of the
//! image. apt first only downloads. Every package is then compared with the plan's digests, and
//! dpkg receives only matching packages.

use std::collections::BTreeSet;
use std::time::Duration;

use muster_core::stacks::{ConvergePlan, LockedPackage};
use muster_core::values::Digest;
use muster_core::wire::node::{Failure, FailureCode};

use super::archives::{ARCHIVES, CONFIGURATION, ENVIRONMENT, digest_of};
use super::dpkg::{self, Database};
use super::forecast::{list_removed, refuse_unplanned};
use super::item::Item;
use super::postponed::NoServiceStarts;
use super::progress::{DpkgLog, Effort, count_bytes};
use super::record::{LeavingPackages, Record};
use super::{damage, dkms, heal, kernel_facts, managed, reboot, room};
use crate::failure::{fatal, io, retryable};
use crate::files;
use crate::job::JobContext;
use crate::machine::Machine;
use crate::tool::{self, Call, Finished};

const STATE: &str = "/var/lib/muster/apt";
const ASK_TIMEOUT: Duration = Duration::from_secs(120);

/// Written before every transaction. Lists and archives are in Muster's own folders, so that other
/// downloads are neither used nor removed.
const APT_CONF: &str = r#"Dir::Etc::main "/dev/null";
Dir::Etc::parts "/dev/null";
Dir::Etc::sourcelist "/var/lib/muster/apt/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/etc/apt/preferences.d/muster";
Dir::Etc::preferencesparts "/dev/null";
Dir::State::lists "/var/lib/muster/apt/lists";
Dir::Cache "/var/lib/muster/apt/cache";
Dir::Cache::archives "/var/lib/muster/apt/archives";
APT::Sandbox::User "root";
APT::Install-Recommends "false";
APT::Get::Assume-Yes "true";
APT::Get::allow-downgrades "true";
APT::Get::allow-change-held-packages "true";
Acquire::Languages "none";
Acquire::Retries "3";
Acquire::http::Timeout "30";
DPkg::Lock::Timeout "300";
DPkg::Options { "--force-confdef"; "--force-confold"; };
Dpkg::Use-Pty "false";
"#;

/// Installs the packages of the plan, and removes the unwanted packages. `before`: the items before
/// the work.
///
/// # Errors
/// `package_lock_held`, `disk_full`, `bundle_unreachable`, `packages_unresolvable`,
/// `unplanned_change`, `digest_mismatch`, `packages_failed`, `package_half_installed`.
pub(super) fn converge(
    machine: &Machine,
    plan: &ConvergePlan,
    before: &[Item],
    cx: &JobContext,
) -> Result<(), Failure> {
    dpkg::wait_for_locks(machine, cx)?;
    let starts = NoServiceStarts::begin(machine)?;
    heal::finish(machine, plan, cx)?;
    // A new package may replace a package kept as a dependency; only the first transaction shows
    // the replacement.
    if transact(machine, plan, &starts, cx)? {
        transact(machine, plan, &starts, cx)?;
    }
    if damage::is_possible(before) {
        reinstall(machine, plan, cx)?;
    }
    Record::load(machine)?.prune(machine, &Database::read(machine)?, plan)
}

/// Runs one apt transaction; returns false when no package changes.
fn transact(
    machine: &Machine,
    plan: &ConvergePlan,
    starts: &NoServiceStarts,
    cx: &JobContext,
) -> Result<bool, Failure> {
    let database = Database::read(machine)?;
    let incoming: Vec<&LockedPackage> = plan
        .packages
        .iter()
        .filter(|package| !database.has_version(package))
        .collect();
    let mut record = Record::load(machine)?;
    let mut leaving = record.leaving(machine, &database, plan)?;
    leaving.go.extend(
        plan.absent
            .iter()
            .filter(|name| database.has(name))
            .cloned(),
    );
    if incoming.is_empty() && leaving.go.is_empty() {
        return Ok(false);
    }
    prepare(machine)?;
    discard_strangers(machine, plan, cx)?;
    // A removal needs neither disk space nor a bundle: the agent serves a bundle only for a plan
    // with packages.
    if !incoming.is_empty() {
        room::check(machine, &incoming)?;
        update_index(machine, cx)?;
    }
    let (install, forecast) = choose_transaction(machine, plan, &leaving, cx)?;
    let removed = list_removed(&forecast);
    if !incoming.is_empty() {
        install.download(machine, plan, &incoming, cx)?;
    }
    note_reboot(machine, &database, &incoming, &removed)?;
    record.bring(machine, &database, &incoming)?;
    starts.let_stop(removed.iter().copied())?;
    install.carry_out(machine, &incoming, &removed, cx)?;
    Ok(true)
}

/// Installs the packages with changed files again, in the same version.
fn reinstall(machine: &Machine, plan: &ConvergePlan, cx: &JobContext) -> Result<(), Failure> {
    let database = Database::read(machine)?;
    let damage = damage::find(machine, plan, &database, cx)?;
    let is_damaged = |package: &&LockedPackage| damage.contains_key(&package.name);
    let incoming: Vec<&LockedPackage> = plan.packages.iter().filter(is_damaged).collect();
    if incoming.is_empty() {
        return Ok(());
    }
    for (name, differences) in &damage {
        let told = damage::join_differences(differences);
        cx.log(&format!("{name} is installed again; differences: {told}"));
    }
    prepare(machine)?;
    discard_strangers(machine, plan, cx)?;
    room::check(machine, &incoming)?;
    update_index(machine, cx)?;
    let install = Install::again(&incoming);
    let forecast = install.forecast(machine, cx)?;
    refuse_unplanned(plan, &LeavingPackages::default(), &forecast)?;
    install.download(machine, plan, &incoming, cx)?;
    // After the download: a link may lead to a working library.
    damage::clear_places(machine, &damage)?;
    note_reboot(machine, &database, &incoming, &BTreeSet::new())?;
    Record::load(machine)?.bring(machine, &database, &incoming)?;
    install.carry_out(machine, &incoming, &BTreeSet::new(), cx)
}

fn update_index(machine: &Machine, cx: &JobContext) -> Result<(), Failure> {
    cx.progress("reading the bundle's index", None, None, None);
    let arguments = ["update", "-o", "APT::Update::Error-Mode=any"];
    apt(machine, cx, FailureCode::BundleUnreachable, &arguments).map(drop)
}

/// Returns the transaction for a plan, with apt's forecast. A new package may replace a package
/// kept as a dependency, and only apt reads the Provides of new packages. apt therefore simulates
/// first without the kept packages. If apt finds no such transaction, or the forecast has an
/// unplanned change, the kept packages stay.
///
/// # Errors
/// `packages_unresolvable`, `unplanned_change`, `disk_full`, or the failure of the program.
fn choose_transaction(
    machine: &Machine,
    plan: &ConvergePlan,
    leaving: &LeavingPackages,
    cx: &JobContext,
) -> Result<(Install, String), Failure> {
    if !leaving.needed.is_empty() {
        let whole = Install::new(plan, leaving.go.iter().chain(leaving.needed.keys()));
        match whole.forecast(machine, cx) {
            Ok(forecast) if refuse_unplanned(plan, leaving, &forecast).is_ok() => {
                return Ok((whole, forecast));
            }
            Ok(_) => {}
            Err(failure) if failure.code == FailureCode::PackagesUnresolvable => {}
            Err(failure) => return Err(failure),
        }
    }
    let install = Install::new(plan, leaving.go.iter());
    let forecast = install.forecast(machine, cx)?;
    refuse_unplanned(plan, leaving, &forecast)?;
    Ok((install, forecast))
}

/// The arguments of `apt-get install`: each package with its version, and each leaving package with
/// `-`.
struct Install {
    packages: Vec<String>,
}

impl Install {
    fn new<'a>(plan: &ConvergePlan, leaving: impl Iterator<Item = &'a String>) -> Self {
        let incoming = plan
            .packages
            .iter()
            .map(|package| format!("{}={}", package.name, package.version));
        let outgoing = leaving.map(|name| format!("{name}-"));
        Self {
            packages: incoming.chain(outgoing).collect(),
        }
    }

    /// Installs present packages once more, in the same version.
    fn again(packages: &[&LockedPackage]) -> Self {
        let named = packages
            .iter()
            .map(|package| format!("{}={}", package.name, package.version));
        let option = std::iter::once("--reinstall".to_owned());
        Self {
            packages: option.chain(named).collect(),
        }
    }

    /// Simulates the transaction. Returns apt's forecast.
    fn forecast(&self, machine: &Machine, cx: &JobContext) -> Result<String, Failure> {
        let code = FailureCode::PackagesUnresolvable;
        let done = self.run(machine, cx, code, "--simulate")?;
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    }

    fn run(
        &self,
        machine: &Machine,
        cx: &JobContext,
        code: FailureCode,
        option: &str,
    ) -> Result<Finished, Failure> {
        let mut arguments = vec![option, "--purge", "install"];
        arguments.extend(self.packages.iter().map(String::as_str));
        apt(machine, cx, code, &arguments)
    }

    /// Runs the transaction with the downloaded archives.
    fn carry_out(
        &self,
        machine: &Machine,
        incoming: &[&LockedPackage],
        removed: &BTreeSet<&str>,
        cx: &JobContext,
    ) -> Result<(), Failure> {
        let mut log = open_log(machine, incoming, removed);
        let (come, go) = (incoming.len(), removed.len());
        let effort = Effort {
            message: &format!("installing {come} packages, removing {go}"),
            total: log.total(),
            unit: "steps",
        };
        // A cancelled job must not kill dpkg in the middle: only the deadline does.
        let run = || self.run(machine, cx, FailureCode::PackagesFailed, "--no-download");
        effort.follow(cx, || log.count(), || cx.uncut(run))?;
        // The agent's bundle keeps the archives; on the node the archives only fill the disk.
        std::fs::remove_dir_all(machine.path(ARCHIVES)).map_err(io(ARCHIVES))
    }

    /// Downloads the packages, and compares each archive with the plan's digests before dpkg reads
    /// any.
    fn download(
        &self,
        machine: &Machine,
        plan: &ConvergePlan,
        incoming: &[&LockedPackage],
        cx: &JobContext,
    ) -> Result<(), Failure> {
        let effort = Effort {
            message: &format!("downloading {} packages", incoming.len()),
            total: incoming.iter().map(|package| package.size).sum(),
            unit: "bytes",
        };
        let folders = [ARCHIVES.to_owned(), format!("{ARCHIVES}/partial")];
        let folders = folders.map(|folder| machine.path(&folder));
        let run = || {
            self.run(
                machine,
                cx,
                FailureCode::BundleUnreachable,
                "--download-only",
            )
        };
        let names = incoming
            .iter()
            .map(|package| package.name.as_str())
            .collect();
        effort.follow(cx, || count_bytes(&folders, &names), run)?;
        cx.progress("checking the downloaded packages", None, None, None);
        verify(machine, plan)?;
        room::check_unpacked(machine, ARCHIVES, incoming, cx)
    }
}

/// Opens dpkg's log for a transaction.
fn open_log(machine: &Machine, incoming: &[&LockedPackage], removed: &BTreeSet<&str>) -> DpkgLog {
    let incoming = incoming.iter().map(|package| package.name.clone());
    let removed = removed.iter().map(|name| (*name).to_owned());
    DpkgLog::open(
        &machine.path("/var/log/dpkg.log"),
        incoming.collect(),
        removed.collect(),
    )
}

/// Notes the due reboot before the packages change. After a kill in between, the next run would
/// find the packages as wanted while the old driver is still loaded.
fn note_reboot(
    machine: &Machine,
    database: &Database,
    incoming: &[&LockedPackage],
    outgoing: &BTreeSet<&str>,
) -> Result<(), Failure> {
    // A leaving kernel is not the running kernel; the modules leaving with that kernel are not
    // loaded either. Loaded modules of a former driver are compared with the disk.
    let other = kernel_facts::of_another(machine)?;
    let outgoing = outgoing
        .iter()
        .copied()
        .filter(|name| !name.starts_with("linux-") && !other(name));
    let changing = incoming
        .iter()
        .map(|package| package.name.as_str())
        .chain(outgoing);
    let asking = changing.filter(|name| reboot::asked_by(name, database.has(name)));
    reboot::note(machine, asking.map(|name| format!("package {name}")))
}

fn prepare(machine: &Machine) -> Result<(), Failure> {
    for folder in ["lists/partial", "cache", "archives/partial"] {
        std::fs::create_dir_all(machine.path(&format!("{STATE}/{folder}"))).map_err(io(STATE))?;
    }
    files::write_durably(&machine.path(CONFIGURATION), 0o644, APT_CONF.as_bytes())
        .map_err(io(CONFIGURATION))
}

/// Runs apt-get with Muster's configuration.
fn apt(
    machine: &Machine,
    cx: &JobContext,
    code: FailureCode,
    arguments: &[&str],
) -> Result<Finished, Failure> {
    let argv: Vec<&str> = std::iter::once("apt-get")
        .chain(arguments.iter().copied())
        .collect();
    let timeout = (arguments.first() == Some(&"--simulate")).then_some(ASK_TIMEOUT);
    let done = machine.run(
        cx,
        &Call {
            argv: &argv,
            env: &ENVIRONMENT,
            timeout,
            ..Call::default()
        },
    )?;
    if done.status.success() {
        return Ok(done);
    }
    let output = [done.stdout.as_slice(), done.stderr.as_slice()].concat();
    let said = String::from_utf8_lossy(&output);
    let mut reasons: Vec<&str> = said
        .lines()
        .filter(|line| is_reason(line))
        .map(str::trim)
        .collect();
    reasons.dedup();
    let reason = match reasons.is_empty() {
        true => tool::tail(&output, 600),
        false => reasons[reasons.len().saturating_sub(10)..].join(" | "),
    };
    // apt reports a failed build by the exit status of a maintainer script.
    let reason = [vec![reason], dkms::build_errors(machine, &said)]
        .concat()
        .join(" | ");
    // A full disk may show only in the build's log.
    let is_full = [&*said, reason.as_str()].iter().any(|text| {
        text.contains("No space left on device") || text.contains("don't have enough free space")
    });
    match is_full {
        true => Err(fatal(
            FailureCode::DiskFull,
            format!("apt-get {}: {reason}", arguments[0]),
        )),
        false => Err(retryable(
            code,
            format!(
                "apt-get {} ended with {}: {reason}",
                arguments[0], done.status
            ),
        )),
    }
}

fn is_reason(line: &str) -> bool {
    let prefixes = ["E: ", "Err:", "dpkg: error", "dpkg (subprocess): "];
    prefixes.iter().any(|prefix| line.starts_with(prefix)) || line.contains("Depends:")
}

/// Removes archives downloaded for another plan but never installed. Such archives take space, and
/// would fail the comparison with this plan.
fn discard_strangers(
    machine: &Machine,
    plan: &ConvergePlan,
    cx: &JobContext,
) -> Result<(), Failure> {
    for (path, _) in strangers(machine, plan)? {
        cx.log(&format!(
            "removes {}, downloaded for another plan",
            path.display()
        ));
        std::fs::remove_file(&path).map_err(io(path.display()))?;
    }
    Ok(())
}

/// Checks every downloaded archive byte for byte against the plan.
fn verify(machine: &Machine, plan: &ConvergePlan) -> Result<(), Failure> {
    let Some((path, digest)) = strangers(machine, plan)?.into_iter().next() else {
        return Ok(());
    };
    // The next attempt would use the file again.
    let _ = std::fs::remove_file(&path);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Err(retryable(
        FailureCode::DigestMismatch,
        format!("{name} from the bundle has digest {digest}, which is not in the lock"),
    ))
}

/// Returns the archives whose digest is not in the plan.
fn strangers(
    machine: &Machine,
    plan: &ConvergePlan,
) -> Result<Vec<(std::path::PathBuf, Digest)>, Failure> {
    let known: Vec<&Digest> = plan
        .packages
        .iter()
        .map(|package| &package.sha256)
        .collect();
    let mut strangers = Vec::new();
    for entry in std::fs::read_dir(machine.path(ARCHIVES)).map_err(io(ARCHIVES))? {
        let path = entry.map_err(io(ARCHIVES))?.path();
        if path.extension().is_none_or(|extension| extension != "deb") {
            continue;
        }
        let digest = digest_of(&path).map_err(io(path.display()))?;
        if !known.contains(&&digest) {
            strangers.push((path, digest));
        }
    }
    Ok(strangers)
}

/// Writes the bundle's source and the pins.
///
/// # Errors
/// `io`.
pub(super) fn write_sources(machine: &Machine, plan: &ConvergePlan) -> Result<(), Failure> {
    managed::apt_files(plan)
        .iter()
        .try_for_each(|target| target.write(machine))
}
