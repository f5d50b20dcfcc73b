//! Facts of the kernel, read from files: releases, modules, the command line.

use std::collections::BTreeSet;

use muster_core::stacks::ConvergePlan;
use muster_core::wire::node::{Failure, FailureCode};

use crate::failure::retryable;
use crate::machine::Machine;

/// Configuration folder of modprobe; copied into each initramfs.
pub(super) const MODPROBE: &str = "/etc/modprobe.d/";

/// Prefix of initramfs files; the release follows.
pub(super) const INITRAMFS: &str = "/boot/initrd.img-";

/// Prefix of kernel files; the release follows.
pub(super) const KERNELS: &str = "/boot/vmlinuz-";

/// GRUB's menu, read at boot.
pub(super) const MENU: &str = "/boot/grub/grub.cfg";

pub(super) const MODULES: &str = "/lib/modules/";

pub(super) const FILE_MAX: u64 = 1 << 20;

/// Returns the releases having files with the given prefix.
pub(super) fn releases(machine: &Machine, files: &str) -> BTreeSet<String> {
    let (folder, prefix) = files.rsplit_once('/').unwrap_or_default();
    let names = std::fs::read_dir(machine.path(folder))
        .into_iter()
        .flatten()
        .flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let releases = names.filter_map(|name| name.strip_prefix(prefix).map(str::to_owned));
    // A `.dpkg-new` file is not installed yet, and is not a menu entry.
    releases
        .filter(|release| {
            release.starts_with(|c: char| c.is_ascii_digit()) && !release.contains(".dpkg-")
        })
        .collect()
}

/// Returns a test for packages of a kernel other than the running kernel, by the release in the
/// package name.
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

/// Returns the release of the running kernel.
///
/// # Errors
/// `io`.
pub(crate) fn running_release(machine: &Machine) -> Result<Option<String>, Failure> {
    let release = machine.read("/proc/sys/kernel/osrelease", FILE_MAX)?;
    Ok(release
        .map(|bytes| words(&String::from_utf8_lossy(&bytes)))
        .filter(|release| !release.is_empty()))
}

/// Returns the release of the next boot: the plan's kernel, else the newest kernel of the boot
/// menu, else the running kernel. Of releases with equal numbers, such as two flavours of a kernel,
/// the running release is preferred.
///
/// # Errors
/// `io`.
pub(super) fn next_release(machine: &Machine, plan: &ConvergePlan) -> Result<String, Failure> {
    let running = running_release(machine)?;
    let rank = |release: &String| (numbers(release), running.as_ref() == Some(release));
    let planned = plan.packages.iter();
    let planned = planned.filter_map(|package| release_of(&package.name));
    let newest = || releases(machine, KERNELS).into_iter().max_by_key(rank);
    let next = planned.max_by_key(rank).or_else(newest);
    next.or(running)
        .ok_or_else(|| retryable(FailureCode::Io, "/proc is not mounted"))
}

/// Returns the tokens of the running kernel's command line.
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

/// Returns the newest release among kernel packages (`linux-image-6.1.0-40-amd64`); `None` without
/// a package named by release.
pub(crate) fn newest_release<'a>(packages: impl Iterator<Item = &'a str>) -> Option<String> {
    packages
        .filter_map(release_of)
        .max_by_key(|release| numbers(release))
}

/// Returns the release of a kernel package; `None` for a package without a release in its name.
pub(super) fn release_of(package: &str) -> Option<String> {
    let release = package.strip_prefix("linux-image-")?;
    let named = release.starts_with(|c: char| c.is_ascii_digit()) && !release.contains("-dbg");
    named.then(|| release.trim_end_matches("-unsigned").to_owned())
}

pub(super) fn numbers(release: &str) -> Vec<u64> {
    release
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|number| number.parse().ok())
        .collect()
}

/// Whether the module has a folder in /sys/module. Built-in modules with parameters have a folder
/// too.
pub(crate) fn is_loaded(machine: &Machine, name: &str) -> bool {
    machine
        .path(&format!("/sys/module/{}", underscored(name)))
        .is_dir()
}

pub(crate) fn underscored(name: &str) -> String {
    name.replace('-', "_")
}

/// Returns `nouveau` for `usr/lib/modules/6.1.0/kernel/drivers/gpu/nouveau.ko.xz`.
pub(crate) fn module_of(path: &str) -> Option<String> {
    let name = path.rsplit('/').next()?;
    name.find(".ko").map(|end| underscored(&name[..end]))
}

/// Joins words by single spaces, because the kernel separates several numbers by tabs.
pub(super) fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
