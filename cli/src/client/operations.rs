//! `muster operation`.

use std::time::Duration;

use clap::Subcommand;
use muster_api::operations::Operation;
use uuid::Uuid;

use super::output::{clean, duration};
use super::progress::{self, sentence};
use super::session::Session;
use crate::duration::parse_duration;

/// Subcommands of operations.
#[derive(Debug, Subcommand)]
pub(crate) enum OperationVerb {
    /// Show an operation with its steps
    #[command(visible_alias = "describe")]
    Get { id: Uuid },
    /// Follow operations until their end
    Watch {
        #[arg(required = true, value_name = "ID")]
        ids: Vec<Uuid>,
        /// Time limit, such as 90s, 15m or 2h
        #[arg(long, default_value = "2h", value_parser = parse_duration)]
        timeout: Duration,
    },
    /// Cancel an operation
    Cancel { id: Uuid },
    /// Show the logs of the steps
    Log {
        id: Uuid,
        /// Follow until the operation ends
        #[arg(short, long)]
        follow: bool,
    },
}

pub(super) async fn run(session: &Session, verb: OperationVerb) -> anyhow::Result<()> {
    let client = &session.client;
    match verb {
        OperationVerb::Get { id } => {
            let operation = client.operation(id).await?;
            session.output.print_lines(&operation, || lines(&operation))
        }
        OperationVerb::Watch { ids, timeout } => {
            let ended = progress::follow(session, &ids, timeout).await?;
            match session.output.is_table() {
                true => Ok(()),
                false => session.output.list_of(
                    &ended,
                    super::kinds::columns("operation"),
                    session.clock.now(),
                ),
            }
        }
        OperationVerb::Cancel { id } => {
            let operation = client.cancel_operation(id).await?;
            session
                .output
                .print_lines(&operation, || vec![sentence(&operation)])
        }
        OperationVerb::Log { id, follow } => log(session, id, follow).await,
    }
}

fn lines(operation: &Operation) -> Vec<String> {
    let mut lines = vec![sentence(operation)];
    for step in &operation.steps {
        let took = step
            .started_at
            .zip(step.finished_at)
            .map(|(from, to)| to.duration_since(from).as_millis());
        let took = took
            .map(|took| duration(i64::try_from(took).unwrap_or(i64::MAX)))
            .unwrap_or_default();
        let said = step.failure.as_ref().map(|failure| failure.message.clone());
        let said = said.or_else(|| {
            step.progress
                .as_ref()
                .map(|progress| progress.message.clone())
        });
        lines.push(format!(
            "  {:<10} {:<20} {took:>12}  {}",
            step.state,
            step.step,
            said.unwrap_or_default()
        ));
    }
    lines.extend(
        operation
            .blocked_by
            .iter()
            .map(|blocked| format!("blocked by {}: {}", blocked.by, blocked.detail)),
    );
    for link in operation.result.iter().flat_map(|result| &result.links) {
        let told = link
            .told
            .as_ref()
            .map(|told| format!("  {told}"))
            .unwrap_or_default();
        lines.push(format!("{:<10} {}{told}", link.of, link.link));
    }
    lines
}

async fn log(session: &Session, id: Uuid, follow: bool) -> anyhow::Result<()> {
    let mut after = 0;
    loop {
        // The state is read before the lines, so the last lines are never missed.
        let done = session.client.operation(id).await?.done;
        let log = session.client.operation_log(id, after).await?;
        for line in &log.items {
            match session.output.is_table() {
                true => print_line!(
                    "{} {}: {}",
                    line.at.strftime("%T"),
                    line.step,
                    clean(&line.text)
                ),
                false => print_line!("{}", serde_json::to_string(line)?),
            }
            after = line.id;
        }
        match (log.items.is_empty(), done || !follow) {
            (false, _) => {}
            (true, true) => return Ok(()),
            (true, false) if crate::printing::is_reader_gone() => return Ok(()),
            (true, false) => tokio::time::sleep(Duration::from_secs(1)).await,
        }
    }
}
