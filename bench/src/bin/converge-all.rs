//! Measures how the agent converges nodes over its own SSH: `converge-all MUSTER_NODE`, with
//! `{"logins": […], "plan": …}` on standard input. Connects to all nodes at once. Installs
//! muster-node where the digest differs, starts the job and follows its lines to the result. Prints
//! a line of counts.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use muster_agent::ssh::Session;
use muster_agent::ssh::command::Command;
use muster_core::ids::{JobId, NodeId};
use muster_core::stacks::{ConvergePlan, ItemOutcome};
use muster_core::values::Digest;
use muster_core::wire::PROTOCOL;
use muster_core::wire::login::Login;
use muster_core::wire::node::{Line, Plan, RunReply, Version, Work, WorkResult};
use tokio::task::JoinSet;

#[derive(Clone, serde::Deserialize)]
struct Order {
    logins: Vec<Login>,
    plan: ConvergePlan,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let node = std::env::args()
        .nth(1)
        .context("usage: converge-all MUSTER_NODE")?;
    let node = Bytes::from(std::fs::read(&node).with_context(|| node.clone())?);
    let order: Order = serde_json::from_reader(std::io::stdin()).context("logins and a plan")?;
    let digest = Digest::of(&node);
    let mut hosts = JoinSet::new();
    for login in order.logins {
        let (node, plan) = (node.clone(), order.plan.clone());
        hosts.spawn(async move {
            let address = login.address;
            converge(login, plan, node, digest)
                .await
                .with_context(|| address.to_string())
        });
    }
    let (mut done, mut changed, mut unchanged) = (0, 0, 0);
    while let Some(host) = hosts.join_next().await {
        let (more_changed, more_unchanged) = host??;
        (done, changed, unchanged) = (done + 1, changed + more_changed, unchanged + more_unchanged);
    }
    println!("{done} hosts, {changed} items changed, {unchanged} unchanged");
    Ok(())
}

async fn converge(
    login: Login,
    plan: ConvergePlan,
    node: Bytes,
    digest: Digest,
) -> anyhow::Result<(usize, usize)> {
    let session = Session::connect(&login, Duration::from_secs(60)).await?;
    let installed = session.exec(Command::Version, Bytes::new()).await.ok();
    let installed = installed.and_then(|output| serde_json::from_slice::<Version>(&output).ok());
    if installed.map(|version| version.digest) != Some(digest) {
        session.exec(Command::InstallNode { digest }, node).await?;
    }
    let (job, attempt) = (JobId::new(), 1);
    let work = Work::Converge(plan);
    let plan = Plan {
        protocol: PROTOCOL,
        job,
        attempt,
        node: NodeId::new(),
        epoch: 1,
        timeout_s: 600,
        work,
    };
    let reply = session
        .exec(
            Command::Run { job, attempt },
            serde_json::to_vec(&plan)?.into(),
        )
        .await?;
    ensure!(
        matches!(serde_json::from_slice(&reply)?, RunReply::Started { .. }),
        "{}",
        String::from_utf8_lossy(&reply)
    );
    let mut lines = session.lines(Command::Attach { job, offset: 0 }).await?;
    while let Some(line) = lines.next().await? {
        if let Line::Result { result, .. } = serde_json::from_slice(&line)? {
            let WorkResult::Converged(report) = *result else {
                bail!("{result:?}")
            };
            let changed = report
                .items
                .iter()
                .filter(|item| item.outcome == ItemOutcome::Changed)
                .count();
            return Ok((changed, report.items.len() - changed));
        }
    }
    bail!("its lines ended without a result")
}
