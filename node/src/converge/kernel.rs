//! The running kernel: its settings, modules, command line and release.

use std::collections::BTreeSet;
use std::time::Duration;

use muster_core::stacks::ConvergePlan;
use muster_core::wire::node::{Failure, FailureCode};

use super::item::{self, Item};
use super::kernel_facts::{
    FILE_MAX, INITRAMFS, KERNELS, MENU, MODPROBE, MODULES, command_line, is_loaded, module_of,
    newest_release, numbers, release_of, releases, running_release, underscored, words,
};
use super::record::LeavingPackages;
use super::{managed, pending::Pending, reboot, room};
use crate::failure::{fatal, io};
use crate::files;
use crate::job::JobContext;
use crate::machine::Machine;

const MODPROBE_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest write of boot files. Writing an initramfs takes minutes on an emulated machine.
const BOOT_FILES_TIMEOUT: Duration = Duration::from_secs(900);

/// Compares settings, modules, command line and release with the plan. Items held back by a due
/// reboot wait for the boot.
///
/// # Errors
/// `io`.
pub(super) fn items(
    machine: &Machine,
    plan: &ConvergePlan,
    cx: &JobContext,
) -> Result<Vec<Item>, Failure> {
    let mut items = of_the_boot(machine, plan)?;
    items.extend(reboot::items(machine, plan, cx)?);
    let held = item::held_back(&items);
    for (key, value) in &plan.sysctl {
        let found = machine.read(&sysctl_path(key), FILE_MAX).ok().flatten();
        let found = found.map(|bytes| words(&String::from_utf8_lossy(&bytes)));
        // A missing setting may belong to a module held back until the reboot.
        let by_reboot = held && found.is_none();
        items.push(Item {
            by_reboot,
            ..Item::new(format!("sysctl {key}"), words(value), found)
        });
    }
    for name in &plan.modules_load {
        let found = is_loaded(machine, name).then(|| "loaded".to_owned());
        items.push(Item {
            by_reboot: held,
            ..Item::new(format!("module {name}"), "loaded", found)
        });
    }
    Ok(items)
}

/// Returns the items changed only by a boot.
fn of_the_boot(machine: &Machine, plan: &ConvergePlan) -> Result<Vec<Item>, Failure> {
    let mut items = Vec::new();
    for name in &plan.modules_blacklist {
        // Unloading a driver under running devices can hang the node; a reboot without the driver
        // is safe.
        let found = if is_loaded(machine, name) {
            "loaded"
        } else {
            "not loaded"
        };
        let item = Item::new(
            format!("blacklisted module {name}"),
            "not loaded",
            Some(found.into()),
        );
        items.push(item.held_until_boot());
    }
    let active = command_line(machine)?;
    for argument in &plan.kernel_args {
        let found = active.contains(argument).then(|| argument.clone());
        items.push(Item {
            by_reboot: true,
            ..Item::new(format!("kernel argument {argument}"), argument, found)
        });
    }
    if let Some(wanted) = newest_release(plan.packages.iter().map(|package| package.name.as_str()))
    {
        let running = running_release(machine)?;
        // Modules of another kernel must not be loaded into the running kernel.
        items.push(Item::new("running kernel", wanted, running).held_until_boot());
    }
    Ok(items)
}

/// Loads modules and writes differing settings. While a reboot is due, only existing settings are
/// written.
///
/// # Errors
/// `module_failed`, `sysctl_failed`.
pub(super) fn apply(
    machine: &Machine,
    plan: &ConvergePlan,
    held: bool,
    cx: &JobContext,
) -> Result<(), Failure> {
    for name in plan
        .modules_load
        .iter()
        .filter(|name| !held && !is_loaded(machine, name))
    {
        machine.output(
            cx,
            FailureCode::ModuleFailed,
            &["modprobe", "--", name],
            MODPROBE_TIMEOUT,
        )?;
    }
    for (key, value) in &plan.sysctl {
        let path = sysctl_path(key);
        let is = machine
            .read(&path, FILE_MAX)
            .ok()
            .flatten()
            .map(|bytes| words(&String::from_utf8_lossy(&bytes)));
        if is.as_ref() != Some(&words(value)) && !(held && is.is_none()) {
            // Written in place without a temporary file: each write to /proc/sys is the setting
            // itself.
            std::fs::write(machine.path(&path), value).map_err(|error| {
                fatal(
                    FailureCode::SysctlFailed,
                    format!("sysctl {key} = {value}: {error}"),
                )
            })?;
        }
    }
    Ok(())
}

/// Rewrites boot files for changed settings: GRUB's menu for kernel arguments; for modprobe
/// settings the initramfs of every bootable kernel.
///
/// # Errors
/// `grub_failed`, `initramfs_failed`, `disk_full`.
pub(super) fn apply_boot(
    machine: &Machine,
    pending: &Pending,
    cx: &JobContext,
) -> Result<(), Failure> {
    if pending.paths.contains(managed::GRUB) {
        cx.progress("writing the boot menu", None, None, None);
        cx.uncut(|| write_menu(machine, cx))?;
        reboot::note_written(machine, managed::GRUB)?;
    }
    let told: Vec<&String> = pending
        .paths
        .iter()
        .filter(|path| path.starts_with(MODPROBE))
        .collect();
    if told.is_empty() {
        return Ok(());
    }
    let mut modules = BTreeSet::new();
    for path in &told {
        let text = machine.read(path, FILE_MAX)?.unwrap_or_default();
        modules.extend(String::from_utf8_lossy(&text).lines().filter_map(told_of));
    }
    for release in bootable(machine) {
        // modprobe settings matter only in an initramfs holding the module or the former settings.
        // Skipping the rest saves minutes.
        if initramfs_holds(machine, &release, &modules, &told, cx)? {
            cx.progress(
                &format!("writing the initramfs of {release}"),
                None,
                None,
                None,
            );
            room::check_initramfs(machine)?;
            let argv = ["update-initramfs", "-u", "-k", &release];
            cx.uncut(|| {
                machine.output(cx, FailureCode::InitramfsFailed, &argv, BOOT_FILES_TIMEOUT)
            })?;
        }
    }
    told.iter()
        .try_for_each(|path| reboot::note_written(machine, path))
}

