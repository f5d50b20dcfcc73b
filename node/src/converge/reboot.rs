//! A due reboot: the running driver, kernel module or kernel differs from the installed version.
//! Until the reboot, modules and services of the new version must wait: new user space fails
//! against the old driver.
//!
//! A due reboot has two sources: a note removed by the next boot, and a comparison of loaded
//! modules with the modules on disk.

use std::collections::BTreeSet;

use muster_core::stacks::ConvergePlan;
use muster_core::stacks::diff::{Class, package_class};
use muster_core::wire::node::{Failure, FailureCode};
use serde::{Deserialize, Serialize};

use super::file::Target;
use super::item::Item;
use super::module_file::Place;
use super::{kernel_facts, managed, module_file};
use crate::files;
use crate::job::JobContext;
use crate::machine::Machine;

/// Below /run, so that the reboot removes the note.
const PATH: &str = "/run/muster/reboot.json";
const MAX: u64 = 1 << 20;
/// GPU drivers, whose user space must have the same version. Other modules are checked when a stack
/// loads the module.
const DRIVERS: [&str; 2] = ["nvidia", "amdgpu"];

/// Changes since the boot. Members of a newer version are ignored.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Note {
    version: u32,
    /// Item names, such as `package nvidia-open` or `file /etc/modprobe.d/nvidia.conf`.
    items: BTreeSet<String>,
    /// Settings whose boot files were written since the boot: remaining differences wait for the
    /// next boot.
    written: BTreeSet<String>,
}

/// Whether a change of the package needs a reboot. A newly installed GPU driver loads without a
/// reboot, unless another driver is loaded; [`items`] detects the loaded driver. Kernels are
/// compared by the running release.
pub(super) fn asked_by(package: &str, was_there: bool) -> bool {
    match package_class(package) {
        Class::Reboot | Class::Reinstall => true,
        Class::DriverReload => was_there,
        Class::None | Class::ServiceRestart => false,
    }
}

/// Whether a change of the file needs a reboot: the old or new text sets modprobe options for a
/// loaded module.
///
/// # Errors
/// `io`.
pub(super) fn asked_by_file(machine: &Machine, target: &Target) -> Result<bool, Failure> {
    if !target.path.starts_with(kernel_facts::MODPROBE) {
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
                .is_some_and(|module| kernel_facts::is_loaded(machine, module))
    };
    Ok(both.into_iter().any(|text| text.lines().any(loaded)))
}

/// Notes, before the change, that the items change.
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

/// Notes that the boot files of the setting are written.
///
/// # Errors
/// `io`, or `malformed`.
pub(super) fn note_written(machine: &Machine, path: &str) -> Result<(), Failure> {
    let mut note: Note = files::read_json(&machine.path(PATH), MAX)?.unwrap_or_default();
    note.written.insert(path.to_owned());
    note.version = 1;
    files::write_json(&machine.path(PATH), 0o600, &note)
}

/// Returns configured settings that the last boot did not bring. A person restored a boot file from
/// a copy, or wrote the file without the setting. Another boot brings the setting only after the
/// boot files are rewritten, at most once per boot.
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
    // A kernel not yet installed brings its own menu entry; a system without a menu has no entry to
    // choose.
    let other_kernel = differs("running kernel") && !differs("package linux-image-");
    let menu =
        machine.path(kernel_facts::MENU).exists() && (other_kernel || differs("kernel argument "));
    let settings = [
        (managed::GRUB, menu),
        (managed::BLACKLIST, differs("blacklisted module ")),
    ];
    let owed = settings
        .into_iter()
        .filter(|(path, owed)| *owed && !note.written.contains(*path));
    Ok(owed.map(|(path, _)| path).collect())
}

/// Returns an item for each change waiting for the reboot.
///
/// # Errors
/// `io`, `malformed`, or the failure of a program without an answer, such as `tool_timeout`.
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

/// A version that the kernel shows of a loaded module.
struct Shown {
    /// The field of modinfo, and the file below /sys/module.
    field: &'static str,
    loaded: String,
}

/// Reports a loaded module that differs from the module's file on disk. Modules that are not loaded,
/// built in or without a version are skipped. A GPU driver without a readable file counts as
/// different: the next boot cannot load the driver from the disk, and the driver of the next boot is
/// unknown. Where modprobe and modinfo name no file of a module that modprobe knows, the difference
/// is unknown, and the log has a warning.
///
/// # Errors
/// `io`, or the failure of a program without an answer, such as `tool_timeout`.
fn stale(machine: &Machine, name: &str, cx: &JobContext) -> Result<Option<Item>, Failure> {
    let shown = shown(machine, name)?;
    let Some(first) = shown.first() else {
        return Ok(None);
    };
    let item = |wanted: String, found: String| {
        Item::new(format!("loaded module {name}"), wanted, Some(found)).held_until_boot()
    };
    let unreadable = |why: String| {
        let found = format!("{}; on disk: {why}", first.loaded);
        let is_driver = DRIVERS.contains(&name);
        is_driver.then(|| item("the version on disk".to_owned(), found))
    };
    let file = match module_file::find(machine, name, cx)? {
        Place::File(file) => file,
        Place::BuiltIn => return Ok(None),
        Place::Missing(why) => return Ok(unreadable(why)),
        Place::Unknown(why) => {
            cx.log(&format!(
                "the loaded module {name} cannot be compared with the disk: {why}"
            ));
            return Ok(None);
        }
    };
    match differing(machine, &file, &shown, cx) {
        Ok(differing) => Ok(differing.map(|(on_disk, loaded)| item(on_disk, loaded))),
        Err(failure) if failure.code == FailureCode::ModuleUnknown => {
            Ok(unreadable(failure.message))
        }
        Err(failure) => Err(failure),
    }
}

/// Returns the versions of a loaded module. Two flavours of a driver share the version and differ in
/// the source version.
fn shown(machine: &Machine, name: &str) -> Result<Vec<Shown>, Failure> {
    let mut shown = Vec::new();
    for field in ["version", "srcversion"] {
        let loaded = machine.read(&format!("/sys/module/{name}/{field}"), MAX)?;
        let loaded = String::from_utf8_lossy(&loaded.unwrap_or_default())
            .trim()
            .to_owned();
        if !loaded.is_empty() {
            shown.push(Shown { field, loaded });
        }
    }
    Ok(shown)
}

/// Returns the first difference, on disk and loaded. A value missing on disk is `none`.
///
/// # Errors
/// `module_unknown` when modinfo cannot read the file.
fn differing(
    machine: &Machine,
    file: &str,
    shown: &[Shown],
    cx: &JobContext,
) -> Result<Option<(String, String)>, Failure> {
    for shown in shown {
        let on_disk = module_file::field(machine, file, shown.field, cx)?;
        if on_disk != shown.loaded {
            let on_disk = match on_disk.is_empty() {
                true => "none".to_owned(),
                false => on_disk,
            };
            return Ok(Some((on_disk, shown.loaded.clone())));
        }
    }
    Ok(None)
}
