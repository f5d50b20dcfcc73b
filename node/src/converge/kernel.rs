//! The running kernel: its settings, modules, command line and release.

use std::collections::BTreeSet;
use std::time::Duration;

use muster_core::stacks::ConvergePlan;
use muster_core::wire::node::Failure;

use super::item::Item;
use super::machine::Machine;
use super::{managed, pending::Pending};
use crate::failure::{fatal, retryable};
use crate::job::JobContext;

const FILE_MAX: u64 = 1 << 20;
const MODPROBE_TIMEOUT: Duration = Duration::from_secs(60);
/// Writing an initramfs takes minutes on an emulated machine.
const BOOT_FILES_TIMEOUT: Duration = Duration::from_secs(900);

/// Settings, modules, command line and release against the plan.
///
/// # Errors
/// `io`.
pub(super) fn items(machine: &Machine, plan: &ConvergePlan) -> Result<Vec<Item>, Failure> {
    let mut items = Vec::new();
    for (key, value) in &plan.sysctl {
        let found = machine.read(&sysctl_path(key), FILE_MAX).ok().flatten();
        let found = found.map(|bytes| words(&String::from_utf8_lossy(&bytes)));
        items.push(Item::new(format!("sysctl {key}"), words(value), found));
    }
    for name in &plan.modules_load {
        let found = is_loaded(machine, name).then(|| "loaded".to_owned());
        items.push(Item::new(format!("module {name}"), "loaded", found));
    }
    for name in &plan.modules_blacklist {
        // Unloading a driver under running devices is how nodes hang; a reboot without it is safe.
        let found = if is_loaded(machine, name) { "loaded" } else { "not loaded" };
        let item = Item::new(format!("blacklisted module {name}"), "not loaded", Some(found.into()));
        items.push(Item { by_reboot: true, ..item });
    }
    let active = command_line(machine)?;
    for argument in &plan.kernel_args {
        let found = active.contains(argument).then(|| argument.clone());
        items.push(Item { by_reboot: true, ..Item::new(format!("kernel argument {argument}"), argument, found) });
    }
    if let Some(wanted) = newest_release(plan.packages.iter().map(|package| package.name.as_str())) {
        let running = machine.read("/proc/sys/kernel/osrelease", FILE_MAX)?;
        let running = running.map(|bytes| words(&String::from_utf8_lossy(&bytes)));
        items.push(Item { by_reboot: true, ..Item::new("running kernel", wanted, running) });
    }
    Ok(items)
}

/// Loads modules and sets what differs.
///
/// # Errors
/// `module_failed`, `sysctl_failed`.
pub(super) fn apply(machine: &Machine, plan: &ConvergePlan, cx: &JobContext) -> Result<(), Failure> {
    for name in plan.modules_load.iter().filter(|name| !is_loaded(machine, name)) {
        machine.output(cx, "module_failed", &["modprobe", "--", name], MODPROBE_TIMEOUT)?;
    }
    for (key, value) in &plan.sysctl {
        let path = sysctl_path(key);
        let is = machine.read(&path, FILE_MAX).ok().flatten().map(|bytes| words(&String::from_utf8_lossy(&bytes)));
        if is.as_ref() != Some(&words(value)) {
            // No temporary file here: each write to /proc/sys is the setting itself.
            std::fs::write(machine.path(&path), value)
                .map_err(|error| fatal("sysctl_failed", format!("sysctl {key} = {value}: {error}")))?;
        }
    }
    Ok(())
}

/// Rewrites boot files for settings that changed: GRUB's menu for arguments, the initramfs where it holds a module that is now blacklisted.
///
/// # Errors
/// `grub_failed`, `initramfs_failed`.
pub(super) fn apply_boot(
    machine: &Machine,
    plan: &ConvergePlan,
    pending: &Pending,
    cx: &JobContext,
) -> Result<(), Failure> {
    if pending.paths.contains(managed::GRUB) {
        cx.progress("writes the boot menu", None, None, None);
        machine.output(cx, "grub_failed", &["update-grub"], BOOT_FILES_TIMEOUT)?;
    }
    if pending.paths.contains(managed::BLACKLIST) && initramfs_holds(machine, &plan.modules_blacklist, cx)? {
        cx.progress("writes the initramfs without blacklisted modules", None, None, None);
        machine.output(cx, "initramfs_failed", &["update-initramfs", "-u"], BOOT_FILES_TIMEOUT)?;
    }
    Ok(())
}

