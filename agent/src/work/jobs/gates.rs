//! Runs gates on a node. Idempotent: the node runs the gates independently and keeps the results.
//! For the network gate the agent is the peer, with an iperf3 server per job, because an iperf3
//! server handles a single client at a time.

use std::process::Stdio;

use muster_core::ids::JobId;
use muster_core::wire::login::Login;
use muster_core::wire::node::{Failure, GatePlan, Work};
use muster_core::wire::result::JobResult;
use tokio::process::{Child, Command};

use super::follow;
use crate::work::context::JobContext;

/// Ports of the peers, below the range of ports assigned by Linux.
const FIRST_PORT: u16 = 20_000;
const PORTS: u16 = 10_000;

/// Runs the plan together with its network peer.
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
                // The gate needing the peer will end as `error` with its name. All other gates
                // still run.
                context.voice.log(format!(
                    "iperf3 cannot be started for the network gate: {error}"
                ));
                None
            }
        });
    plan.variables.insert("iperf_port".into(), port.to_string());
    follow(context, login, Work::Gate(plan)).await
}

/// Returns the same port for every attempt of a job. After a takeover the new agent uses the port
/// already sent to the node.
fn port_of(job: JobId) -> u16 {
    let spread = u16::try_from(job.0.as_u128() % u128::from(PORTS)).unwrap_or(0);
    FIRST_PORT + spread
}

/// Starts the peer. The process ends when the value is dropped.
fn peer(address: &str, port: u16) -> std::io::Result<Child> {
    Command::new("iperf3")
        .args(["--server", "--bind", address, "--port", &port.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
}
