//! Reads the inventory of the node. Idempotent: the job only reads.

use bytes::Bytes;
use muster_core::wire::PROTOCOL;
use muster_core::wire::login::Login;
use muster_core::wire::node::{Failure, FailureCode, Inventory};
use muster_core::wire::result::JobResult;

use super::node_job::ensure_node;
use super::reach::{keep, reach_up};
use crate::ssh::Session;
use crate::ssh::command::Command;
use crate::work::context::{JobContext, fatal};

pub(super) async fn run(
    context: &JobContext,
    login: &Login,
    cabled: &[String],
) -> Result<JobResult, Failure> {
    let session = reach_up(context, login).await?;
    ensure_node(context, &session, login).await?;
    let inventory = read(&session, cabled).await?;
    keep(context, login, session);
    Ok(JobResult::Facts {
        facts: Box::new(inventory.facts),
    })
}

/// Reads the inventory of a node with muster-node installed. With interfaces, waits for LLDP from
/// their switches.
pub(super) async fn read(session: &Session, cabled: &[String]) -> Result<Inventory, Failure> {
    let named = serde_json::to_vec(cabled)
        .map_err(|error| fatal(FailureCode::NodeProtocol, error.to_string()))?;
    let output = match cabled {
        [] => session.exec(Command::Inventory, Bytes::new()).await?,
        _ => session.exec(Command::InventoryHeard, named.into()).await?,
    };
    let inventory: Inventory = serde_json::from_slice(&output).map_err(|error| {
        fatal(
            FailureCode::NodeProtocol,
            format!("the inventory cannot be read: {error}"),
        )
    })?;
    match inventory.protocol {
        PROTOCOL => Ok(inventory),
        other => Err(fatal(
            FailureCode::NodeProtocol,
            format!("the inventory speaks protocol {other}, this agent {PROTOCOL}"),
        )),
    }
}
