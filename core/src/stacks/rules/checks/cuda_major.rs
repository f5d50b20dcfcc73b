//! Check: a package name ends with the major number of the CUDA version supported by the driver.

use super::super::book::MostRow;
use super::super::packages::{Packages, Present};
use super::super::version::numbers;
use super::most::bound_of_branch;
use super::{Outcome, missing_partner, violated};

pub(super) fn check_cuda_major(
    packages: &Packages<'_>,
    of: &str,
    on: &str,
    rows: &[MostRow],
) -> Vec<Outcome> {
    let (of, drivers) = (packages.component(of), packages.component(on));
    let Some(package) = of.first() else {
        return Vec::new();
    };
    let Some(driver) = drivers.first() else {
        return vec![missing_partner(packages, package, on)];
    };
    let Some(version) = driver.version.as_deref() else {
        return vec![Outcome::Unknown(driver.to_string())];
    };
    let bound = bound_of_branch(rows, version);
    let Some(major) = bound.and_then(|most| numbers(most).first().copied()) else {
        return vec![Outcome::Unknown(format!(
            "which CUDA {driver} has is not written down"
        ))];
    };
    let fits = |package: &Present| package.name.ends_with(&format!("cuda{major}"));
    match of.iter().any(fits) {
        true => Vec::new(),
        false => vec![violated(package, driver, &major.to_string())],
    }
}
