//! The words of an argv: what it may name, and what it must not start.

/// Words that argv may hold as `${word}`; `each` is the disk of gates that run once per disk, `gpus` how many the profile says, and `peer_address`,
/// `pair_port` and `rdma_device` the other end of a pair, where it listens, and the adapter to reach it by.
pub const VARIABLES: [&str; 11] = [
    "agent_address",
    "agent_url",
    "iperf_port",
    "address",
    "hostname",
    "each",
    "scratch",
    "gpus",
    "peer_address",
    "pair_port",
    "rdma_device",
];

/// Whether what is run could run anything.
pub(super) fn starts_shell(argv: &[String]) -> bool {
    let shells = ["sh", "bash", "dash", "zsh", "env"];
    let program = argv
        .first()
        .map(|program| program.rsplit('/').next().unwrap_or(program));
    program.is_some_and(|program| shells.contains(&program))
}

/// The words of `${word}` in an argument.
pub(super) fn variables_of(argument: &str) -> Vec<&str> {
    argument
        .split("${")
        .skip(1)
        .map(|rest| rest.split_once('}').map_or(rest, |(word, _)| word))
        .collect()
}
