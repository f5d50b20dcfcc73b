//! A component is of the same release as another component, or at most so many releases behind.

use super::super::book::BehindRow;
use super::super::version::{compare, first};
use super::{Outcome, Versioned, violated};

pub(super) fn check_behind(
    of: Versioned<'_>,
    on: Versioned<'_>,
    series: &[String],
    rows: &[BehindRow],
) -> Option<Outcome> {
    let place = |version: &str| series.iter().position(|known| *known == first(version, 2));
    let (Some(old), Some(new)) = (place(of.version), place(on.version)) else {
        return Some(Outcome::Unknown(format!(
            "{} or {} is of a release that is not written down",
            of.package, on.package
        )));
    };
    let most = rows
        .iter()
        .rfind(|row| compare(&row.from, on.version).is_le())
        .map_or(0, |row| row.most);
    let oldest = &series[new.saturating_sub(most)];
    (old > new || new - old > most).then(|| {
        let want = format!("{oldest} to {}", series[new]);
        violated(of.package, on.package, &want)
    })
}
