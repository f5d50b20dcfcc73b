//! Check: every package of a component is at least of a given version.

use super::super::packages::{Packages, Present};
use super::super::version::compare;
use super::{Outcome, Slots, readable_name};

pub(super) fn check_floor(packages: &Packages<'_>, of: &str, least: &str) -> Vec<Outcome> {
    let present = packages.component(of);
    if present.is_empty() && !packages.is_absent(of) {
        let name = readable_name(of);
        return vec![Outcome::Unknown(format!(
            "the stack brings no {name}, which the node may have"
        ))];
    }
    let judge = |package: &Present| match package.version.as_deref() {
        None => Some(Outcome::Unknown(package.to_string())),
        Some(version) => compare(version, least).is_lt().then(|| {
            Outcome::Violated(Slots {
                of: package.to_string(),
                want: least.to_owned(),
                about: package.name.clone(),
                ..Slots::default()
            })
        }),
    };
    present.iter().filter_map(judge).collect()
}
