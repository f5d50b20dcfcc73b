//! Exit codes, for scripts. A code is never given another meaning.

use std::fmt;

use clap::Command;
use muster_api::client::ClientError;

use crate::programs::audit::NotWhole;

/// How the program ends.
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

/// Every code with what it means.
const ALL: [(Exit, u8, &str); 12] = [
    (Exit::Done, 0, "Done. With --wait: and it ended well."),
    (
        Exit::Failed,
        1,
        "Failed, in a way that has no code of its own; the message says how.",
    ),
    (
        Exit::Usage,
        2,
        "Used wrongly, or the server found the request wrong (400, 422).",
    ),
    (Exit::NotFound, 3, "There is no such object (404)."),
    (
        Exit::Conflict,
        4,
        "The state does not allow it, or somebody else was first (409, 412, 428). Try again later.",
    ),
    (
        Exit::NotReached,
        5,
        "The server was not reached, or cannot serve (502 to 504). What was asked for may have happened.",
    ),
    (
        Exit::HistoryNotWhole,
        6,
        "`audit verify`: the history is not what was sealed.",
    ),
    (
        Exit::NotAllowed,
        7,
        "Not signed in, or not allowed (401, 403).",
    ),
    (
        Exit::NotInTime,
        8,
        "What was waited for did not happen within --timeout. It goes on at the server.",
    ),
    (
        Exit::EndedBadly,
        9,
        "What was waited for ended otherwise than well.",
    ),
    (
        Exit::FaultsFound,
        10,
        "`doctor`: something is wrong with this host.",
    ),
    (
        Exit::Interrupted,
        130,
        "Interrupted by Ctrl-C while waiting. It goes on at the server.",
    ),
];

impl Exit {
    /// As the operating system gets it.
    pub(crate) fn code(self) -> u8 {
        ALL.iter()
            .find(|(exit, ..)| *exit == self)
            .map_or(1, |(_, code, _)| *code)
    }
}

/// Something that was waited for did not end well, or not while it was waited for. What is told is what to do next.
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

/// How the program ends on a failure.
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

/// What to do about a failure that most people meet first.
pub(crate) fn advice(error: &anyhow::Error) -> Option<&'static str> {
    let error = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<ClientError>())?;
    match (error, error.status()) {
        (_, Some(401)) => Some(
            "Give a token by MUSTER_TOKEN, --token-file or `muster context set`; `muster admin token` makes a first one.",
        ),
        (ClientError::Unreachable(_), _) => Some(
            "Say where the server is by --server, --context or MUSTER_SERVER; `muster doctor` looks further.",
        ),
        _ => None,
    }
}

/// The codes as a table for people.
pub(crate) fn table() -> String {
    let lines: Vec<String> = ALL
        .iter()
        .map(|(_, code, meaning)| format!("{code:>4}  {meaning}"))
        .collect();
    lines.join("\n")
}

/// `muster exit-codes`, so that `muster help exit-codes` says it too.
pub(crate) fn command() -> Command {
    Command::new("exit-codes")
        .about("What this program's exit codes mean")
        .long_about(format!(
            "What this program's exit codes mean:\n\n{}",
            table()
        ))
}

/// Something is wrong with this host. What it is was printed before.
#[derive(Debug)]
pub(crate) struct Unsound(pub(crate) usize);

impl fmt::Display for Unsound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} things are wrong with this host", self.0)
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
