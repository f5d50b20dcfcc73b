//! The combinations of packages declared as bad by the stack.

use super::packages::Packages;
use super::version::glob;
use super::{Finding, Level};

pub(super) fn check_known_bad(packages: &Packages<'_>) -> Vec<Finding> {
    let stack = packages.subject.stack;
    let version = |name: &str| packages.version(name);
    let bad = stack.known_bad.iter().filter(|bad| {
        !bad.packages.is_empty()
            && bad
                .packages
                .iter()
                .all(|(name, pattern)| version(name).is_some_and(|version| glob(pattern, version)))
    });
    bad.map(|bad| {
        let named: Vec<String> = bad
            .packages
            .keys()
            .map(|name| format!("{name} {}", version(name).unwrap_or_default()))
            .collect();
        let about = bad.packages.keys().next().cloned().unwrap_or_default();
        let known = match named.as_slice() {
            [_] => "is known not to work here",
            _ => "are known not to work together",
        };
        let sentence = format!("{} {known}: {}", named.join(" and "), bad.because);
        Finding {
            rule: "known_bad".into(),
            level: Level::Refused,
            sentence,
            source: bad.source.clone(),
            about,
        }
    })
    .collect()
}
