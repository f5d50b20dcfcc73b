//! Every package of a component has the version of another component.

use super::super::packages::Packages;
use super::super::version::first;
use super::{Outcome, missing_partner, violated};

/// The part of a version that must be equal.
#[derive(Clone, Copy)]
pub(super) enum Cut {
    /// With epoch and revision.
    Whole,
    /// The first numbers.
    Numbers(usize),
}

impl Cut {
    fn apply(self, version: &str) -> String {
        match self {
            Self::Whole => version.to_owned(),
            Self::Numbers(count) => first(version, count),
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
            Some(version) => (cut.apply(version) != cut.apply(expected))
                .then(|| violated(package, with, expected)),
        });
    outcomes.collect()
}
