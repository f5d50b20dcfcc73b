//! Classifies the messages of ipmitool, written for 1.8.18 and 1.8.19. The exit status is 1 for
//! every failure, so only the messages explain the cause. The texts are written by ipmitool, not by
//! the BMC.

use std::process::ExitStatus;

use crate::bmc::error::{BmcError, shortened};

/// The reason why a question failed.
#[derive(Debug, PartialEq)]
pub(super) enum Refusal {
    /// The BMC did not open a session with this cipher suite. The password was neither sent nor
    /// checked.
    Suite { said: String },
    /// The BMC refused a session for this account.
    Login { said: String },
    /// No session was opened, or the cause is unknown.
    Unreachable(BmcError),
    /// A session was opened, and the command returned an error in it.
    Answer(BmcError),
}

/// IPMI 2.0, table 13-15: the BMC supports none of the proposed algorithms. The last text covers a
/// BMC which chose another algorithm.
const SUITE: [&str; 7] = [
    "invalid authentication algorithm",
    "invalid integrity algorithm",
    "invalid confidentiality algorithm",
    "no matching authentication payload",
    "no matching integrity payload",
    "no cipher suite match",
    "is not what we requested",
];
/// The same table: the account is refused. `HMAC is invalid` means a wrong password. For an unknown
/// user the BMC reports an error or does not answer.
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
/// Table 5-2: completion codes of a BMC which can execute the command later.
const BUSY: [&str; 5] = [
    "Node busy",
    "Destination unavailable",
    "BMC initialization in progress",
    "Device firmware in update mode",
    "SDR Repository in update mode",
];
/// Unrelated messages, also printed on success.
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
        // A refusal has a reason after a colon. Without a colon the BMC did not answer.
        None => BmcError::Timeout {
            call: call.to_owned(),
            why: said,
        },
    }))
}
