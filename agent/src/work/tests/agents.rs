//! Tests of an agent starting, being replaced, and stopping.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use muster_core::clock::Clock;
use muster_core::ids::{NodeId, PermitId};
use muster_core::values::{Mac, Secret};
use muster_core::wire::bmc::Power;
use muster_core::wire::job::{Job, JobSpec};
use muster_core::wire::node::FailureCode;
use muster_core::wire::result::{JobResult, Outcome};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::server::{FakeServer, TOKEN};
use super::{RESULT, agent, job, log_lines, node, plan};
use crate::boot::BootPorts;
use crate::boot::arm::tests::spec;
use crate::ssh::sshd::PRINCIPAL;
use crate::work::context::JobContext;
use crate::work::identity::Entry;
use crate::work::{AgentError, AgentOptions, jobs, leases, run};

fn start(
    server: &FakeServer,
    dir: &Path,
    cancel: &CancellationToken,
) -> JoinHandle<Result<(), AgentError>> {
    for loader in ["undionly.kpxe", "snponly.efi", "muster.ipxe", "muster-node"] {
        std::fs::write(dir.join(loader), loader).unwrap();
    }
    let options = AgentOptions {
        server_url: server.url.clone(),
        entry: Entry::Loopback {
            token: Secret::new(TOKEN),
        },
        data_dir: dir.join("data"),
        ipxe_dir: dir.to_owned(),
        muster_node: dir.join("muster-node"),
        blob_bytes: None,
        live_keys: Vec::new(),
        ports: BootPorts::default(),
        clock: Clock::System,
    };
    tokio::spawn(run(options, cancel.clone()))
}

#[tokio::test]
async fn an_agent_is_welcomed_works_and_stops_when_told() {
    let (mut server, dir, cancel) = (
        FakeServer::start().await,
        tempfile::tempdir().unwrap(),
        CancellationToken::new(),
    );
    server.ledger.lock().unwrap().away_for = 1;
    let agent = start(&server, dir.path(), &cancel);
    let (stuck, ready) = (node(&log_lines(1)), node(RESULT));
    let first = job(stuck.login(PRINCIPAL), plan());
    // The server gave up the first attempt and leases the job again. The first attempt must not
    // report any more.
    let second = Job {
        attempt: 2,
        spec: job(ready.login(PRINCIPAL), plan()).spec,
        ..first.clone()
    };
    server.jobs.send(first).unwrap();
    server.jobs.send(second).unwrap();
    let result = JobResult::Wiped { disks: vec![] };
    assert_eq!(
        server.outcomes.recv().await,
        Some(Outcome::Succeeded { result })
    );
    cancel.cancel();
    agent.await.unwrap().unwrap();
    assert!(server.outcomes.try_recv().is_err());
}

/// Machines wait for the boots of an earlier process only until the leases of these boots.
#[tokio::test]
async fn the_first_leases_name_the_pending_boots() {
    let server = FakeServer::start().await;
    let (agent, _dir) = agent(&server, Duration::from_secs(30)).await;
    let (booting, other) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
    agent.boots.await_leases();
    assert!(agent.boots.is_pending(other));
    let boot = Job {
        spec: JobSpec::BootLive(spec(booting, Ipv4Addr::LOCALHOST)),
        ..job(node(RESULT).login(PRINCIPAL), plan())
    };
    server.jobs.send(boot).unwrap();
    let stop = CancellationToken::new();
    let leases = tokio::spawn(leases::run(Arc::clone(&agent), stop.clone()));
    // The third call follows the answer with the boot and the empty answer.
    while server.ledger.lock().unwrap().reads.len() < 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(
        !agent.boots.is_pending(other),
        "an empty answer ends the wait"
    );
    // The kernel of this boot is not on the server, so the job does not arm the boot.
    assert!(agent.boots.is_pending(booting));
    stop.cancel();
    leases.await.unwrap();
}

