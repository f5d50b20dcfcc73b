//! Every version of a component fits a pattern.

use super::super::packages::Packages;
use super::super::version::glob;
use super::{Outcome, violated};

pub(super) fn check_like(
    packages: &Packages<'_>,
    of: &str,
    on: &str,
    pattern: &str,
) -> Vec<Outcome> {
    let (of, on) = (packages.component(of), packages.component(on));
    let Some(with) = on.first() else {
        return Vec::new();
    };
    let outcomes = of
        .iter()
        .filter_map(|package| match package.version.as_deref() {
            None => Some(Outcome::Unknown(package.to_string())),
            Some(version) => (!glob(pattern, version)).then(|| violated(package, with, pattern)),
        });
    outcomes.collect()
}
