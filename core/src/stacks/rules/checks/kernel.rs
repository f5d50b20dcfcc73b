//! Modules built on the node have the headers of every kernel; modules built elsewhere are built
//! for one of its kernels.

use super::super::packages::{Packages, Present};
use super::{Outcome, Slots};

pub(super) fn check_kernel(packages: &Packages<'_>, dkms: &str, precompiled: &str) -> Vec<Outcome> {
    let (dkms, precompiled) = (packages.component(dkms), packages.component(precompiled));
    let Some(package) = dkms.first().or(precompiled.first()) else {
        return Vec::new();
    };
    let kernels = packages.kernels();
    if kernels.is_empty() {
        return vec![Outcome::Unknown(format!(
            "{package} is there, and nothing says for which kernel: the image is not known"
        ))];
    }
    let mut outcomes = Vec::new();
    for kernel in &kernels {
        if let Some(package) = dkms.first() {
            outcomes.extend(check_headers(packages, package, kernel));
        }
        outcomes.extend(check_build(packages, &precompiled, kernel));
    }
    outcomes
}

/// Checks that a module built on the node has the headers of the kernel.
fn check_headers(packages: &Packages<'_>, package: &Present, kernel: &str) -> Option<Outcome> {
    let headers = format!("linux-headers-{kernel}");
    if packages.has(&headers) {
        return None;
    }
    // Before the stack is locked, a metapackage can depend on the headers.
    let has_metapackage = packages
        .names()
        .any(|name| name.starts_with("linux-headers-"));
    if has_metapackage && !packages.locked() {
        return Some(Outcome::Unknown(format!(
            "whether {headers} comes with what is named is seen when it is locked"
        )));
    }
    if packages.strange() {
        return Some(Outcome::Unknown(format!(
            "the stack brings no {headers}, which the node may have"
        )));
    }
    let want = format!("{headers} (add the package to the stack)");
    Some(lacks(package, want))
}

/// Checks that a prebuilt module has a package for the kernel. A name without a kernel belongs to a
/// metapackage, and counts only if no other name has a kernel.
fn check_build(packages: &Packages<'_>, precompiled: &[Present], kernel: &str) -> Option<Outcome> {
    let bare = |package: &Present| without_kernel(&package.name, kernel).map(str::to_owned);
    let any_named = precompiled.iter().any(|package| bare(package).is_some());
    let is_built = |bare: &str| {
        precompiled
            .iter()
            .any(|package| package.name == format!("{bare}-{kernel}"))
    };
    let package = precompiled.iter().find(|package| match bare(package) {
        Some(bare) => !is_built(&bare),
        None => !any_named,
    })?;
    match any_named || packages.locked() {
        true => {
            let add = bare(package).map(|bare| format!(" (add {bare}-{kernel} to the stack)"));
            let want = format!(
                "build for {kernel}, the kernel that runs{}",
                add.unwrap_or_default()
            );
            Some(lacks(package, want))
        }
        false => Some(Outcome::Unknown(format!("{package} names no kernel"))),
    }
}

fn lacks(package: &Present, want: String) -> Outcome {
    Outcome::Violated(Slots {
        of: package.to_string(),
        want,
        about: package.name.clone(),
        ..Slots::default()
    })
}

/// Returns the name of a module package without the kernel: `gpfs.gplbin` for
/// `gpfs.gplbin-6.1.0-39-amd64`. Returns `None` for a name without a kernel. A kernel is the given
/// release, or another word starting with three numbers; the 24.04 of `generic-hwe-24.04` has two.
fn without_kernel<'n>(name: &'n str, kernel: &str) -> Option<&'n str> {
    let is_release = |rest: &str| {
        let numbers = rest
            .split(|c: char| !c.is_ascii_digit() && c != '.')
            .next()
            .unwrap_or_default();
        numbers
            .split('.')
            .filter(|number| !number.is_empty())
            .count()
            > 2
    };
    let of_another_kernel = || {
        name.match_indices('-')
            .find(|(at, _)| is_release(&name[at + 1..]))
            .map(|(at, _)| &name[..at])
    };
    name.strip_suffix(kernel)
        .and_then(|bare| bare.strip_suffix('-'))
        .or_else(of_another_kernel)
}
