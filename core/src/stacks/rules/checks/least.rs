//! A component is at least as new as the row for the other component's version says.

use super::super::book::LeastRow;
use super::super::version::compare;
use super::{Outcome, Versioned, violated};

pub(super) fn check_least(
    of: Versioned<'_>,
    on: Versioned<'_>,
    rows: &[LeastRow],
) -> Option<Outcome> {
    let row = rows
        .iter()
        .rfind(|row| compare(&row.from, of.version).is_le());
    match row {
        None => Some(Outcome::Unknown(format!(
            "{} is older than everything that is written down",
            of.package
        ))),
        Some(row) => compare(on.version, &row.least)
            .is_lt()
            .then(|| violated(of.package, on.package, &row.least)),
    }
}
