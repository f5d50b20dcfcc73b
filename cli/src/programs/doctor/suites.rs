//! Suites stored before the rule of programs, with gates that a new suite may not have.

use muster_core::gates::{PROGRAMS_FOLDER, Suite, lint_program};

use super::{Found, Host};

/// Largest number of gates named for a suite.
const NAMED: usize = 10;

pub(super) async fn check(host: &Host) -> Vec<Found> {
    let Ok(suites) = host.client.list_all::<Suite>(None).await else {
        return vec![Found::unknown(
            "the server's list of suites is unavailable",
            "see the checks `server` and `token`",
        )];
    };
    let found: Vec<Found> = suites
        .iter()
        .filter_map(|suite| verdict(suite.name.as_str(), &suite.spec))
        .collect();
    match found.is_empty() {
        true => vec![Found::ok(format!(
            "every gate of {} suites starts an allowed program",
            suites.len()
        ))],
        false => found,
    }
}

fn verdict(name: &str, suite: &Suite) -> Option<Found> {
    let breaking = suite
        .gates
        .iter()
        .filter(|gate| !lint_program(gate).is_empty());
    let ids: Vec<&str> = breaking.map(|gate| gate.id.as_str()).collect();
    if ids.is_empty() {
        return None;
    }
    let named = ids[..ids.len().min(NAMED)].join(", ");
    let more = match ids.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(Found::warn(
        format!(
            "the suite {name} is from before the rule of programs, and keeps working as stored: {named}{more}"
        ),
        format!(
            "`muster gate lint` of the suite tells the reasons; start programs of the parsers, or ship own programs in {PROGRAMS_FOLDER}, and store the suite again"
        ),
    ))
}
