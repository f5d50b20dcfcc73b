//! Check: a component is within the bounds of the row for the other component's version.

use super::super::book::RangeRow;
use super::super::version::{compare, first};
use super::{Outcome, Versioned, violated};

pub(super) fn check_range(
    of: Versioned<'_>,
    on: Versioned<'_>,
    rows: &[RangeRow],
) -> Option<Outcome> {
    let fits_row = |row: &&RangeRow| first(on.version, row.at.split('.').count()) == row.at;
    let Some(row) = rows.iter().find(fits_row) else {
        let sentence = format!("nothing is written down of {}", on.package);
        return Some(Outcome::Unknown(sentence));
    };
    let release = first(of.version.trim_start_matches('v'), 2);
    let fits = compare(&row.from, &release).is_le() && compare(&release, &row.to).is_le();
    (!fits).then(|| {
        let want = format!("{} to {}", row.from, row.to);
        violated(of.package, on.package, &want)
    })
}