/// Whether the running kernel's initramfs holds one of these modules.
fn initramfs_holds(machine: &Machine, modules: &[String], cx: &JobContext) -> Result<bool, Failure> {
    let release = machine.read("/proc/sys/kernel/osrelease", FILE_MAX)?.unwrap_or_default();
    let image = format!("/boot/initrd.img-{}", String::from_utf8_lossy(&release).trim());
    if modules.is_empty() || !machine.path(&image).exists() {
        return Ok(false);
    }
    let listing = machine.output(cx, "initramfs_failed", &["lsinitramfs", &image], BOOT_FILES_TIMEOUT)?;
    let listing = String::from_utf8_lossy(&listing);
    let held: BTreeSet<String> = listing.lines().filter_map(module_of).collect();
    Ok(modules.iter().any(|module| held.contains(&underscored(module))))
}

/// `usr/lib/modules/6.1.0/kernel/drivers/gpu/nouveau.ko.xz` is `nouveau`.
fn module_of(path: &str) -> Option<String> {
    let name = path.rsplit('/').next()?;
    name.find(".ko").map(|end| underscored(&name[..end]))
}

/// The tokens of the running kernel's command line.
///
/// # Errors
/// `io`.
pub(crate) fn command_line(machine: &Machine) -> Result<BTreeSet<String>, Failure> {
    let bytes = machine.read("/proc/cmdline", FILE_MAX)?.ok_or_else(|| retryable("io", "/proc is not mounted"))?;
    Ok(String::from_utf8_lossy(&bytes).split_whitespace().map(str::to_owned).collect())
}

/// The newest release among kernel packages (`linux-image-6.1.0-40-amd64`); `None` when none is named by release.
pub(crate) fn newest_release<'a>(packages: impl Iterator<Item = &'a str>) -> Option<String> {
    let numbers = |release: &&str| -> Vec<u64> {
        release.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
    };
    let releases = packages.filter_map(|package| package.strip_prefix("linux-image-"));
    let by_release =
        releases.filter(|release| release.starts_with(|c: char| c.is_ascii_digit()) && !release.contains("-dbg"));
    by_release.max_by_key(numbers).map(|release| release.trim_end_matches("-unsigned").to_owned())
}

/// `vm.swappiness` is /proc/sys/vm/swappiness. Where the first separator is a slash, slashes separate and dots are dots (sysctl.d(5)).
fn sysctl_path(key: &str) -> String {
    let slashed = key.find(['.', '/']).is_some_and(|at| key[at..].starts_with('/'));
    let swap = |c| match c {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    format!("/proc/sys/{}", if slashed { key.to_owned() } else { key.chars().map(swap).collect() })
}

/// Modules built into the kernel have a folder too, where they have parameters.
fn is_loaded(machine: &Machine, name: &str) -> bool {
    machine.path(&format!("/sys/module/{}", underscored(name))).is_dir()
}

fn underscored(name: &str) -> String {
    name.replace('-', "_")
}

/// The kernel separates several numbers by tabs.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_kernel_are_read_its_way() {
        assert_eq!(sysctl_path("vm.swappiness"), "/proc/sys/vm/swappiness");
        assert_eq!(sysctl_path("net/ipv4/conf/eth0.1/forwarding"), "/proc/sys/net/ipv4/conf/eth0.1/forwarding");
        assert_eq!(sysctl_path("net.ipv4.conf.eth0/1.forwarding"), "/proc/sys/net/ipv4/conf/eth0.1/forwarding");
        assert_eq!(module_of("usr/lib/modules/6.1.0-40/kernel/a/snd-hda.ko.xz").as_deref(), Some("snd_hda"));
        assert_eq!(module_of("usr/bin/kmod"), None);
        let packages = ["linux-image-amd64", "linux-image-6.1.0-9-amd64", "linux-image-6.1.0-40-amd64", "linux-base"];
        assert_eq!(newest_release(packages.into_iter()).as_deref(), Some("6.1.0-40-amd64"));
    }
}