/// Writes the boot menu as update-grub does, a one-line wrapper of grub-mkconfig. grub-mkconfig
/// empties the target before writing, and does not sync. A node interrupted there could not boot,
/// so the menu is written under another name and renamed.
fn write_menu(machine: &Machine, cx: &JobContext) -> Result<(), Failure> {
    let new = format!("{MENU}.muster");
    machine.output(
        cx,
        FailureCode::GrubFailed,
        &["grub-mkconfig", "-o", &new],
        BOOT_FILES_TIMEOUT,
    )?;
    files::replace_durably(&machine.path(MENU), &machine.path(&new)).map_err(io(MENU))
}

/// Returns the module named by a line of modprobe.d(5).
fn told_of(line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    match words.next()? {
        "alias" => words.nth(1).map(underscored),
        "options" | "blacklist" | "install" | "remove" | "softdep" => words.next().map(underscored),
        _ => None,
    }
}

/// Returns the releases having both an initramfs and modules to build an initramfs: the next boot
/// may use another kernel than the running kernel.
fn bootable(machine: &Machine) -> BTreeSet<String> {
    let mut releases = releases(machine, INITRAMFS);
    releases.retain(|release| machine.path(&format!("{MODULES}{release}")).is_dir());
    releases
}

/// Returns the plan's release when the boot menu would boot a newer release by default. The newer
/// release may be the running release, or a release of the image.
pub(super) fn chosen(
    machine: &Machine,
    plan: &ConvergePlan,
    leaving: &LeavingPackages,
) -> Option<String> {
    let wanted = newest_release(plan.packages.iter().map(|package| package.name.as_str()))?;
    let gone: Vec<String> = leaving
        .go
        .iter()
        .chain(&plan.absent)
        .filter_map(|name| release_of(name))
        .collect();
    let stays = |release: &String| *release != wanted && !gone.contains(release);
    let rivals = releases(machine, KERNELS);
    rivals
        .iter()
        .any(|rival| stays(rival) && numbers(rival) >= numbers(&wanted))
        .then_some(wanted)
}

/// Whether the initramfs of a release contains a given module, or the earlier version of a given
/// file. The list of blocked modules does not count: a lifted block waits until the initramfs is
/// written for another reason.
fn initramfs_holds(
    machine: &Machine,
    release: &str,
    modules: &BTreeSet<String>,
    files: &[&String],
    cx: &JobContext,
) -> Result<bool, Failure> {
    let image = format!("/boot/initrd.img-{release}");
    let listing = machine.output(
        cx,
        FailureCode::InitramfsFailed,
        &["lsinitramfs", &image],
        BOOT_FILES_TIMEOUT,
    )?;
    let listing = String::from_utf8_lossy(&listing);
    let former = |line: &str| {
        files
            .iter()
            .any(|path| *path != managed::BLACKLIST && path.trim_start_matches('/') == line)
    };
    Ok(listing.lines().any(|line| {
        former(line) || module_of(line).is_some_and(|module| modules.contains(&module))
    }))
}

/// Maps `vm.swappiness` to /proc/sys/vm/swappiness. When the first separator is a slash, slashes
/// separate and dots are literal (sysctl.d(5)).
fn sysctl_path(key: &str) -> String {
    let slashed = key
        .find(['.', '/'])
        .is_some_and(|at| key[at..].starts_with('/'));
    let swap = |c| match c {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    format!(
        "/proc/sys/{}",
        if slashed {
            key.to_owned()
        } else {
            key.chars().map(swap).collect()
        }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_kernel_are_read_its_way() {
        assert_eq!(sysctl_path("vm.swappiness"), "/proc/sys/vm/swappiness");
        assert_eq!(
            sysctl_path("net/ipv4/conf/eth0.1/forwarding"),
            "/proc/sys/net/ipv4/conf/eth0.1/forwarding"
        );
        assert_eq!(
            sysctl_path("net.ipv4.conf.eth0/1.forwarding"),
            "/proc/sys/net/ipv4/conf/eth0.1/forwarding"
        );
        assert_eq!(
            module_of("usr/lib/modules/6.1.0-40/kernel/a/snd-hda.ko.xz").as_deref(),
            Some("snd_hda")
        );
        assert_eq!(module_of("usr/bin/kmod"), None);
        let packages = [
            "linux-image-amd64",
            "linux-image-6.1.0-9-amd64",
            "linux-image-6.1.0-40-amd64",
            "linux-base",
        ];
        assert_eq!(
            newest_release(packages.into_iter()).as_deref(),
            Some("6.1.0-40-amd64")
        );
    }
}
