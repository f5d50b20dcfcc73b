//! The linter for pair gates: the two ends must find each other, finish in bounded time and leave
//! other work undisturbed.

use super::gate::{Gate, Peer, SideEffect, Stage};
use super::words::{VARIABLES, variables_of};

/// Maximum time in seconds until a listener is ready.
const READY_MAX_S: u64 = 60;
/// Maximum retries after an error, each with a new listener. A tool with two errors will not give
/// an answer.
const RETRIES_MAX: u32 = 1;
/// One hour in seconds. Both nodes are occupied for the whole time.
const TIMEOUT_MAX_S: u64 = 3600;

/// Adds the problems of a gate as a pair gate. A gate without a peer must not use the peer's port.
pub(super) fn lint_pair(gate: &Gate, problems: &mut Vec<String>) {
    let own = words_of(&gate.argv);
    let Some(peer) = &gate.peer else {
        if own.contains(&"pair_port") {
            problems.push("argv names ${pair_port}, but the gate has no `peer`".into());
        }
        return;
    };
    let wrong = lint_peer(gate, peer).chain(lint_asker(gate, peer, &own));
    problems.extend(wrong.map(str::to_owned));
}

fn words_of(argv: &[String]) -> Vec<&str> {
    argv.iter()
        .flat_map(|argument| variables_of(argument))
        .collect()
}

/// Returns the problems of the listening end.
fn lint_peer(gate: &Gate, peer: &Peer) -> impl Iterator<Item = &'static str> {
    let words = words_of(&peer.argv);
    let checks = [
        (
            gate.stage != Stage::Pair,
            "a gate with a peer belongs to stage pair",
        ),
        (peer.argv.is_empty(), "peer has no argv"),
        (
            !words.iter().all(|word| VARIABLES.contains(word)),
            "peer names an unknown variable",
        ),
        (
            words.contains(&"peer_address") || words.contains(&"each"),
            "peer must not name ${peer_address} or ${each}, because the peer listens",
        ),
        (
            !words.contains(&"pair_port"),
            "peer does not name ${pair_port}: two pairs on one node would use the same port",
        ),
    ];
    failed(checks)
}

/// Returns the problems of the requesting end, and of the pair as a whole.
fn lint_asker(gate: &Gate, peer: &Peer, own: &[&str]) -> impl Iterator<Item = &'static str> {
    let empty = |sign: &String| sign.trim().is_empty();
    let checks = [
        (
            !own.contains(&"pair_port"),
            "argv does not name ${pair_port}, where the peer listens",
        ),
        (
            !own.contains(&"peer_address"),
            "argv does not name ${peer_address}",
        ),
        (
            !(1..=READY_MAX_S).contains(&peer.ready_s),
            "ready_s of the peer is 1 to 60",
        ),
        (
            peer.says.as_ref().is_some_and(empty),
            "says of the peer is empty",
        ),
        (
            gate.timeout_s > TIMEOUT_MAX_S,
            "a pair gate takes an hour at most",
        ),
        (
            gate.each.is_some(),
            "a pair gate runs once, not for each disk",
        ),
        (
            gate.retries > RETRIES_MAX,
            "a pair gate has at most one retry, because the run measures again with another partner",
        ),
        (
            !gate.effects.contains(&SideEffect::NetworkLoad),
            "a pair gate needs the effect network_load",
        ),
    ];
    failed(checks)
}

fn failed<const N: usize>(checks: [(bool, &'static str); N]) -> impl Iterator<Item = &'static str> {
    checks
        .into_iter()
        .filter_map(|(wrong, problem)| wrong.then_some(problem))
}
