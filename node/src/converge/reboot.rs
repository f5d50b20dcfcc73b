//! A reboot that is due because what runs is not what is installed: a driver, a kernel module, a kernel. Until then nothing may be loaded or started
//! that would meet the old one: its new user space fails against it.
//!
//! Known in two ways: by a note that goes with the boot it was written in, and by holding modules that are loaded against those on the disk.

use std::collections::BTreeSet;
use std::time::Duration;

use muster_core::stacks::ConvergePlan;
use muster_core::stacks::diff::{Class, package_class};
use muster_core::wire::node::{Failure, FailureCode};
use serde::{Deserialize, Serialize};

use super::file::Target;
use super::item::Item;
use super::machine::Machine;
use super::{kernel, managed};
use crate::files;
use crate::job::JobContext;

/// Below /run, so that the boot which it asks for takes it away.
const PATH: &str = "/run/muster/reboot.json";
const MAX: u64 = 1 << 20;
const MODINFO_TIMEOUT: Duration = Duration::from_secs(30);
/// GPU drivers, whose user space must be of their own version. Others are looked at where a stack loads them.
const DRIVERS: [&str; 2] = ["nvidia", "amdgpu"];

/// What changed since the boot. A member of a newer version is not read.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Note {
    version: u32,
    /// As items are called: `package nvidia-open`, `file /etc/modprobe.d/nvidia.conf`.
    items: BTreeSet<String>,
    /// Settings whose boot files were written since the boot: what still differs from them waits for the next one.
    written: BTreeSet<String>,
}

/// Whether a change of this package holds only after a reboot. A GPU driver that was not there before is loaded without one, unless another is
/// loaded, which [`items`] sees. Kernels are told by the one that runs.
pub(super) fn asked_by(package: &str, was_there: bool) -> bool {
    match package_class(package) {
        Class::Reboot | Class::Reinstall => true,
        Class::DriverReload => was_there,
        Class::None | Class::ServiceRestart => false,
    }
}

/// Whether a change of this file holds only after a reboot: it tells modprobe of options for a module that is loaded, or told it.
///
/// # Errors
/// `io`.
pub(super) fn asked_by_file(machine: &Machine, target: &Target) -> Result<bool, Failure> {
    if !target.path.starts_with(kernel::MODPROBE) {
        return Ok(false);
    }
    let before = machine.read(&target.path, MAX).ok().flatten();
    let both = before
        .iter()
        .chain(&target.content)
        .map(|bytes| String::from_utf8_lossy(bytes));
    let loaded = |line: &str| {
        let mut words = line.split_whitespace();
        words.next() == Some("options")
            && words
                .next()
                .is_some_and(|module| kernel::is_loaded(machine, module))
    };
    Ok(both.into_iter().any(|text| text.lines().any(loaded)))
}

/// Writes down that these items change, before they do.
///
/// # Errors
/// `io`, or `malformed`.
pub(super) fn note(machine: &Machine, items: impl Iterator<Item = String>) -> Result<(), Failure> {
    let mut note: Note = files::read_json(&machine.path(PATH), MAX)?.unwrap_or_default();
    note.items.extend(items);
    if note.items.is_empty() {
        return Ok(());
    }
    note.version = 1;
    files::write_json(&machine.path(PATH), 0o600, &note)
}

/// Writes down that the boot files of this setting are written.
///
/// # Errors
/// `io`, or `malformed`.
pub(super) fn note_written(machine: &Machine, path: &str) -> Result<(), Failure> {
    let mut note: Note = files::read_json(&machine.path(PATH), MAX)?.unwrap_or_default();
    note.written.insert(path.to_owned());
    note.version = 1;
    files::write_json(&machine.path(PATH), 0o600, &note)
}

/// Settings that the last boot should have brought and did not, though they are configured: somebody put a boot file back from a copy, or wrote it without
/// them. Another boot brings them only once their boot files are written anew, which is done once in a boot.
///
/// # Errors
/// `io`, or `malformed`.
pub(super) fn not_brought(machine: &Machine, items: &[Item]) -> Result<Vec<&'static str>, Failure> {
    let note: Note = files::read_json(&machine.path(PATH), MAX)?.unwrap_or_default();
    let differs = |prefix: &str| {
        items
            .iter()
            .any(|item| !item.fits && item.name.starts_with(prefix))
    };
    // A kernel that has yet to come brings its menu entry; and a system without a menu has no entry to choose.
    let other_kernel = differs("running kernel") && !differs("package linux-image-");
    let menu = machine.path(kernel::MENU).exists() && (other_kernel || differs("kernel argument "));
    let settings = [
        (managed::GRUB, menu),
        (managed::BLACKLIST, differs("blacklisted module ")),
    ];
    let owed = settings
        .into_iter()
        .filter(|(path, owed)| *owed && !note.written.contains(*path));
    Ok(owed.map(|(path, _)| path).collect())
}

/// Each thing that waits for the reboot.
///
/// # Errors
/// `io`, or `malformed`.
pub(super) fn items(
    machine: &Machine,
    plan: &ConvergePlan,
    cx: &JobContext,
) -> Result<Vec<Item>, Failure> {
    let note: Note = files::read_json(&machine.path(PATH), MAX)?.unwrap_or_default();
    let changed = |name: &String| {
        let found = Some("changed since the boot".to_owned());
        Item::new(format!("reboot for {name}"), "booted since", found).held_until_boot()
    };
    let mut items: Vec<Item> = note.items.iter().map(changed).collect();
    let named = plan.modules_load.iter().map(|name| name.replace('-', "_"));
    let modules: BTreeSet<String> = DRIVERS
        .iter()
        .map(|name| (*name).to_owned())
        .chain(named)
        .collect();
    for name in modules {
        items.extend(stale(machine, &name, cx)?);
    }
    Ok(items)
}

/// A module that is loaded and whose file says something else. One that is not loaded, is built in, or says nothing of itself, is no difference.
fn stale(machine: &Machine, name: &str, cx: &JobContext) -> Result<Option<Item>, Failure> {
    // Two flavours of one driver have the same version, and other sources.
    for field in ["version", "srcversion"] {
        let Some(loaded) = machine.read(&format!("/sys/module/{name}/{field}"), MAX)? else {
            continue;
        };
        let loaded = String::from_utf8_lossy(&loaded).trim().to_owned();
        // Of the running kernel's modules, as modprobe would take it.
        let argv = ["modinfo", "-F", field, "--", name];
        let Ok(installed) = machine.output(cx, FailureCode::ModuleUnknown, &argv, MODINFO_TIMEOUT)
        else {
            continue;
        };
        let installed = String::from_utf8_lossy(&installed).trim().to_owned();
        if !installed.is_empty() && !loaded.is_empty() && installed != loaded {
            let item = Item::new(format!("loaded module {name}"), installed, Some(loaded));
            return Ok(Some(item.held_until_boot()));
        }
    }
    Ok(None)
}
