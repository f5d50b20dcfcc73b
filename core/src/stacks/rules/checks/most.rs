//! Check: a component is at most the maximum version in the row for the driver's branch.

use super::super::book::MostRow;
use super::super::version::{compare, first, numbers};
use super::{Outcome, Versioned, violated};

/// The upper bound of a driver's branch; `None` for a branch without a row.
pub(super) fn bound_of_branch<'r>(rows: &'r [MostRow], driver: &str) -> Option<&'r str> {
    let branch = numbers(driver).first().copied()?;
    rows.iter()
        .find(|row| row.branch == branch)
        .map(|row| row.most.as_str())
}

pub(super) fn check_most(
    of: Versioned<'_>,
    on: Versioned<'_>,
    rows: &[MostRow],
) -> Option<Outcome> {
    let release = first(of.version, 2);
    let Some(most) = bound_of_branch(rows, on.version) else {
        // A newer branch supports all versions supported by an older branch.
        let older = rows.iter().filter(|row| {
            numbers(on.version)
                .first()
                .is_some_and(|branch| row.branch < *branch)
        });
        let supported = older
            .max_by_key(|row| row.branch)
            .is_some_and(|row| compare(&release, &row.most).is_le());
        return (!supported).then(|| {
            Outcome::Unknown(format!("which CUDA {} has is not written down", on.package))
        });
    };
    compare(&release, most)
        .is_gt()
        .then(|| violated(of.package, on.package, most))
}
