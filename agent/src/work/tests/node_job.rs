//! Tests of following work on a node over broken connections.

use std::time::Duration;

use muster_core::ids::{JobId, NodeId, OperationId};
use muster_core::wire::node::{Challenge, Line, Plan, RunReply, Work, WorkResult};

use super::server::FakeServer;
use super::{RESULT, agent, log_lines, node, plan, wipe};
use crate::ssh::sshd::PRINCIPAL;
use crate::work::jobs::node_job;

const LEASE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn an_interrupted_attach_goes_on_where_it_ended() {
    let (server, sshd) = (
        FakeServer::start().await,
        node(&format!("{}{RESULT}", log_lines(40))),
    );
    sshd.write("flaky", "");
    let (agent, _dir) = agent(&server, LEASE).await;
    let login = sshd.login(PRINCIPAL);
    let context = wipe(&agent, login.clone(), plan());
    let result = node_job::run(&context, &login, Work::Wipe(plan()))
        .await
        .unwrap();
    assert_eq!(result, WorkResult::Wiped { disks: vec![] });

    let said = context.voice.report().log;
    let lines: Vec<&str> = said
        .iter()
        .map(|line| line.text.as_str())
        .filter(|text| text.starts_with("line "))
        .collect();
    let all: Vec<String> = (0..40).map(|n| format!("line {n}")).collect();
    assert_eq!(lines, all, "none lost, none twice");
    let offsets: Vec<usize> = sshd
        .file("offsets")
        .lines()
        .map(|offset| offset.parse().unwrap())
        .collect();
    assert_eq!((offsets.len(), offsets[0]), (3, 0));
    assert!(
        offsets[1] > 0,
        "the whole lines before the break are not read again"
    );
    let sent: Plan = serde_json::from_str(&sshd.file("plan")).unwrap();
    assert_eq!((sent.job, sent.attempt, sent.epoch), (context.job.id, 1, 1));
    assert!(
        !sshd.file("asked").contains("set -e"),
        "muster-node was in place"
    );
}

/// The lines of work found running may be hours old.
#[tokio::test]
async fn only_lines_of_work_started_here_tell_the_time_of_the_node() {
    let (server, sshd) = (
        FakeServer::start().await,
        node(&format!("{}{RESULT}", log_lines(2))),
    );
    let (agent, _dir) = agent(&server, LEASE).await;
    let login = sshd.login(PRINCIPAL);
    let mut told = Vec::new();
    for _ in 0..2 {
        let context = wipe(&agent, login.clone(), plan());
        node_job::run(&context, &login, Work::Wipe(plan()))
            .await
            .unwrap();
        told.push(context.node_time.offset_ms().is_some());
    }
    assert_eq!(told, [true, false]);
}

#[tokio::test]
async fn a_challenge_is_redeemed_once_and_answered() {
    let (server, challenge) = (FakeServer::start().await, challenge());
    let line = serde_json::to_string(&Line::Challenge(challenge.clone())).unwrap() + "\n";
    let sshd = node(&format!("{}{line}", log_lines(2)));
    let (agent, _dir) = agent(&server, LEASE).await;
    let login = sshd.login(PRINCIPAL);
    let context = wipe(&agent, login.clone(), plan());
    node_job::run(&context, &login, Work::Wipe(plan()))
        .await
        .unwrap();
    assert_eq!(
        sshd.file("answer"),
        "{\"answer\":\"granted\",\"signature\":\"c2lnbmVk\"}"
    );
    let redeemed = &server.ledger.lock().unwrap().redeemed;
    assert_eq!(redeemed.len(), 1);
    assert_eq!(
        (redeemed[0].permit, redeemed[0].challenge.as_ref()),
        (challenge.permit, Some(&challenge))
    );
}

#[tokio::test]
async fn an_old_muster_node_is_replaced_in_the_installed_system_only() {
    let server = FakeServer::start().await;
    let (agent, _dir) = agent(&server, LEASE).await;
    let sshd = node(RESULT);
    sshd.write("version", "{\"protocol\":0}");
    let login = sshd.login(PRINCIPAL);
    node_job::run(
        &wipe(&agent, login.clone(), plan()),
        &login,
        Work::Wipe(plan()),
    )
    .await
    .unwrap();
    assert_eq!(sshd.file("pushed"), "muster-node");

    let sshd = node(RESULT);
    sshd.write("version", "{\"protocol\":0}");
    sshd.write("principals", "muster-live:00\n");
    let login = sshd.login("muster-live:00");
    node_job::run(
        &wipe(&agent, login.clone(), plan()),
        &login,
        Work::Wipe(plan()),
    )
    .await
    .unwrap();
    assert_eq!(sshd.file("pushed"), "");
}

#[tokio::test]
async fn a_line_that_is_none_of_the_protocol_fails_the_job() {
    let server = FakeServer::start().await;
    let sshd = node("{\"line\":\"hello\"}\n");
    let (agent, _dir) = agent(&server, LEASE).await;
    let login = sshd.login(PRINCIPAL);
    let failure = node_job::run(
        &wipe(&agent, login.clone(), plan()),
        &login,
        Work::Wipe(plan()),
    )
    .await
    .unwrap_err();
    assert_eq!(
        (failure.code.as_str(), failure.retryable),
        ("node_protocol", false)
    );
}

/// The server detects a restored database by a later epoch on a node. An impossible value is not
/// accepted as a sign.
#[tokio::test]
async fn only_a_later_epoch_or_attempt_is_a_node_that_knows_better() {
    let server = FakeServer::start().await;
    let (agent, _dir) = agent(&server, LEASE).await;
    for (epoch, attempt, code) in [
        (2, 1, "stale_on_node"),
        (1, 2, "stale_on_node"),
        (1, 1, "node_protocol"),
        (0, 9, "node_protocol"),
    ] {
        let sshd = node(RESULT);
        let reply = RunReply::Stale { epoch, attempt };
        sshd.write("stale", &(serde_json::to_string(&reply).unwrap() + "\n"));
        let login = sshd.login(PRINCIPAL);
        let context = wipe(&agent, login.clone(), plan());
        let failure = node_job::run(&context, &login, Work::Wipe(plan()))
            .await
            .unwrap_err();
        assert_eq!(
            (failure.code.as_str(), failure.retryable),
            (code, false),
            "{epoch}, {attempt}"
        );
    }
}

fn challenge() -> Challenge {
    Challenge {
        protocol: 1,
        permit: plan().permit,
        operation: OperationId::new(),
        job: JobId::new(),
        attempt: 1,
        node: NodeId::new(),
        epoch: 1,
        boot_id: "b".into(),
        chassis_serial: None,
        disk_serials: vec!["S1".into()],
        nonce: "00".into(),
    }
}
