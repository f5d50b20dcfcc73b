//! Tests of the session kept for the next job: reused, and dropped at any difference.

use std::sync::Arc;
use std::time::Duration;

use muster_core::ids::{NodeId, PermitId};
use muster_core::wire::bmc::Power;
use muster_core::wire::job::{Job, JobSpec};
use muster_core::wire::login::Login;
use muster_core::wire::node::{Failure, Work, WorkResult};
use muster_core::wire::result::JobResult;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::server::FakeServer;
use super::{RESULT, agent, node, plan, wipe};
use crate::ssh::Session;
use crate::ssh::kept::KeptSessions;
use crate::ssh::sshd::{PRINCIPAL, Sshd, new_key};
use crate::work::agent::Agent;
use crate::work::context::JobContext;
use crate::work::jobs::{self, node_job};

const LEASE: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(20);

/// Runs a separate job on a node at an epoch.
async fn run(
    agent: &Arc<Agent>,
    node: NodeId,
    epoch: i64,
    login: &Login,
) -> Result<WorkResult, Failure> {
    let like = wipe(agent, login.clone(), plan());
    let job = Job {
        node,
        epoch,
        ..like.job.clone()
    };
    node_job::run(
        &JobContext::new(job, Arc::clone(agent)),
        login,
        Work::Wipe(plan()),
    )
    .await
}

/// Returns the number of connections used by commands.
fn connections(sshd: &Sshd) -> usize {
    let seen = sshd.file("connections");
    seen.lines()
        .collect::<std::collections::BTreeSet<_>>()
        .len()
}

#[tokio::test]
async fn the_next_job_needs_no_log_in_and_asks_once_for_muster_node() {
    let (server, sshd, id) = (FakeServer::start().await, node(RESULT), NodeId::new());
    let (agent, _dir) = agent(&server, LEASE).await;
    for _ in 0..3 {
        // Each order has a new key and certificate.
        run(&agent, id, 1, &sshd.login(PRINCIPAL)).await.unwrap();
    }
    assert_eq!((connections(&sshd), agent.sessions.len()), (1, 1));
    assert_eq!(sshd.file("asked").matches("sha256sum").count(), 1);
    run(&agent, NodeId::new(), 1, &sshd.login(PRINCIPAL))
        .await
        .unwrap();
    assert_eq!(
        (connections(&sshd), agent.sessions.len()),
        (2, 2),
        "another node is never it"
    );
}

#[tokio::test]
async fn what_was_prepared_is_found_by_the_work() {
    let (server, sshd) = (FakeServer::start().await, node(RESULT));
    sshd.write("version", "{\"protocol\":0}");
    let (agent, _dir) = agent(&server, LEASE).await;
    let login = sshd.login(PRINCIPAL);
    let context = wipe(&agent, login.clone(), plan());
    node_job::prepare(&context, &login).await.unwrap();
    assert_eq!(sshd.file("pushed"), "muster-node");
    node_job::run(&context, &login, Work::Wipe(plan()))
        .await
        .unwrap();
    assert_eq!(
        (
            connections(&sshd),
            sshd.file("asked").matches("sha256sum").count()
        ),
        (1, 1),
        "asked when it was put there"
    );
}

#[tokio::test]
async fn what_an_order_says_differently_drops_it() {
    let (server, sshd, id) = (FakeServer::start().await, node(RESULT), NodeId::new());
    let (agent, _dir) = agent(&server, LEASE).await;
    let other = "muster:0197b0f2-9a3c-7000-8000-000000000000:2";
    sshd.write("principals", &format!("{PRINCIPAL}\n{other}\n"));
    run(&agent, id, 1, &sshd.login(PRINCIPAL)).await.unwrap();
    run(&agent, id, 2, &sshd.login(PRINCIPAL)).await.unwrap();
    assert_eq!(connections(&sshd), 2, "another assignment epoch");
    run(&agent, id, 2, &sshd.login(other)).await.unwrap();
    assert_eq!(connections(&sshd), 3, "another principal");
    let stranger = Login {
        host_key: new_key().public_key().to_openssh().unwrap(),
        ..sshd.login(other)
    };
    let failure = run(&agent, id, 2, &stranger).await.unwrap_err();
    assert_eq!(
        (failure.code.as_str(), agent.sessions.len()),
        ("ssh_host_key_mismatch", 0),
        "another host key"
    );
}

#[tokio::test]
async fn work_that_failed_leaves_none() {
    let failed = "{\"line\":\"result\",\"at\":\"2026-01-01T00:00:00Z\",\"result\":{\"result\":\"failed\",\"code\":\"disk_missing\",\
                  \"message\":\"\",\"retryable\":false}}\n";
    let (server, sshd) = (FakeServer::start().await, node(failed));
    let (agent, _dir) = agent(&server, LEASE).await;
    let result = run(&agent, NodeId::new(), 1, &sshd.login(PRINCIPAL))
        .await
        .unwrap();
    assert!(matches!(result, WorkResult::Failed(_)), "{result:?}");
    assert_eq!(agent.sessions.len(), 0);
}

