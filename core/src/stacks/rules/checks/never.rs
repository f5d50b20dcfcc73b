//! Check: exact versions never allowed together in a stack.

use super::super::book::Bad;
use super::super::packages::{Packages, Present};
use super::super::version::compare;
use super::{Outcome, violated};

pub(super) fn check_never(packages: &Packages<'_>, bad: &[Bad]) -> Vec<Outcome> {
    let find = |bad: &Bad| {
        let mut found = packages.component(&bad.component).into_iter();
        found.find(|package| {
            package
                .version
                .as_deref()
                .is_some_and(|version| compare(version, &bad.version).is_eq())
        })
    };
    let all: Option<Vec<Present>> = bad.iter().map(find).collect();
    match all.as_deref() {
        Some([of, on, ..]) => vec![violated(of, on, "")],
        Some(_) | None => Vec::new(),
    }
}
