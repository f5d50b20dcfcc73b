//! What actions on a node have in common: a reason, and whether to wait until the operation they begin is done.

use std::time::Duration;

use clap::Args;
use muster_api::operations::Operation;

use super::Session;
use super::progress::{self, parse_duration};

/// An action and whether to wait for it.
#[derive(Args, Debug)]
pub(crate) struct ActArgs {
    pub(super) node: String,
    /// Why, for the history.
    #[arg(long)]
    pub(super) reason: Option<String>,
    /// Wait until the operation is done.
    #[arg(long)]
    pub(super) wait: bool,
    /// How long to wait.
    #[arg(long, default_value = "2h", value_parser = parse_duration)]
    pub(super) timeout: Duration,
}

/// Prints an operation, and waits for it where that is wanted.
pub(super) async fn begun(session: &Session, operation: &Operation, args: &ActArgs) -> anyhow::Result<()> {
    session.output.print_lines(operation, || vec![format!("operation {}", operation.id)])?;
    match args.wait {
        true => progress::follow(&session.client, &[operation.id], args.timeout).await,
        false => Ok(()),
    }
}
