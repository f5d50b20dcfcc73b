//! Check: prebuilt kernel modules belong to the driver, by version or by branch.

use super::super::version::numbers;
use super::{Outcome, Versioned, violated};

/// Compares a package of prebuilt modules with a package of the driver. A version starting with the
/// branch in the name is the driver's version, to which a site may append the kernel. Ubuntu's
/// packages have the version of the kernel: only the branch is known. A name without a branch is
/// not compared.
pub(super) fn check_built(of: Versioned<'_>, on: Versioned<'_>) -> Option<Outcome> {
    let branch = find_branch(&of.package.name)?;
    let (built, driver) = (numbers(of.version), numbers(on.version));
    let fits = match built.first() == Some(&branch) {
        true => built.starts_with(&driver),
        false => driver.first() == Some(&branch),
    };
    (!fits).then(|| violated(of.package, on.package, ""))
}

/// Returns 550 for `linux-modules-nvidia-550-server-6.8.0-60-generic`.
fn find_branch(name: &str) -> Option<u64> {
    let rest = name.strip_prefix("linux-modules-nvidia-")?;
    let (branch, _) = rest.split_once('-')?;
    branch.parse().ok()
}
