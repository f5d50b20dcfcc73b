//! Tests of the agent against a stateful server, and against nodes behind a real sshd.

#![expect(
    clippy::disallowed_methods,
    reason = "the runtime of a test owns its tasks and ends with the test"
)]

mod adopt; // A machine installed by others
mod agents; // A complete agent process
mod client; // Classes of server answers
mod consoles; // Broken console connections
mod jobs; // A job from lease to outcome
mod kept; // Sessions kept for the next job
mod node_job; // Following work on a node
mod pair; // Two nodes measuring each other
pub(super) mod server; // The fake server
mod smoke; // Number of commands per smoke run

use std::sync::Arc;
use std::time::Duration;

use muster_core::clock::Clock;
use muster_core::ids::{JobId, NodeId, OperationId, PermitId};
use muster_core::values::Digest;
use muster_core::wire::job::{Job, JobSpec};
use muster_core::wire::login::Login;
use muster_core::wire::node::{Version, WipePlan};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use self::server::FakeServer;
use super::agent::{Agent, SILENT};
use super::binary::NodeBinary;
use super::context::JobContext;
use super::reports::Reports;
use crate::blobs::BlobCache;
use crate::bmc::Bmcs;
use crate::boot::arm::ArmedBoots;
use crate::cluster::Clusters;
use crate::ssh::kept::KeptSessions;
use crate::ssh::sshd::Sshd;

/// Returns an agent with a lease short enough for tests.
pub(super) async fn agent(server: &FakeServer, lease: Duration) -> (Arc<Agent>, TempDir) {
    agent_with(server, lease, Bmcs::default()).await
}

pub(super) async fn agent_with(
    server: &FakeServer,
    lease: Duration,
    bmcs: Bmcs,
) -> (Arc<Agent>, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let bytes = bytes::Bytes::from_static(b"muster-node");
    let agent = Agent {
        server: server.connect(),
        lease,
        clock: Clock::System,
        node: NodeBinary {
            digest: Digest::of(&bytes),
            bytes,
        },
        boots: ArmedBoots::new(),
        bmcs,
        clusters: Clusters::default(),
        blobs: BlobCache::at(dir.path().join("blobs")).await.unwrap(),
        reports: Reports::open(dir.path()).unwrap(),
        live_keys: Vec::new(),
        silent: SILENT,
        sessions: KeptSessions::default(),
        superseded: CancellationToken::new(),
    };
    (Arc::new(agent), dir)
}

/// Returns a node with muster-node installed and the given job lines.
fn node(lines: &str) -> Sshd {
    let sshd = Sshd::start(include_str!("muster-node.sh"));
    let version = Version {
        protocol: 1,
        version: "0".into(),
        digest: Digest::of(b"muster-node"),
    };
    sshd.write("version", &serde_json::to_string(&version).unwrap());
    sshd.write("lines", lines);
    let fifo = std::process::Command::new("mkfifo")
        .arg(sshd.dir.path().join("answered"))
        .status()
        .unwrap();
    assert!(fifo.success());
    sshd
}

/// Returns a wipe job, because its result is the smallest.
fn wipe(agent: &Arc<Agent>, login: Login, plan: WipePlan) -> Arc<JobContext> {
    Arc::new(JobContext::new(job(login, plan), Arc::clone(agent)))
}

fn job(login: Login, plan: WipePlan) -> Job {
    Job {
        id: JobId::new(),
        attempt: 1,
        node: NodeId::new(),
        node_name: "n1".into(),
        origin: None,
        revoked_keys: None,
        epoch: 1,
        timeout_s: 60,
        acts: Vec::new(),
        spec: JobSpec::Wipe { login, plan },
    }
}

fn plan() -> WipePlan {
    WipePlan {
        permit: PermitId::new(),
        operation: OperationId::new(),
        claim: None,
        disk_serials: vec!["S1".into()],
    }
}

const RESULT: &str = "{\"line\":\"result\",\"at\":\"2026-01-01T00:00:00Z\",\"result\":{\"result\":\"wiped\",\"disks\":[]}}\n";

fn log_lines(count: usize) -> String {
    let line =
        |n| format!("{{\"line\":\"log\",\"at\":\"2026-01-01T00:00:00Z\",\"text\":\"line {n}\"}}\n");
    (0..count).map(line).collect()
}