#[tokio::test]
async fn one_that_was_cut_is_made_anew() {
    let (server, sshd, id) = (FakeServer::start().await, node(RESULT), NodeId::new());
    let (agent, _dir) = agent(&server, LEASE).await;
    run(&agent, id, 1, &sshd.login(PRINCIPAL)).await.unwrap();
    let killed = std::process::Command::new("kill")
        .args(["-9", sshd.file("session").trim()])
        .status()
        .unwrap();
    assert!(killed.success());
    run(&agent, id, 1, &sshd.login(PRINCIPAL)).await.unwrap();
    assert_eq!(connections(&sshd), 2);
}

/// The cable of the node was pulled and plugged again. The old connection is open and silent, and a
/// new connection works.
#[tokio::test]
async fn one_that_fell_silent_is_made_anew() {
    let (server, sshd, id) = (FakeServer::start().await, node(RESULT), NodeId::new());
    let (agent, _dir) = agent(&server, LEASE).await;
    let wire = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let login = || Login {
        port: wire.local_addr().unwrap().port(),
        ..sshd.login(PRINCIPAL)
    };
    let (mute, muted) = watch::channel(());
    let (first, second) = (login(), login());
    let port = sshd.port;
    let proxy = tokio::spawn(async move {
        let mut held = Vec::new();
        for _ in 0..2 {
            let (near, _) = wire.accept().await.unwrap();
            let far = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let mut muted = muted.clone();
            muted.mark_unchanged();
            held.push(tokio::spawn(async move {
                let (mut near, mut far) = (near, far);
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                    _ = muted.changed() => std::future::pending::<()>().await,
                }
            }));
        }
        std::future::pending::<()>().await;
    });
    run(&agent, id, 1, &first).await.unwrap();
    mute.send_replace(());
    tokio::time::timeout(SOON, run(&agent, id, 1, &second))
        .await
        .expect("noticed")
        .unwrap();
    assert_eq!(connections(&sshd), 2);
    proxy.abort();
}

#[tokio::test]
async fn a_reboot_ends_it_and_leaves_one_in_the_next_boot() {
    let (server, sshd, id) = (FakeServer::start().await, node(RESULT), NodeId::new());
    let (agent, _dir) = agent(&server, LEASE).await;
    let (old, new) = (
        "3f2504e0-4f89-41d3-9a0c-0305e82c3301",
        "3f2504e0-4f89-41d3-9a0c-0305e82c3302",
    );
    sshd.write("boot_id", old);
    sshd.write("next_boot_id", new);
    run(&agent, id, 1, &sshd.login(PRINCIPAL)).await.unwrap();

    let power = Power::Manual {
        person: "the lab".into(),
    };
    let spec = JobSpec::Reboot {
        power,
        login: sshd.login(PRINCIPAL),
        permit: PermitId::new(),
    };
    let like = wipe(&agent, sshd.login(PRINCIPAL), plan());
    let job = Job {
        node: id,
        spec,
        ..like.job.clone()
    };
    let booted = jobs::execute(&JobContext::new(job, Arc::clone(&agent)))
        .await
        .unwrap();
    assert_eq!(
        booted,
        JobResult::Booted {
            boot_id: new.into()
        }
    );
    let committed = server
        .ledger
        .lock()
        .unwrap()
        .acts
        .iter()
        .map(|act| act.before.clone())
        .collect::<Vec<_>>();
    assert_eq!(committed, [old], "with the id of the boot that it ended");
    assert_eq!(connections(&sshd), 2);

    run(&agent, id, 1, &sshd.login(PRINCIPAL)).await.unwrap();
    assert_eq!(
        connections(&sshd),
        2,
        "the job after it goes on in the session that saw the new boot"
    );
}

#[tokio::test]
async fn it_tells_when_another_system_of_the_machine_is_up() {
    let (sshd, kept, id) = (node(RESULT), KeptSessions::default(), NodeId::new());
    let login = sshd.login(PRINCIPAL);
    let other = Login {
        host_key: new_key().public_key().to_openssh().unwrap(),
        ..login.clone()
    };
    let elsewhere = Login {
        address: [127, 0, 0, 2].into(),
        ..other.clone()
    };
    for (asked, up) in [(&other, true), (&login, false), (&elsewhere, false)] {
        kept.keep(id, 1, &login, Session::connect(&login, SOON).await.unwrap());
        assert_eq!((kept.other_answers(id, asked).await, kept.len()), (up, 0));
    }
    assert!(!kept.other_answers(id, &other).await, "none was kept");
}

#[tokio::test]
async fn they_are_bounded_and_closed_when_nobody_comes() {
    let (sshd, kept) = (node(RESULT), KeptSessions::holding(2, SOON));
    let login = sshd.login(PRINCIPAL);
    let session = async || Session::connect(&login, SOON).await.unwrap();
    let ids = [NodeId::new(), NodeId::new(), NodeId::new()];
    for id in ids {
        kept.keep(id, 1, &login, session().await);
    }
    assert_eq!(kept.len(), 2);
    assert!(
        kept.take(ids[0], 1, &login).await.is_none(),
        "the one that was idle longest made room"
    );
    assert!(kept.take(ids[1], 1, &login).await.is_some());
    kept.sweep();
    assert_eq!(kept.len(), 1, "the last one is in its time");

    let over = KeptSessions::holding(2, Duration::ZERO);
    over.keep(ids[0], 1, &login, session().await);
    assert!(
        over.take(ids[0], 1, &login).await.is_none(),
        "it comes too late"
    );
    over.keep(ids[0], 1, &login, session().await);
    over.sweep();
    assert!(over.is_empty());
}
