//! Errors between an agent and a BMC, with messages for the operator on call.

use std::net::IpAddr;
use std::time::Duration;

use muster_core::values::Digest;
use muster_core::wire::node::FailureCode;

/// Maximum number of characters quoted from a message of the BMC.
const SAID_CHARS: usize = 300;

/// A failed BMC call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BmcError {
    /// The request was sent, but the result is unknown: the deadline passed, or the connection
    /// closed before an answer.
    #[error(
        "the BMC gave no answer to {call} ({why}); whether it acted is unknown: look at the power state before asking again"
    )]
    Timeout { call: String, why: String },
    #[error(
        "the BMC cannot be reached: {why}; check its network, its address and that it is powered"
    )]
    Unreachable { why: String },
    #[error(
        "the BMC refuses these credentials ({said}); not tried again for {again_in:?} so that the account is not locked: correct the stored credential, or retry once the BMC takes it"
    )]
    BadCredentials { said: String, again_in: Duration },
    #[error("the BMC is busy: {said}")]
    Busy {
        said: String,
        retry_after: Option<Duration>,
    },
    #[error("the BMC answers nonsense: {what}; a restart of the BMC often mends this")]
    Garbage { what: String },
    /// A redirect that leaves the path of the request. The client never follows such a redirect.
    #[error(
        "the BMC sends {call} on to {location}: only a redirect over a slash is followed, and no password goes elsewhere; check address and port of the BMC"
    )]
    Elsewhere { call: String, location: String },
    /// Status 403 after an accepted login: a license or a right is missing for the resource.
    #[error(
        "the BMC accepts the login and forbids {what}: the BMC lacks a license for it, or the account a right"
    )]
    Forbidden { what: String },
    #[error(
        "the BMC accepted {call}, but nothing happened within {waited:?}: it still shows {seen}"
    )]
    NothingHappened {
        call: String,
        waited: Duration,
        seen: String,
    },
    #[error(
        "the BMC shows another certificate than the pinned one (pinned {pinned}, seen {seen}). The BMC was replaced, or another machine answers for it. No password was sent. Compare {seen} with the BMC. If it is right, an administrator writes it into `spec.power.redfish.bmc.certificate`."
    )]
    CertificateChanged { pinned: Digest, seen: Digest },
    /// The agent has not connected, and the password was not sent.
    #[error(
        "{address} is outside of the networks of the BMCs ({networks}): no password was sent; correct the BMC's address, or let an administrator add its network to the site"
    )]
    Outside { address: IpAddr, networks: String },
    /// As [`BmcError::Outside`], for an address that no network of a site may have.
    #[error(
        "{address} is no address of a BMC ({word}): no password was sent; write the BMC's own address"
    )]
    Special { address: IpAddr, word: &'static str },
    #[error("the BMC cannot do this: {what}")]
    Unsupported { what: String },
    #[error("the agent cannot run {program} ({why}): install it where the agent runs")]
    NoTool { program: &'static str, why: String },
    #[error("the wait for the BMC was cancelled")]
    Cancelled,
}

impl BmcError {
    /// Returns whether repeating the same call later can succeed without an action of an operator.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Timeout { .. } | Self::Unreachable { .. } | Self::Busy { .. } => true,
            Self::Garbage { .. } | Self::Elsewhere { .. } | Self::NothingHappened { .. } => true,
            Self::BadCredentials { .. } | Self::CertificateChanged { .. } => false,
            Self::Outside { .. } | Self::Special { .. } => false,
            Self::Forbidden { .. } | Self::Unsupported { .. } => false,
            Self::NoTool { .. } | Self::Cancelled => false,
        }
    }

    /// Returns whether the BMC understood the request and does not do it: another way may work.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Unsupported { .. } | Self::Forbidden { .. })
    }

    /// Returns the pause before the same call: the wait that a busy BMC asks for, at least
    /// `shortest`.
    pub fn pause(&self, shortest: Duration) -> Duration {
        let asked = match self {
            Self::Busy { retry_after, .. } => *retry_after,
            Self::Timeout { .. } | Self::Unreachable { .. } | Self::BadCredentials { .. } => None,
            Self::Garbage { .. } | Self::Elsewhere { .. } | Self::Forbidden { .. } => None,
            Self::NothingHappened { .. } | Self::CertificateChanged { .. } => None,
            Self::Outside { .. } | Self::Special { .. } | Self::Unsupported { .. } => None,
            Self::NoTool { .. } | Self::Cancelled => None,
        };
        asked.map_or(shortest, |asked| asked.max(shortest))
    }

    /// Returns the failure code sent to the server.
    pub fn code(&self) -> FailureCode {
        match self {
            Self::Timeout { .. } => FailureCode::BmcTimeout,
            Self::Unreachable { .. } => FailureCode::BmcUnreachable,
            Self::BadCredentials { .. } => FailureCode::BmcCredentials,
            Self::Busy { .. } => FailureCode::BmcBusy,
            Self::Garbage { .. } | Self::Elsewhere { .. } => FailureCode::BmcGarbage,
            Self::NothingHappened { .. } => FailureCode::BmcNothingHappened,
            Self::CertificateChanged { .. } => FailureCode::BmcCertificateChanged,
            Self::Outside { .. } | Self::Special { .. } => FailureCode::BmcOutside,
            Self::Unsupported { .. } | Self::Forbidden { .. } => FailureCode::BmcUnsupported,
            Self::NoTool { .. } => FailureCode::BmcNoTool,
            Self::Cancelled => FailureCode::Cancelled,
        }
    }
}

/// Returns foreign text safe for display: control characters become spaces, and long text is cut.
pub(super) fn shortened(text: &str) -> String {
    let printable: String = text
        .chars()
        .take(SAID_CHARS)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    match text.chars().nth(SAID_CHARS) {
        Some(_) => printable + "…",
        None => printable,
    }
}
