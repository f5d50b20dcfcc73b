//! The port of a pair: below the range of ephemeral ports of Linux, and checked in the kernel's
//! table of listening sockets.

use std::net::{Ipv4Addr, TcpListener};

use muster_core::wire::node::{Failure, FailureCode};

use crate::failure::retryable;

/// Above the agent's own iperf3 servers, starting at 20000.
const FIRST: u16 = 30_000;
const PORTS: u16 = 2_000;
/// TCP_LISTEN in the kernel's include/net/tcp_states.h.
const LISTENING: &str = "0A";

/// Returns a free port. If another program takes the port meanwhile, the tool fails with an error
/// and no verdict.
///
/// # Errors
/// `no_port` when all ports are taken.
pub(super) fn choose(seed: u32) -> Result<u16, Failure> {
    let start = u16::try_from(seed % u32::from(PORTS)).unwrap_or(0);
    let mut ports = (0..PORTS).map(|step| FIRST + (start + step) % PORTS);
    let free = ports.find(|port| TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).is_ok());
    free.ok_or_else(|| {
        retryable(
            FailureCode::NoPort,
            format!("ports {FIRST} to {} are all taken", FIRST + PORTS - 1),
        )
    })
}

/// Returns whether a socket listens on a TCP port of this network namespace, for any address
/// family.
pub(super) fn is_open(port: u16) -> bool {
    ["/proc/self/net/tcp", "/proc/self/net/tcp6"]
        .iter()
        .any(|table| std::fs::read_to_string(table).is_ok_and(|text| listens(&text, port)))
}

/// Parses the kernel's table: `sl local_address rem_address st …`, addresses as `HEX:PORT`
/// (proc_pid_net(5)).
fn listens(table: &str, port: u16) -> bool {
    let wanted = format!("{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut words = line.split_whitespace().skip(1);
        let local = words.next().and_then(|local| local.rsplit_once(':'));
        local.is_some_and(|(_, at)| at == wanted) && words.nth(1) == Some(LISTENING)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_open_once_somebody_listens_there() {
        let port = choose(7).expect("a port");
        assert!((FIRST..FIRST + PORTS).contains(&port) && !is_open(port));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("it was free");
        assert!(is_open(port));
        assert_ne!(choose(7).expect("another one"), port);
        drop(listener);
    }

    #[test]
    fn a_connection_from_a_port_is_no_listener() {
        let table = "  sl  local_address rem_address   st tx_queue\n   0: 0100007F:7530 0100007F:1F90 01 00000000:00000000\n";
        assert!(!listens(table, 0x7530));
        assert!(listens(&table.replace(" 01 ", " 0A "), 0x7530));
        assert!(
            !listens(&table.replace(" 01 ", " 0A "), 0x1F90),
            "the other end's port is not ours"
        );
    }
}
