//! `muster operation`.

use std::time::Duration;

use clap::Subcommand;
use muster_api::operations::Operation;
use uuid::Uuid;

use super::Session;
use super::output::{Rows, age, clean, duration};
use super::progress::{self, parse_duration, sentence};

/// What can be done with operations.
#[derive(Debug, Subcommand)]
pub(crate) enum OperationVerb {
    /// List operations, newest first.
    List {
        #[arg(long)]
        node: Option<String>,
        /// queued, running, succeeded, failed, cancelled or unknown.
        #[arg(long)]
        state: Option<String>,
        #[arg(long, default_value_t = 50)]
        limit: u32,
    },
    /// Show one operation with its steps.
    Get { id: Uuid },
    /// Follow an operation until it is done.
    Watch {
        id: Uuid,
        #[arg(long, default_value = "2h", value_parser = parse_duration)]
        timeout: Duration,
    },
    /// Ask an operation to stop.
    Cancel { id: Uuid },
    /// Show what its steps logged.
    Log {
        id: Uuid,
        /// Go on until the operation is done.
        #[arg(short, long)]
        follow: bool,
    },
}

pub(super) async fn run(session: &Session, verb: OperationVerb) -> anyhow::Result<()> {
    let client = &session.client;
    match verb {
        OperationVerb::List { node, state, limit } => {
            let limit = limit.to_string();
            let mut query = vec![("limit", limit.as_str())];
            query.extend(node.as_deref().map(|node| ("node", node)));
            query.extend(state.as_deref().map(|state| ("state", state)));
            let page = client.list_operations(&query).await?;
            session.output.print(&page.items, || table(session, &page.items))
        }
        OperationVerb::Get { id } => {
            let operation = client.operation(id).await?;
            session.output.print_lines(&operation, || lines(&operation))
        }
        OperationVerb::Watch { id, timeout } => progress::follow(client, &[id], timeout).await,
        OperationVerb::Cancel { id } => {
            let operation = client.cancel_operation(id).await?;
            session.output.print_lines(&operation, || vec![sentence(&operation)])
        }
        OperationVerb::Log { id, follow } => log(session, id, follow).await,
    }
}

fn table(session: &Session, operations: &[Operation]) -> Rows<7> {
    let now = session.clock.now();
    let row = |operation: &Operation| {
        [
            operation.id.to_string(),
            operation.kind.clone(),
            operation.target.as_ref().map(|target| target.name.clone()).unwrap_or_default(),
            operation.state.as_str().into(),
            age(now, Some(operation.created_at)),
            operation.progress.message.clone(),
            operation.actor.clone(),
        ]
    };
    let headings = ["ID", "KIND", "NODE", "STATE", "AGE", "MESSAGE", "ACTOR"];
    Rows { headings, rows: operations.iter().map(row).collect(), wide_from: 6 }
}

fn lines(operation: &Operation) -> Vec<String> {
    let mut lines = vec![sentence(operation)];
    for step in &operation.steps {
        let took = step.started_at.zip(step.finished_at).map(|(from, to)| to.duration_since(from).as_millis());
        let took = took.map(|took| duration(i64::try_from(took).unwrap_or(i64::MAX))).unwrap_or_default();
        let said = step.failure.as_ref().map(|failure| failure.message.clone());
        let said = said.or_else(|| step.progress.as_ref().map(|progress| progress.message.clone()));
        lines.push(format!("  {:<10} {:<20} {took:>12}  {}", step.state, step.step, said.unwrap_or_default()));
    }
    lines
}

async fn log(session: &Session, id: Uuid, follow: bool) -> anyhow::Result<()> {
    let mut after = 0;
    loop {
        // Asked before the lines are: what is logged last is then never missed.
        let done = session.client.operation(id).await?.done;
        let log = session.client.operation_log(id, after).await?;
        for line in &log.items {
            match session.output.is_table() {
                true => println!("{} {}: {}", line.at.strftime("%T"), line.step, clean(&line.text)),
                false => println!("{}", serde_json::to_string(line)?),
            }
            after = line.id;
        }
        match (log.items.is_empty(), done || !follow) {
            (false, _) => {}
            (true, true) => return Ok(()),
            (true, false) => tokio::time::sleep(Duration::from_secs(1)).await,
        }
    }
}
