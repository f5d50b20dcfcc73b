//! The checks of the rule book against the packages of a stack, a file for every kind. A passed
//! check returns no outcome.

mod apart; // Two components exclude each other
mod behind; // At most so many releases behind
mod built; // Prebuilt kernel modules and the driver
mod cuda_major; // Packages built for the CUDA version of the driver
mod flavour; // Kernel modules allowed by the GPU family
mod floor; // A lower bound for a single component
mod kernel; // Kernel modules and headers for every kernel
mod least; // A lower bound
mod like; // A pattern of versions
mod most; // An upper bound by driver branch
mod needs; // Required parts of a stack
mod never; // A bad combination of exact versions
mod over; // A newer component in the place of an older partner
mod range; // A lower and an upper bound
mod same; // Equal versions, or not older

use super::book::Check;
use super::packages::{Packages, Present};

/// The outcome of a failed check.
pub(super) enum Outcome {
    /// The stack violates the rule; the slots go into the rule's sentence.
    Violated(Slots),
    /// A fact is missing, and no source says whether the node has the part.
    Unknown(String),
    /// A part is missing, and the node is known not to have the part.
    Missing(String),
}

/// Values for the placeholders of a rule's sentence, and the subject of the finding: a word of the
/// stack.
#[derive(Default)]
pub(super) struct Slots {
    pub(super) of: String,
    pub(super) on: String,
    pub(super) want: String,
    pub(super) gpu: String,
    pub(super) missing: String,
    pub(super) about: String,
}

/// A package with a known version.
#[derive(Clone, Copy)]
struct Versioned<'a> {
    package: &'a Present,
    version: &'a str,
}

/// Runs a check of the rule book; the list is empty where the check holds.
pub(super) fn run_check(check: &Check, packages: &Packages<'_>) -> Vec<Outcome> {
    match check {
        Check::Same {
            of,
            on,
            parts,
            whole,
            newer,
        } => {
            let count = parts.unwrap_or(usize::MAX);
            let cut = match (whole, newer) {
                (true, _) => same::Cut::Whole,
                (false, true) => same::Cut::NotOlder(count),
                (false, false) => same::Cut::Numbers(count),
            };
            of.iter()
                .flat_map(|of| same::check_same(packages, of, on, cut))
                .collect()
        }
        Check::Least { of, on, over, rows } => compare_pairs(packages, of, on, |of, on| {
            over::check_over(packages, over.as_ref(), on, |on| {
                least::check_least(of, on, rows)
            })
        }),
        Check::Floor { of, version } => floor::check_floor(packages, of, version),
        Check::Most { of, on, over, rows } => compare_pairs(packages, of, on, |of, on| {
            over::check_over(packages, over.as_ref(), on, |on| {
                most::check_most(of, on, rows)
            })
        }),
        Check::CudaMajor { of, on, rows } => cuda_major::check_cuda_major(packages, of, on, rows),
        Check::Flavour { among, rows } => flavour::check_flavour(packages, among, rows),
        Check::Needs(needs) => needs::check_needs(packages, needs),
        Check::Apart { of, on } => apart::check_apart(packages, of, on),
        Check::Like { of, on, version } => like::check_like(packages, of, on, version),
        Check::Range { of, on, rows } => {
            compare_pairs(packages, of, on, |of, on| range::check_range(of, on, rows))
        }
        Check::Never(bad) => never::check_never(packages, bad),
        Check::Behind {
            of,
            on,
            series,
            rows,
        } => compare_pairs(packages, of, on, |of, on| {
            behind::check_behind(of, on, series, rows)
        }),
        Check::Built { of, on } => compare_pairs(packages, of, on, built::check_built),
        Check::Kernel { dkms, precompiled } => kernel::check_kernel(packages, dkms, precompiled),
    }
}

/// Whether two names mean the same kernel module: the kernel treats `-` and `_` alike.
pub(super) fn same_module(a: &str, b: &str) -> bool {
    a.replace('-', "_") == b.replace('-', "_")
}

fn violated(of: &Present, on: &Present, want: &str) -> Outcome {
    let (of, on, about) = (of.to_string(), on.to_string(), of.name.clone());
    Outcome::Violated(Slots {
        of,
        on,
        want: want.to_owned(),
        about,
        ..Slots::default()
    })
}

/// Compares every package of `of` with every package of `on`, up to the first outcome. A missing
/// `on` or an open version is an outcome too.
fn compare_pairs(
    packages: &Packages<'_>,
    of: &str,
    on: &str,
    judge: impl Fn(Versioned<'_>, Versioned<'_>) -> Option<Outcome>,
) -> Vec<Outcome> {
    let (left, right) = (packages.component(of), packages.component(on));
    if right.is_empty() {
        return left
            .first()
            .map(|package| missing_partner(packages, package, on))
            .into_iter()
            .collect();
    }
    let mut pairs = left
        .iter()
        .flat_map(|of| right.iter().map(move |on| (of, on)));
    // A separate rule compares the parts of a component, so the first outcome is enough here.
    let outcome = pairs.find_map(|(of, on)| match (&of.version, &on.version) {
        (Some(version), Some(is)) => {
            let of = Versioned {
                package: of,
                version,
            };
            let on = Versioned {
                package: on,
                version: is,
            };
            judge(of, on)
        }
        (None, _) => Some(Outcome::Unknown(of.to_string())),
        (_, None) => Some(Outcome::Unknown(on.to_string())),
    });
    outcome.into_iter().collect()
}

/// The outcome for a package without the partner component in the stack.
fn missing_partner(packages: &Packages<'_>, package: &Present, component: &str) -> Outcome {
    let sentence = format!("{package} is there, and no {}", readable_name(component));
    if packages.is_absent(component) {
        Outcome::Missing(sentence)
    } else {
        Outcome::Unknown(sentence)
    }
}

fn readable_name(component: &str) -> String {
    component.replace('_', " ")
}
