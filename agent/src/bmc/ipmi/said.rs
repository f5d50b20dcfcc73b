//! What ipmitool's words mean. It exits with 1 for everything, so its sentences must do; they are its own, not the BMC's. As of 1.8.18 and 1.8.19.

use std::process::ExitStatus;

use crate::bmc::error::{BmcError, shortened};

/// Why nothing came of a question.
#[derive(Debug, PartialEq)]
pub(super) enum Refusal {
    /// No session with this cipher suite; nothing was sent in one, nor a password proven.
    Suite { said: String },
    /// No session for this account.
    Login { said: String },
    /// No session, or no knowing.
    Unreachable(BmcError),
    /// A session, and an error in it.
    Answer(BmcError),
}

/// IPMI 2.0, table 13-15: of what was proposed, nothing fits. And a BMC that chose by itself.
const SUITE: [&str; 7] = [
    "invalid authentication algorithm",
    "invalid integrity algorithm",
    "invalid confidentiality algorithm",
    "no matching authentication payload",
    "no matching integrity payload",
    "no cipher suite match",
    "is not what we requested",
];
/// The same table: it is the account. `HMAC is invalid` is a wrong password; an unknown user is told, or not answered at all.
const LOGIN: [&str; 9] = [
    "HMAC is invalid",
    "invalid integrity check value",
    "unauthorized name",
    "unauthorized role",
    "unauthorized GUID",
    "invalid role",
    "invalid username length",
    "no response from RAKP 1 message",
    "Set Session Privilege Level to",
];
/// Table 5-2: completion codes of a BMC that may do it later.
const BUSY: [&str; 5] = [
    "Node busy",
    "Destination unavailable",
    "BMC initialization in progress",
    "Device firmware in update mode",
    "SDR Repository in update mode",
];
/// Said beside the point, with success as well.
const ASIDES: [&str; 7] = [
    "Loading IANA PEN Registry",
    "IANA PEN registry",
    "Get HPM.x Capabilities request failed",
    "Running Get VSO Capabilities",
    "Invalid completion code received",
    "Discovered IPMB address",
    "Close Session command failed",
];

pub(super) fn judge(
    call: &str,
    status: ExitStatus,
    stdout: &str,
    stderr: &str,
) -> Result<String, Refusal> {
    if status.success() {
        return Ok(stdout.to_owned());
    }
    let mut lines = stderr
        .lines()
        .chain(stdout.lines())
        .map(str::trim)
        .filter(|line| !line.is_empty());
    let has = |signs: &[&str]| {
        stderr
            .lines()
            .find(|line| signs.iter().any(|sign| line.contains(sign)))
            .map(shortened)
    };
    if stderr.contains("Unable to establish") {
        return Err(
            match (has(&LOGIN), has(&SUITE), has(&["insufficient resources"])) {
                (Some(said), _, _) => Refusal::Login { said },
                (None, Some(said), _) => Refusal::Suite { said },
                (None, None, Some(said)) => Refusal::Unreachable(BmcError::Busy {
                    said,
                    retry_after: None,
                }),
                (None, None, None) => Refusal::Unreachable(BmcError::Unreachable {
                    why: "it opens no IPMI session".into(),
                }),
            },
        );
    }
    let said = lines
        .rfind(|line| !ASIDES.iter().any(|aside| line.starts_with(aside)))
        .map(shortened);
    let said = said.unwrap_or_else(|| status.to_string());
    Err(Refusal::Answer(match said.split_once(": ") {
        Some(_) if BUSY.iter().any(|sign| said.contains(sign)) => BmcError::Busy {
            said: format!("{call}: {said}"),
            retry_after: None,
        },
        Some(_) => BmcError::Unsupported {
            what: format!("{call}: {said}"),
        },
        // A refusal comes with its reason behind a colon; without one, there was no answer.
        None => BmcError::Timeout {
            call: call.to_owned(),
            why: said,
        },
    }))
}
