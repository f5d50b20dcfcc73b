//! The linter of pair gates: two ends that find each other, end in time, and are in nobody's way.

use super::gate::{Gate, SideEffect, Stage};
use super::words::{VARIABLES, starts_shell, variables_of};

/// Longest that a listener may take until it listens, in seconds.
const READY_MAX_S: u64 = 60;
/// After an error, with a new listener: a tool that errs twice has no answer.
const RETRIES_MAX: u32 = 1;
/// An hour: two nodes do nothing else meanwhile.
const TIMEOUT_MAX_S: u64 = 3600;

/// What is wrong with a gate as a pair gate; nothing where it is none and does not look like one.
pub(super) fn lint_pair(gate: &Gate, problems: &mut Vec<String>) {
    let words = |argv: &[String]| -> Vec<String> {
        argv.iter()
            .flat_map(|argument| variables_of(argument))
            .map(str::to_owned)
            .collect()
    };
    let has = |words: &[String], word: &str| words.iter().any(|known| known == word);
    let own = words(&gate.argv);
    let Some(peer) = &gate.peer else {
        if has(&own, "pair_port") {
            problems.push("argv names ${pair_port}, and no `peer` listens there".into());
        }
        return;
    };
    let mut check = |wrong: bool, problem: &str| {
        if wrong {
            problems.push(problem.into());
        }
    };
    let theirs = words(&peer.argv);
    check(
        gate.stage != Stage::Pair,
        "a gate with a peer belongs to stage pair",
    );
    check(peer.argv.is_empty(), "peer has no argv");
    check(starts_shell(&peer.argv), "peer must not start a shell");
    check(
        !theirs.iter().all(|word| VARIABLES.contains(&word.as_str())),
        "peer names an unknown variable",
    );
    check(
        has(&theirs, "peer_address") || has(&theirs, "each"),
        "peer listens: it knows no ${peer_address} and no ${each}",
    );
    check(
        !has(&theirs, "pair_port"),
        "peer does not name ${pair_port}: two pairs on one node would meet",
    );
    check(
        !has(&own, "pair_port"),
        "argv does not name ${pair_port}, where the peer listens",
    );
    check(
        !has(&own, "peer_address"),
        "argv does not name ${peer_address}",
    );
    check(
        !(1..=READY_MAX_S).contains(&peer.ready_s),
        "ready_s of the peer is 1 to 60",
    );
    check(
        peer.says
            .as_ref()
            .is_some_and(|sign| sign.trim().is_empty()),
        "says of the peer is empty",
    );
    check(
        gate.timeout_s > TIMEOUT_MAX_S,
        "a pair is kept from everything else for an hour at most",
    );
    check(
        gate.each.is_some(),
        "a pair gate runs once, not for each disk",
    );
    check(
        gate.retries > RETRIES_MAX,
        "a pair gate is run again once at most: the run measures again, with another partner",
    );
    check(
        !gate.effects.contains(&SideEffect::NetworkLoad),
        "a pair gate has the effect network_load",
    );
}
