//! The kernels of a stack: the stack decides which kernel a node boots, not apt and not the order
//! of names.

use std::collections::{BTreeMap, BTreeSet};

use super::Level;
use super::packages::release_of;
use crate::stacks::StackSpec;

/// Reports kernels that leave the choice of the booted kernel open.
pub(super) fn check(stack: &StackSpec, report: &mut impl FnMut(Level, &str, String)) {
    check_metapackages(stack, report);
    let mut versions: BTreeMap<Vec<u64>, BTreeSet<String>> = BTreeMap::new();
    for release in list_releases(stack) {
        let version = read_version(&release);
        versions.entry(version).or_default().insert(release);
    }
    for flavours in versions.values() {
        check_flavours(flavours, report);
    }
    report_reserve(&versions, report);
}

/// A metapackage brings the newest kernel of the sources at each lock, also past a named release.
/// A part may bring the metapackage, so both together are refused only in a lock with a newer
/// kernel.
fn check_metapackages(stack: &StackSpec, report: &mut impl FnMut(Level, &str, String)) {
    let named = stack.packages.keys().filter_map(|name| release_of(name));
    let Some(named) = named.max_by_key(|release| read_version(release)) else {
        return;
    };
    let version = read_version(&named);
    let releases = list_releases(stack).into_iter();
    let newer = releases.filter(|release| read_version(release) > version);
    let newer = newer.max_by_key(|release| read_version(release));
    let named = package_of(&named);
    for meta in stack.packages.keys().filter(|name| is_metapackage(name)) {
        let advice = format!(
            "write {named} alone to stay at this kernel, or {meta} alone to follow the newest"
        );
        if let Some(newer) = &newer {
            let newer = package_of(newer);
            let sentence = format!("{meta} brings {newer}, and nodes boot {newer}: {advice}");
            report(Level::Refused, meta, sentence);
        } else if stack.lock.is_none() {
            let sentence = format!(
                "{meta} is the newest kernel of the sources at each lock, and a lock with a newer \
                 kernel than {named} is refused: {advice}"
            );
            report(Level::Note, meta, sentence);
        }
    }
}

/// Nodes compare the numbers of releases, and flavours have the same numbers.
fn check_flavours(releases: &BTreeSet<String>, report: &mut impl FnMut(Level, &str, String)) {
    let names: Vec<String> = releases.iter().map(|release| package_of(release)).collect();
    if let [first, second, ..] = names.as_slice() {
        let sentence = format!(
            "{} are flavours of one kernel, and a node boots one of them: write one, such as {first}, and leave out {second}",
            names.join(" and ")
        );
        report(Level::Refused, second, sentence);
    }
}

/// Several versions are allowed: a node boots the newest.
fn report_reserve(
    versions: &BTreeMap<Vec<u64>, BTreeSet<String>>,
    report: &mut impl FnMut(Level, &str, String),
) {
    let mut all: Vec<&String> = versions.values().flatten().collect();
    let Some(newest) = all.pop().filter(|_| versions.len() > 1) else {
        return;
    };
    let others: Vec<String> = all.into_iter().map(|release| package_of(release)).collect();
    let newest = package_of(newest);
    let sentence = format!(
        "nodes boot {newest}, the newest kernel of the stack; in reserve: {}",
        others.join(", ")
    );
    report(Level::Note, &newest, sentence);
}

/// Returns the releases of the named and of the locked kernels.
fn list_releases(stack: &StackSpec) -> BTreeSet<String> {
    let named = stack.packages.keys().map(String::as_str);
    let locked = stack.lock.iter().flat_map(|lock| &lock.packages);
    let locked = locked.map(|package| package.name.as_str());
    named.chain(locked).filter_map(release_of).collect()
}

fn package_of(release: &str) -> String {
    format!("linux-image-{release}")
}

fn is_metapackage(name: &str) -> bool {
    name.starts_with("linux-image-") && !name.contains("-dbg") && release_of(name).is_none()
}

/// Returns the numbers of a release without the flavour: 6, 1, 0, 40 for `6.1.0-40-cloud-amd64`.
fn read_version(release: &str) -> Vec<u64> {
    release
        .split('-')
        .take_while(|part| part.starts_with(|c: char| c.is_ascii_digit()))
        .flat_map(|part| part.split(|c: char| !c.is_ascii_digit()))
        .filter_map(|number| number.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flavour_is_no_part_of_the_version() {
        for (release, version) in [
            ("6.1.0-40-amd64", vec![6, 1, 0, 40]),
            ("6.1.0-40-cloud-amd64", vec![6, 1, 0, 40]),
            ("6.12.118+deb13-amd64", vec![6, 12, 118, 13]),
            ("6.12.118+deb13-rt-amd64", vec![6, 12, 118, 13]),
            ("6.8.0-60-generic-64k", vec![6, 8, 0, 60]),
        ] {
            assert_eq!(read_version(release), version, "{release}");
        }
    }

    #[test]
    fn a_name_without_a_release_is_a_metapackage() {
        for (name, is_meta) in [
            ("linux-image-amd64", true),
            ("linux-image-cloud-amd64", true),
            ("linux-image-generic-hwe-24.04", true),
            ("linux-image-6.1.0-40-amd64", false),
            ("linux-image-unsigned-6.8.0-60-generic", false),
            ("linux-image-6.1.0-40-amd64-dbg", false),
            ("linux-headers-amd64", false),
        ] {
            assert_eq!(is_metapackage(name), is_meta, "{name}");
        }
    }
}
