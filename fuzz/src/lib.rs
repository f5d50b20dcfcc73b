//! What strangers can send, fed with anything at all: each target is a function of bytes that panics when a promise is broken.
//!
//! `make fuzz` runs each for a bounded time under libFuzzer; `tests/replay.rs` replays the kept inputs in every test run. It must not know how the
//! code under it works: promises are those of the documentation.

mod cursors; // Page tokens
mod dhcp; // DHCP packets and the decision on them
mod filter; // The filter grammar
mod http_boot; // Requests to the boot listener, iPXE scripts among the answers
mod kernel; // Kernel arguments: what goes to GRUB, what comes from the command line
mod parsers; // Answers of tools, into every parser of gates
mod redfish; // A BMC that answers whatever it likes
mod tftp; // TFTP packets, and a transfer over a bad wire
mod wire; // Messages between server, agent and node

/// One target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Also the folder of its kept inputs.
    pub name: &'static str,
    pub run: fn(&[u8]),
}

/// All of them.
pub const TARGETS: [Target; 9] = [
    Target {
        name: "cursors",
        run: cursors::run,
    },
    Target {
        name: "dhcp",
        run: dhcp::run,
    },
    Target {
        name: "filter",
        run: filter::run,
    },
    Target {
        name: "http_boot",
        run: http_boot::run,
    },
    Target {
        name: "kernel",
        run: kernel::run,
    },
    Target {
        name: "parsers",
        run: parsers::run,
    },
    Target {
        name: "redfish",
        run: redfish::run,
    },
    Target {
        name: "tftp",
        run: tftp::run,
    },
    Target {
        name: "wire",
        run: wire::run,
    },
];

/// A target by name.
pub fn find(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}

/// Their names, for messages.
pub fn names() -> String {
    TARGETS.map(|target| target.name).join(" ")
}

/// Cuts a number off the front of an input, to steer by; 0 when nothing is left.
fn steer(data: &mut &[u8]) -> u8 {
    let Some((first, rest)) = data.split_first() else {
        return 0;
    };
    *data = rest;
    *first
}
