//! Configuration files written by converge from a plan's settings. A file without a setting in the
//! plan must be absent, so that a setting removed from the stack is removed from the node.

use std::fmt::Write as _;

use muster_core::stacks::ConvergePlan;
use muster_core::wire::node::{Failure, FailureCode};

use super::file::Target;
use crate::failure::fatal;

/// apt sources for converge alone. The bundle is unsigned, so an apt run by hand must not use the
/// bundle.
pub(super) const SOURCES: &str = "/var/lib/muster/apt/sources.list";
/// Place of the sources in earlier versions; the file is removed.
const PUBLIC_SOURCES: &str = "/etc/apt/sources.list.d/muster.list";
pub(super) const PREFERENCES: &str = "/etc/apt/preferences.d/muster";
pub(super) const BLACKLIST: &str = "/etc/modprobe.d/muster.conf";
pub(super) const GRUB: &str = "/etc/default/grub.d/50-muster.cfg";
const HEADER: &str = "# Written by muster-node from the stack's plan; changes here are undone.\n";

/// Returns the files needed by apt before packages change.
pub fn apt_files(plan: &ConvergePlan) -> Vec<Target> {
    vec![
        Target::ours(SOURCES, Some(sources(plan))),
        Target::ours(PUBLIC_SOURCES, None::<String>),
        Target::ours(PREFERENCES, Some(preferences(plan))),
    ]
}

/// Returns every other file: the plan's own files, then the files made from settings.
///
/// # Errors
/// `bad_plan`.
pub fn files(plan: &ConvergePlan) -> Result<Vec<Target>, Failure> {
    let mut targets = plan
        .files
        .iter()
        .map(Target::planned)
        .collect::<Result<Vec<_>, _>>()?;
    let sysctl = plan
        .sysctl
        .iter()
        .map(|(key, value)| format!("{key} = {value}"));
    let modules = plan.modules_load.iter().cloned();
    // `blacklist` blocks loading by alias, `install` blocks loading by name (modprobe.d(5)).
    let blacklist = plan
        .modules_blacklist
        .iter()
        .map(|name| format!("blacklist {name}\ninstall {name} /bin/false"));
    let limits = plan.limits.iter().map(|limit| {
        format!(
            "{} {} {} {}",
            limit.domain, limit.kind, limit.item, limit.value
        )
    });
    targets.push(Target::ours("/etc/sysctl.d/90-muster.conf", lines(sysctl)));
    targets.push(Target::ours(
        "/etc/modules-load.d/muster.conf",
        lines(modules),
    ));
    targets.push(Target::ours(BLACKLIST, lines(blacklist)));
    targets.push(Target::ours(
        "/etc/security/limits.d/90-muster.conf",
        lines(limits),
    ));
    targets.push(Target::ours(GRUB, grub(plan)));
    targets.push(Target::ours(
        "/etc/ssh/muster_user_ca.pub",
        Some(format!("{}\n", plan.user_ca.trim())),
    ));
    targets.push(Target::ours(
        "/etc/ssh/muster_principals",
        Some(format!("{}\n", plan.principal)),
    ));
    // Equal byte for byte to the marker written while imaging, so that the first converge finds the
    // file unchanged.
    let marker = serde_json::to_string(&plan.marker)
        .map_err(|error| fatal(FailureCode::BadPlan, error.to_string()))?;
    targets.push(Target::ours("/etc/muster/marker.json", Some(marker + "\n")));
    Ok(targets)
}

/// Formats the bundle's source line. The suite `/` makes apt request `<repository>/Packages`; `./`
/// would request `<repository>/./Packages`. The bundle is unsigned: `trusted=yes` lets apt use the
/// bundle, and converge compares every package with the plan's digests before dpkg reads any.
fn sources(plan: &ConvergePlan) -> String {
    format!(
        "{HEADER}deb [trusted=yes] {}/ /\n",
        plan.repository.trim_end_matches('/')
    )
}

/// Formats the pins. The whole set has priority 1001, above the installed versions and every other
/// source: an upgrade by hand cannot split the set.
fn preferences(plan: &ConvergePlan) -> String {
    let mut text = HEADER.to_owned();
    for package in &plan.packages {
        let _ = write!(
            text,
            "\nPackage: {}\nPin: version {}\nPin-Priority: 1001\n",
            package.name, package.version
        );
    }
    for name in &plan.absent {
        let _ = write!(
            text,
            "\nPackage: {name}\nPin: version *\nPin-Priority: -1\n"
        );
    }
    text
}

/// Formats a shell fragment sourced by update-grub. The arguments were validated against a grammar
/// without quotes or dollars.
fn grub(plan: &ConvergePlan) -> Option<String> {
    let arguments = plan.kernel_args.join(" ");
    (!arguments.is_empty())
        .then(|| format!("{HEADER}GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX {arguments}\"\n"))
}

/// Makes the boot menu boot the given release. update-grub knows the device while reading the file,
/// and names menu entries by the device (/etc/grub.d/10_linux).
pub(super) fn boot_by_default(targets: &mut [Target], release: &str) {
    let default = format!(
        "GRUB_DISABLE_SUBMENU=true\nGRUB_DEFAULT=\"gnulinux-{release}-advanced-${{GRUB_DEVICE_UUID:-$GRUB_DEVICE}}\"\n"
    );
    for target in targets.iter_mut().filter(|target| target.path == GRUB) {
        target
            .content
            .get_or_insert_with(|| HEADER.into())
            .extend_from_slice(default.as_bytes());
    }
}

fn lines(lines: impl Iterator<Item = String>) -> Option<String> {
    let text: String = lines.map(|line| line + "\n").collect();
    (!text.is_empty()).then(|| format!("{HEADER}{text}"))
}
