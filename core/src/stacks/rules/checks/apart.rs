//! Check: two components must not be present together in a stack.

use super::super::packages::Packages;
use super::{Outcome, violated};

pub(super) fn check_apart(packages: &Packages<'_>, of: &str, on: &str) -> Vec<Outcome> {
    let (of, on) = (packages.component(of), packages.component(on));
    let both = of.first().zip(on.first());
    both.map(|(of, on)| violated(of, on, ""))
        .into_iter()
        .collect()
}
