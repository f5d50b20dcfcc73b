//! Idempotent: the node runs the gates by itself and keeps their results. For its network gate the agent is the other end: an iperf3 server
//! of its own for each job, because one serves one client at a time.

use std::process::Stdio;

use muster_core::ids::JobId;
use muster_core::wire::login::Login;
use muster_core::wire::node::{Failure, GatePlan, Work};
use muster_core::wire::result::JobResult;
use tokio::process::{Child, Command};

use super::follow;
use crate::work::context::JobContext;

/// Ports of peers: below the range that Linux hands out by itself.
const FIRST_PORT: u16 = 20_000;
const PORTS: u16 = 10_000;

/// Runs the plan with a peer beside it.
pub(super) async fn run(
    context: &JobContext,
    login: &Login,
    plan: &GatePlan,
) -> Result<JobResult, Failure> {
    let mut plan = plan.clone();
    let port = port_of(context.job.id);
    let _peer = plan
        .variables
        .get("agent_address")
        .and_then(|address| match peer(address, port) {
            Ok(child) => Some(child),
            Err(error) => {
                // The gate that needs it will end as `error` and name it; the others run all the same.
                context.voice.log(format!(
                    "iperf3 cannot be started for the network gate: {error}"
                ));
                None
            }
        });
    plan.variables.insert("iperf_port".into(), port.to_string());
    follow(context, login, Work::Gate(plan)).await
}

/// The same for every attempt of a job: an agent that takes over serves the port the node was told.
fn port_of(job: JobId) -> u16 {
    let spread = u16::try_from(job.0.as_u128() % u128::from(PORTS)).unwrap_or(0);
    FIRST_PORT + spread
}

/// Ends when it is dropped.
fn peer(address: &str, port: u16) -> std::io::Result<Child> {
    Command::new("iperf3")
        .args(["--server", "--bind", address, "--port", &port.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
}
