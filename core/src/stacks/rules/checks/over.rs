//! A newer component in the place of an older partner: NVIDIA's cuda-compat packages bring the user
//! space of a newer driver over the kernel modules of the installed driver.

use super::super::book::Over;
use super::super::packages::Packages;
use super::super::version::{compare, numbers};
use super::{Outcome, Versioned};

/// Runs a check against the partner, and against each newer package over the partner. The check
/// holds where one of both holds.
pub(super) fn check_over(
    packages: &Packages<'_>,
    over: Option<&Over>,
    on: Versioned<'_>,
    check: impl Fn(Versioned<'_>) -> Option<Outcome>,
) -> Option<Outcome> {
    let outcome = check(on)?;
    let Some(Over { component, bases }) = over else {
        return Some(outcome);
    };
    for package in &packages.component(component) {
        let Some(version) = package.version.as_deref() else {
            return Some(Outcome::Unknown(package.to_string()));
        };
        let newer = Versioned { package, version };
        if compare(version, on.version).is_le() || check(newer).is_some() {
            continue;
        }
        let branch = numbers(on.version).first().copied();
        if branch.is_some_and(|branch| bases.contains(&branch)) {
            return None;
        }
        let (base, package) = (on.package, newer.package);
        let sentence = format!("whether {package} runs over {base} is not written down");
        return Some(Outcome::Unknown(sentence));
    }
    Some(outcome)
}
