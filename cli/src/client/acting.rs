//! What actions on nodes have in common: a reason, and whether to wait until the operations they begin are done.

use std::time::Duration;

use clap::Args;
use muster_api::operations::Operation;

use super::progress;
use super::session::Session;
use crate::duration::parse_duration;

/// Whether to wait.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Waiting {
    /// Wait until it is done.
    #[arg(long)]
    wait: bool,
    /// How long to wait; it goes on at the server after that. 90s, 15m, 2h.
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

/// An action on nodes.
#[derive(Args, Debug)]
pub(crate) struct ActArgs {
    /// Names or ids.
    #[arg(required = true, value_name = "NODE")]
    pub(super) nodes: Vec<String>,
    #[command(flatten)]
    pub(super) how: How,
}

/// An action on one node.
#[derive(Args, Debug)]
pub(crate) struct OneArgs {
    /// Name or id.
    pub(super) node: String,
    #[command(flatten)]
    pub(super) how: How,
}

/// Why, whether to wait, and whether to do it at all.
#[derive(Args, Debug)]
pub(crate) struct How {
    /// Show what it would do, and do nothing.
    #[arg(long, visible_alias = "dry-run", conflicts_with = "wait")]
    pub(super) plan: bool,
    /// Why, for the history.
    #[arg(long)]
    pub(super) reason: Option<String>,
    #[command(flatten)]
    pub(super) waiting: Waiting,
}

/// Prints operations, and waits for them where that is wanted: a program then gets them as they ended.
///
/// # Errors
/// When one ends otherwise than well, or not in time.
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

/// The same in other words.
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