/// A fetch of the boot script is an alarm while the live image runs, and no alarm after a power
/// act.
#[tokio::test]
async fn a_power_job_ends_the_run_of_the_live_image() {
    let server = FakeServer::start().await;
    let (agent, _dir) = agent(&server, Duration::from_secs(30)).await;
    let (mac, here) = (Mac([2, 0, 0, 0, 0, 1]), Ipv4Addr::LOCALHOST);
    let power = Power::Manual {
        person: "ada".to_owned(),
    };
    let order = job(node(RESULT).login(PRINCIPAL), plan());
    let handle = agent.boots.arm(order.node, &spec(mac, here)).unwrap();
    handle.hold();
    let refused = async |order: Job| {
        let context = JobContext::new(order, Arc::clone(&agent));
        jobs::execute(&context).await.unwrap_err().code
    };
    let start_of_another = Job {
        node: NodeId::new(),
        spec: JobSpec::PowerOn {
            power: power.clone(),
            permit: PermitId::new(),
        },
        ..order.clone()
    };
    assert_eq!(refused(start_of_another).await, FailureCode::NoBmc);
    assert!(agent.boots.runs_live(mac), "another node was started");
    let start = Job {
        spec: JobSpec::PowerOn {
            power,
            permit: PermitId::new(),
        },
        ..order
    };
    assert_eq!(refused(start).await, FailureCode::NoBmc);
    assert!(!agent.boots.runs_live(mac));
}

#[tokio::test]
async fn an_agent_that_was_superseded_ends() {
    let (server, dir, cancel) = (
        FakeServer::start().await,
        tempfile::tempdir().unwrap(),
        CancellationToken::new(),
    );
    server.ledger.lock().unwrap().stale = Some("stale_epoch");
    let ready = node(RESULT);
    server
        .jobs
        .send(job(ready.login(PRINCIPAL), plan()))
        .unwrap();
    let ended =
        tokio::time::timeout(Duration::from_secs(30), start(&server, dir.path(), &cancel)).await;
    let ended = ended.expect("it ends by itself").unwrap();
    assert!(matches!(ended, Err(AgentError::Superseded)), "{ended:?}");
}

/// A newer server sends an order unknown to this agent, together with a known order.
#[tokio::test]
async fn an_order_that_cannot_be_read_is_told_and_keeps_none_of_the_others() {
    let (mut server, dir, cancel) = (
        FakeServer::start().await,
        tempfile::tempdir().unwrap(),
        CancellationToken::new(),
    );
    let ready = node(RESULT);
    let known = job(ready.login(PRINCIPAL), plan());
    let mut strange = serde_json::to_value(&known).unwrap();
    strange["id"] = serde_json::json!(muster_core::ids::JobId::new());
    strange["spec"] = serde_json::json!({ "kind": "polish", "with": "a cloth" });
    server.ledger.lock().unwrap().strange = Some(strange);
    let agent = start(&server, dir.path(), &cancel);
    server.jobs.send(known).unwrap();
    let mut outcomes = vec![
        server.outcomes.recv().await.unwrap(),
        server.outcomes.recv().await.unwrap(),
    ];
    outcomes.sort_by_key(|outcome| matches!(outcome, Outcome::Failed { .. }));
    cancel.cancel();
    agent.await.unwrap().unwrap();
    assert_eq!(
        outcomes[0],
        Outcome::Succeeded {
            result: JobResult::Wiped { disks: vec![] }
        }
    );
    let Outcome::Failed { failure } = &outcomes[1] else {
        panic!("{outcomes:?}")
    };
    assert_eq!(
        (failure.code.as_str(), failure.retryable),
        ("order_unknown", true)
    );
    assert!(
        failure.message.contains("cannot read this polish")
            && failure.message.contains("update it"),
        "{failure:?}"
    );
    let said = server.ledger.lock().unwrap().reads[0].clone();
    assert_eq!(said, muster_core::wire::orders::said());
}
