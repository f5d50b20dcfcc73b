//! Variables of an argv: the allowed names, and the shells that no argv starts.

/// Variables allowed in argv as `${word}`. `each` is the disk of a gate run once per disk, and
/// `gpus` is the GPU count of the profile. `peer_address`, `pair_port` and `rdma_device` describe
/// the other end of a pair: address, listening port, and the RDMA adapter used to reach the peer.
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

/// Returns whether argv starts a shell or `env`, because either could run any program. Suites from
/// before the rule of programs have passed this check alone.
pub(super) fn starts_shell(argv: &[String]) -> bool {
    let shells = ["sh", "bash", "dash", "zsh", "env"];
    let program = argv
        .first()
        .map(|program| program.rsplit('/').next().unwrap_or(program));
    program.is_some_and(|program| shells.contains(&program))
}

/// Returns the names of all `${word}` variables in an argument.
pub(super) fn variables_of(argument: &str) -> Vec<&str> {
    argument
        .split("${")
        .skip(1)
        .map(|rest| rest.split_once('}').map_or(rest, |(word, _)| word))
        .collect()
}
