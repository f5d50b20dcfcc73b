//! Exit codes, for scripts. The meaning of a code never changes.

use std::fmt;

use clap::Command;
use muster_api::client::ClientError;

use crate::programs::audit::NotWhole;

/// The exit code of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Done,
    Failed,
    Usage,
    NotFound,
    Conflict,
    NotReached,
    HistoryNotWhole,
    NotAllowed,
    NotInTime,
    EndedBadly,
    FaultsFound,
    Interrupted,
}

/// Every code with its meaning.
const ALL: [(Exit, u8, &str); 12] = [
    (
        Exit::Done,
        0,
        "Success. With --wait, the operation succeeded.",
    ),
    (
        Exit::Failed,
        1,
        "Failure without a separate code; see the message.",
    ),
    (
        Exit::Usage,
        2,
        "Invalid usage, or an invalid request (400, 422).",
    ),
    (Exit::NotFound, 3, "The object does not exist (404)."),
    (
        Exit::Conflict,
        4,
        "Conflict: the state forbids the action, or the object changed meanwhile (409, 412, 428). Try again later.",
    ),
    (
        Exit::NotReached,
        5,
        "The server is unreachable or unavailable (502 to 504). The request may have been executed.",
    ),
    (
        Exit::HistoryNotWhole,
        6,
        "`audit verify`: the history differs from its seals.",
    ),
    (
        Exit::NotAllowed,
        7,
        "Not signed in, or not allowed (401, 403).",
    ),
    (
        Exit::NotInTime,
        8,
        "The time limit --timeout passed. The operation continues on the server.",
    ),
    (Exit::EndedBadly, 9, "The awaited operation failed."),
    (
        Exit::FaultsFound,
        10,
        "`doctor`: a check of this host failed.",
    ),
    (
        Exit::Interrupted,
        130,
        "Interrupted by Ctrl-C while waiting. The operation continues on the server.",
    ),
];

impl Exit {
    /// The code for the operating system.
    pub(crate) fn code(self) -> u8 {
        ALL.iter()
            .find(|(exit, ..)| *exit == self)
            .map_or(1, |(_, code, _)| *code)
    }
}

/// A waited operation that failed, or did not end in time. The message names the next step.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) exit: Exit,
    pub(crate) told: String,
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.told)
    }
}

impl std::error::Error for Ended {}

/// Returns the exit code of a failure.
pub(crate) fn of(error: &anyhow::Error) -> Exit {
    if error.is::<NotWhole>() {
        return Exit::HistoryNotWhole;
    }
    if error.is::<Unsound>() {
        return Exit::FaultsFound;
    }
    if let Some(ended) = error.downcast_ref::<Ended>() {
        return ended.exit;
    }
    let Some(error) = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<ClientError>())
    else {
        return Exit::Failed;
    };
    match (error, error.status()) {
        (ClientError::Usage(_), _) | (_, Some(400 | 422)) => Exit::Usage,
        (ClientError::TimedOut(_), _) => Exit::NotInTime,
        (_, Some(401 | 403)) => Exit::NotAllowed,
        (_, Some(404)) => Exit::NotFound,
        (_, Some(409 | 412 | 428)) => Exit::Conflict,
        (ClientError::Unreachable(_), _) | (_, Some(502..=504)) => Exit::NotReached,
        _ => Exit::Failed,
    }
}

/// Returns a remedy for frequent failures.
pub(crate) fn advice(error: &anyhow::Error) -> Option<&'static str> {
    let error = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<ClientError>())?;
    match (error, error.status()) {
        (_, Some(401)) => Some(
            "Set a token by MUSTER_TOKEN, --token-file or `muster context set`. `muster admin token` creates the first token.",
        ),
        (ClientError::Unreachable(_), _) => Some(
            "Set the server's address by --server, --context or MUSTER_SERVER. `muster doctor` checks further.",
        ),
        _ => None,
    }
}

/// Returns the codes as a table for people.
pub(crate) fn table() -> String {
    let lines: Vec<String> = ALL
        .iter()
        .map(|(_, code, meaning)| format!("{code:>4}  {meaning}"))
        .collect();
    lines.join("\n")
}

/// `muster exit-codes`, so that `muster help exit-codes` works as well.
pub(crate) fn command() -> Command {
    Command::new("exit-codes")
        .about("Show the meaning of the exit codes")
        .long_about(format!(
            "Show the meaning of the exit codes:\n\n{}",
            table()
        ))
}

/// A check of this host failed. The finding is already printed.
#[derive(Debug)]
pub(crate) struct Unsound(pub(crate) usize);

impl fmt::Display for Unsound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} checks of this host failed", self.0)
    }
}

impl std::error::Error for Unsound {}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16) -> anyhow::Error {
        anyhow::Error::from(ClientError::Unexpected {
            status,
            body: String::new(),
        })
        .context("while testing")
    }

    #[test]
    fn codes_are_told_apart_and_stay() {
        let codes: Vec<u8> = ALL.iter().map(|(_, code, _)| *code).collect();
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 130]);
        let given: Vec<u8> = [400, 401, 403, 404, 409, 412, 422, 428, 500, 503]
            .map(|status| of(&refused(status)).code())
            .into();
        assert_eq!(given, [2, 7, 7, 3, 4, 4, 2, 4, 1, 5]);
        assert_eq!(
            of(&ClientError::TimedOut(String::new()).into()),
            Exit::NotInTime
        );
        assert_eq!(of(&ClientError::Usage(String::new()).into()), Exit::Usage);
        assert_eq!(of(&anyhow::anyhow!("anything else")), Exit::Failed);
        for exit in [Exit::EndedBadly, Exit::Interrupted] {
            assert_eq!(
                of(&Ended {
                    exit,
                    told: String::new()
                }
                .into()),
                exit
            );
        }
    }
}
