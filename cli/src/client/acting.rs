//! Options shared by all actions on nodes: a reason, and waiting for the requested operations.

use std::time::Duration;

use clap::Args;
use muster_api::operations::Operation;

use super::progress;
use super::session::Session;
use crate::duration::parse_duration;

/// Options for waiting.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Waiting {
    /// Wait until the operation ends
    #[arg(long)]
    wait: bool,
    /// Time limit for waiting, such as 90s, 15m or 2h. The operation continues on the server
    /// afterwards
    #[arg(long, default_value = "2h", value_parser = parse_duration, requires = "wait")]
    timeout: Duration,
}

impl Waiting {
    pub(super) fn is_wanted(self) -> bool {
        self.wait
    }

    pub(super) fn timeout(self) -> Duration {
        self.timeout
    }
}

/// An action on several nodes.
#[derive(Args, Debug)]
pub(crate) struct ActArgs {
    /// Names or ids of nodes
    #[arg(required = true, value_name = "NODE")]
    pub(super) nodes: Vec<String>,
    #[command(flatten)]
    pub(super) how: How,
}

/// An action on a node.
#[derive(Args, Debug)]
pub(crate) struct OneArgs {
    /// Name or id of the node
    pub(super) node: String,
    #[command(flatten)]
    pub(super) how: How,
}

/// Reason, waiting and dry run of an action.
#[derive(Args, Debug)]
pub(crate) struct How {
    /// Show the effects without acting
    #[arg(long, visible_alias = "dry-run", conflicts_with = "wait")]
    pub(super) plan: bool,
    /// Reason, recorded in the history
    #[arg(long)]
    pub(super) reason: Option<String>,
    #[command(flatten)]
    pub(super) waiting: Waiting,
}

/// Prints operations, and waits for their end if requested. With `-o json` the final state is
/// printed.
///
/// # Errors
/// When an operation fails, or the time limit passes.
pub(super) async fn begun(
    session: &Session,
    operations: &[Operation],
    waiting: Waiting,
) -> anyhow::Result<()> {
    tell(session, operations, waiting, || {
        operations
            .iter()
            .map(|operation| {
                let target = operation
                    .target
                    .as_ref()
                    .map_or("", |target| target.name.as_str());
                format!("{} {target}: operation {}", operation.kind, operation.id)
            })
            .collect()
    })
    .await
}

/// The same as [`begun`], with other words for people.
///
/// # Errors
/// As [`begun`].
pub(super) async fn tell(
    session: &Session,
    operations: &[Operation],
    waiting: Waiting,
    lines: impl FnOnce() -> Vec<String>,
) -> anyhow::Result<()> {
    let print = |operations: &[Operation], lines: Vec<String>| match operations {
        [one] => session.output.print_lines(one, || lines),
        several if session.output.is_table() => session.output.print_lines(&several, || lines),
        several => session.output.list_of(
            several,
            super::kinds::columns("operation"),
            session.clock.now(),
        ),
    };
    if !waiting.wait {
        return print(operations, lines());
    }
    let ids: Vec<_> = operations.iter().map(|operation| operation.id).collect();
    if session.output.is_table() {
        print(operations, lines())?;
        return progress::follow(session, &ids, waiting.timeout)
            .await
            .map(drop);
    }
    let ended = progress::follow(session, &ids, waiting.timeout).await;
    if let Ok(ended) = &ended {
        print(ended, Vec::new())?;
    }
    ended.map(drop)
}
