//! Every package of a component has the version of another component, or a newer version.

use super::super::packages::Packages;
use super::super::version::{compare, first};
use super::{Outcome, missing_partner, violated};

/// The compared part of a version.
#[derive(Clone, Copy)]
pub(super) enum Cut {
    /// With epoch and revision.
    Whole,
    /// The first numbers.
    Numbers(usize),
    /// The first numbers, where a newer version fits too.
    NotOlder(usize),
}

impl Cut {
    fn fits(self, version: &str, expected: &str) -> bool {
        match self {
            Self::Whole => version == expected,
            Self::Numbers(count) => first(version, count) == first(expected, count),
            Self::NotOlder(count) => {
                compare(&first(version, count), &first(expected, count)).is_ge()
            }
        }
    }
}

pub(super) fn check_same(packages: &Packages<'_>, of: &str, on: &str, cut: Cut) -> Vec<Outcome> {
    let of = packages.component(of);
    let Some(package) = of.first() else {
        return Vec::new();
    };
    let partners = packages.component(on);
    let Some(with) = partners.first() else {
        return vec![missing_partner(packages, package, on)];
    };
    let Some(expected) = with.version.as_deref() else {
        return vec![Outcome::Unknown(with.to_string())];
    };
    let outcomes = of
        .iter()
        .filter_map(|package| match package.version.as_deref() {
            None => Some(Outcome::Unknown(package.to_string())),
            Some(version) => {
                (!cut.fits(version, expected)).then(|| violated(package, with, expected))
            }
        });
    outcomes.collect()
}
