//! apt's forecast of a transaction, compared with the plan.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::stacks::ConvergePlan;
use muster_core::wire::node::{Failure, FailureCode};

use super::record::LeavingPackages;
use crate::failure::fatal;

/// Refuses unplanned changes before any change. apt may resolve the set by removing other packages,
/// or by installing packages outside of the plan.
pub(super) fn refuse_unplanned(
    plan: &ConvergePlan,
    leaving: &LeavingPackages,
    forecast: &str,
) -> Result<(), Failure> {
    let wanted: BTreeMap<&str, &str> = plan
        .packages
        .iter()
        .map(|package| (package.name.as_str(), package.version.as_str()))
        .collect();
    let may_go = |name: &str| leaving.go.contains(name) || leaving.needed.contains_key(name);
    let removed = list_removed(forecast).into_iter();
    let mut unplanned: Vec<String> = removed
        .filter(|name| !may_go(name))
        .map(|name| format!("remove {name}"))
        .collect();
    for line in forecast.lines() {
        let Some(name) = subject(line, &["Inst"]) else {
            continue;
        };
        // `Inst hello [2.9] (2.10 localhost [amd64])`: the new version opens the parenthesis.
        let version = line
            .split_whitespace()
            .find_map(|word| word.strip_prefix('('))
            .unwrap_or_default();
        if wanted.get(name) != Some(&version) {
            unplanned.push(format!("install {name} {version}"));
        }
    }
    match unplanned.is_empty() {
        true => Ok(()),
        false => {
            let shown = unplanned[..unplanned.len().min(10)].join(", ");
            Err(fatal(
                FailureCode::UnplannedChange,
                format!("apt would also {shown}: the lock is incomplete for this image"),
            ))
        }
    }
}

/// Returns the packages removed by a simulation.
pub(super) fn list_removed(forecast: &str) -> BTreeSet<&str> {
    forecast.lines().filter_map(removal).collect()
}

/// Returns the package removed by a line of a simulation.
fn removal(line: &str) -> Option<&str> {
    subject(line, &["Remv", "Purg"])
}

/// Returns the package named in a line of a simulation, without its architecture.
fn subject<'a>(line: &'a str, verbs: &[&str]) -> Option<&'a str> {
    let mut words = line.split_whitespace();
    words.next().filter(|verb| verbs.contains(verb))?;
    words.next()?.split(':').next()
}
