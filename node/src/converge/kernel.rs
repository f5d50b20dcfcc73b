//! The running kernel: its settings, modules, command line and release.

use std::collections::BTreeSet;
use std::time::Duration;

use muster_core::stacks::ConvergePlan;
use muster_core::wire::node::{Failure, FailureCode};

use super::item::{self, Item};
use super::machine::Machine;
use super::record::LeavingPackages;
use super::{managed, pending::Pending, reboot, room};
use crate::failure::{fatal, io, retryable};
use crate::files;
use crate::job::JobContext;

/// What modprobe is told; copied into each initramfs.
pub(super) const MODPROBE: &str = "/etc/modprobe.d/";
/// Before a release, the names of its files.
pub(super) const INITRAMFS: &str = "/boot/initrd.img-";
/// What GRUB reads when the machine boots.
pub(super) const MENU: &str = "/boot/grub/grub.cfg";
const MODULES: &str = "/lib/modules/";
const FILE_MAX: u64 = 1 << 20;
const MODPROBE_TIMEOUT: Duration = Duration::from_secs(60);
/// Writing an initramfs takes minutes on an emulated machine.
const BOOT_FILES_TIMEOUT: Duration = Duration::from_secs(900);

/// Settings, modules, command line and release against the plan. What a due reboot holds back waits for it.
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
        // One that is not there may be of a module that is held back.
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

/// What only a boot changes.
fn of_the_boot(machine: &Machine, plan: &ConvergePlan) -> Result<Vec<Item>, Failure> {
    let mut items = Vec::new();
    for name in &plan.modules_blacklist {
        // Unloading a driver under running devices is how nodes hang; a reboot without it is safe.
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
        // Modules of another kernel are not to be loaded into this one.
        items.push(Item::new("running kernel", wanted, running).held_until_boot());
    }
    Ok(items)
}

/// Loads modules and sets what differs; while a reboot is due, only what is there can be set.
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
            // No temporary file here: each write to /proc/sys is the setting itself.
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

/// Rewrites boot files for settings that changed: GRUB's menu for arguments, the initramfs of every kernel that may boot for what modprobe is told there.
///
/// # Errors
/// `grub_failed`, `initramfs_failed`, `disk_full`.
pub(super) fn apply_boot(
    machine: &Machine,
    pending: &Pending,
    cx: &JobContext,
) -> Result<(), Failure> {
    if pending.paths.contains(managed::GRUB) {
        cx.progress("writes the boot menu", None, None, None);
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
        // What modprobe is told matters only where the module is, or where it was told otherwise before; minutes are saved.
        if initramfs_holds(machine, &release, &modules, &told, cx)? {
            cx.progress(
                &format!("writes the initramfs of {release}"),
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

/// As update-grub does, which is one line around grub-mkconfig. That empties the menu before it fills it, and syncs nothing: cut there, the node would boot
/// no more. So it is told another name.
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

/// The module that a line of modprobe.d(5) is about.
fn told_of(line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    match words.next()? {
        "alias" => words.nth(1).map(underscored),
        "options" | "blacklist" | "install" | "remove" | "softdep" => words.next().map(underscored),
        _ => None,
    }
}

/// The releases that have both an initramfs and modules to make one of: the one that runs need not be the one that boots.
fn bootable(machine: &Machine) -> BTreeSet<String> {
    let mut releases = releases(machine, INITRAMFS);
    releases.retain(|release| machine.path(&format!("{MODULES}{release}")).is_dir());
    releases
}

/// The releases that there are files of.
pub(super) fn releases(machine: &Machine, files: &str) -> BTreeSet<String> {
    let (folder, prefix) = files.rsplit_once('/').unwrap_or_default();
    let names = std::fs::read_dir(machine.path(folder))
        .into_iter()
        .flatten()
        .flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let releases = names.filter_map(|name| name.strip_prefix(prefix).map(str::to_owned));
    // A `.dpkg-new` is on its way; it is no menu entry either.
    releases
        .filter(|release| {
            release.starts_with(|c: char| c.is_ascii_digit()) && !release.contains(".dpkg-")
        })
        .collect()
}

/// Tells packages that are of a kernel beside the one that runs, by the release in their names.
///
/// # Errors
/// `io`.
pub(super) fn of_another(machine: &Machine) -> Result<impl Fn(&str) -> bool, Failure> {
    let running = running_release(machine)?;
    let known = &releases(machine, MODULES) | &releases(machine, INITRAMFS);
    Ok(move |package: &str| {
        let of = |release: &String| package.contains(release.as_str());
        running.as_ref().is_some_and(|running| !of(running)) && known.iter().any(of)
    })
}

/// The release of the plan, where the boot menu would boot a newer one by itself: one that runs yet, or that the image brought.
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
    let rivals = releases(machine, "/boot/vmlinuz-");
    rivals
        .iter()
        .any(|rival| stays(rival) && numbers(rival) >= numbers(&wanted))
        .then_some(wanted)
}

/// Whether the initramfs of a release contains one of these modules, or the earlier version of one of these files. The list of blocked modules does not
/// count: a lifted block waits until the initramfs is written for another reason.
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

/// `usr/lib/modules/6.1.0/kernel/drivers/gpu/nouveau.ko.xz` is `nouveau`.
fn module_of(path: &str) -> Option<String> {
    let name = path.rsplit('/').next()?;
    name.find(".ko").map(|end| underscored(&name[..end]))
}

/// The release of the kernel that runs.
///
/// # Errors
/// `io`.
pub(super) fn running_release(machine: &Machine) -> Result<Option<String>, Failure> {
    let release = machine.read("/proc/sys/kernel/osrelease", FILE_MAX)?;
    Ok(release
        .map(|bytes| words(&String::from_utf8_lossy(&bytes)))
        .filter(|release| !release.is_empty()))
}

/// The tokens of the running kernel's command line.
///
/// # Errors
/// `io`.
pub(crate) fn command_line(machine: &Machine) -> Result<BTreeSet<String>, Failure> {
    let bytes = machine
        .read("/proc/cmdline", FILE_MAX)?
        .ok_or_else(|| retryable(FailureCode::Io, "/proc is not mounted"))?;
    Ok(String::from_utf8_lossy(&bytes)
        .split_whitespace()
        .map(str::to_owned)
        .collect())
}

/// The newest release among kernel packages (`linux-image-6.1.0-40-amd64`); `None` when none is named by release.
pub(crate) fn newest_release<'a>(packages: impl Iterator<Item = &'a str>) -> Option<String> {
    packages
        .filter_map(release_of)
        .max_by_key(|release| numbers(release))
}

/// The release of a kernel package; `None` when it is not named by one.
pub(super) fn release_of(package: &str) -> Option<String> {
    let release = package.strip_prefix("linux-image-")?;
    let named = release.starts_with(|c: char| c.is_ascii_digit()) && !release.contains("-dbg");
    named.then(|| release.trim_end_matches("-unsigned").to_owned())
}

fn numbers(release: &str) -> Vec<u64> {
    release
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|number| number.parse().ok())
        .collect()
}

/// `vm.swappiness` is /proc/sys/vm/swappiness. Where the first separator is a slash, slashes separate and dots are dots (sysctl.d(5)).
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

/// Modules built into the kernel have a folder too, where they have parameters.
pub(super) fn is_loaded(machine: &Machine, name: &str) -> bool {
    machine
        .path(&format!("/sys/module/{}", underscored(name)))
        .is_dir()
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
