//! What can go wrong in the lab, in words for the person who runs it.

use std::io;
use std::time::Duration;

/// Why the lab could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Namespaces and taps need `CAP_NET_ADMIN` and `CAP_SYS_ADMIN`; the lab asks for root instead of half of it.
    #[error(
        "the lab needs root, because it makes a network namespace, a bridge and taps: run it as root or by sudo"
    )]
    NotRoot,
    /// The plan cannot be built.
    #[error("rack plan: {0}")]
    Plan(String),
    /// A program ended badly.
    #[error("{command}: {why}")]
    Command {
        /// The program and its arguments.
        command: String,
        /// Its exit status and the end of what it said.
        why: String,
    },
    /// The operating system refused.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The refusal.
        source: io::Error,
    },
    /// A wait ran out.
    #[error("{what}: nothing after {after:?}")]
    Timeout {
        /// What was awaited.
        what: String,
        /// How long.
        after: Duration,
    },
    /// A machine, disk or file that is not there.
    #[error("no such {0}")]
    Unknown(String),
    /// A machine refused or failed.
    #[error("{machine}: {why}")]
    Machine {
        /// Its name.
        machine: String,
        /// Why.
        why: String,
    },
}

/// Adds what was tried to an I/O error: `.map_err(io("read /x"))`.
pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> LabError {
    let what = what.into();
    move |source| LabError::Io { what, source }
}
