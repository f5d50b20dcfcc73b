//! An agent that starts, is replaced, and stops.

use std::path::Path;
use std::time::Duration;

use muster_core::clock::Clock;
use muster_core::values::Secret;
use muster_core::wire::agent::{Job, JobResult, Outcome};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::server::{FakeServer, TOKEN};
use super::{RESULT, job, log_lines, node, plan};
use crate::boot::BootPorts;
use crate::ssh::sshd::PRINCIPAL;
use crate::work::identity::Entry;
use crate::work::{AgentError, AgentOptions, run};

fn start(server: &FakeServer, dir: &Path, cancel: &CancellationToken) -> JoinHandle<Result<(), AgentError>> {
    for loader in ["undionly.kpxe", "snponly.efi", "muster.ipxe", "muster-node"] {
        std::fs::write(dir.join(loader), loader).unwrap();
    }
    let options = AgentOptions {
        server_url: server.url.clone(),
        entry: Entry::Loopback { token: Secret::new(TOKEN) },
        data_dir: dir.join("data"),
        ipxe_dir: dir.to_owned(),
        muster_node: dir.join("muster-node"),
        ports: BootPorts::default(),
        clock: Clock::System,
    };
    tokio::spawn(run(options, cancel.clone()))
}

#[tokio::test]
async fn an_agent_is_welcomed_works_and_stops_when_told() {
    let (mut server, dir, cancel) = (FakeServer::start().await, tempfile::tempdir().unwrap(), CancellationToken::new());
    server.ledger.lock().unwrap().away_for = 1;
    let agent = start(&server, dir.path(), &cancel);
    let (stuck, ready) = (node(&log_lines(1)), node(RESULT));
    let first = job(stuck.login(PRINCIPAL), plan());
    // The server gave the first attempt up and leases the job again: the first must say no more.
    let second = Job { attempt: 2, spec: job(ready.login(PRINCIPAL), plan()).spec, ..first.clone() };
    server.jobs.send(first).unwrap();
    server.jobs.send(second).unwrap();
    let result = JobResult::Wiped { disks: vec![] };
    assert_eq!(server.outcomes.recv().await, Some(Outcome::Succeeded { result }));
    cancel.cancel();
    agent.await.unwrap().unwrap();
    assert!(server.outcomes.try_recv().is_err());
}

#[tokio::test]
async fn an_agent_that_was_superseded_ends() {
    let (server, dir, cancel) = (FakeServer::start().await, tempfile::tempdir().unwrap(), CancellationToken::new());
    server.ledger.lock().unwrap().stale = Some("stale_epoch");
    let ready = node(RESULT);
    server.jobs.send(job(ready.login(PRINCIPAL), plan())).unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(30), start(&server, dir.path(), &cancel)).await;
    let ended = ended.expect("it ends by itself").unwrap();
    assert!(matches!(ended, Err(AgentError::Superseded)), "{ended:?}");
}
