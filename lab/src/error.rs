//! Errors of the lab, worded for the person running the lab.

use std::io;
use std::time::Duration;

/// The reason why an operation of the lab failed.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The lab needs root. Namespaces and taps need `CAP_NET_ADMIN` and `CAP_SYS_ADMIN`; root is
    /// simpler than granting each capability.
    #[error(
        "the lab needs root, because it makes a network namespace, a bridge and taps: run it as root or by sudo"
    )]
    NotRoot,
    /// The plan is invalid or a file of the rack is malformed.
    #[error("rack plan: {0}")]
    Plan(String),
    /// A program failed.
    #[error("{command}: {why}")]
    Command {
        /// The program and its arguments.
        command: String,
        /// The exit status and the end of the program's output.
        why: String,
    },
    /// The operating system returned an error.
    #[error("{what}: {source}")]
    Io {
        /// The attempted operation.
        what: String,
        /// The error from the operating system.
        source: io::Error,
    },
    /// A wait timed out.
    #[error("{what}: nothing after {after:?}")]
    Timeout {
        /// The awaited event.
        what: String,
        /// The timeout.
        after: Duration,
    },
    /// A named machine, BMC or disk does not exist.
    #[error("no such {0}")]
    Unknown(String),
    /// A machine rejected an act or failed.
    #[error("{machine}: {why}")]
    Machine {
        /// Name of the machine.
        machine: String,
        /// The reason.
        why: String,
    },
}

/// Adds the attempted operation to an I/O error: `.map_err(io("read /x"))`.
pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> LabError {
    let what = what.into();
    move |source| LabError::Io { what, source }
}
