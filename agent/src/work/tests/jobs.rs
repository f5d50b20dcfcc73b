//! Tests of jobs from lease to outcome: cancelled, fenced, panicking.

use std::sync::Arc;
use std::time::Duration;

use muster_core::ids::PermitId;
use muster_core::wire::bmc::Power;
use muster_core::wire::job::{ActRecord, Job, JobSpec};
use muster_core::wire::login::RevokedKeys;
use muster_core::wire::node::FailureCode;
use muster_core::wire::node::Work;
use muster_core::wire::result::{JobResult, Outcome};
use tokio_util::sync::CancellationToken;

use super::server::FakeServer;
use super::{RESULT, agent, agent_with, log_lines, node, plan, wipe};
use crate::bmc::tests::fake::FakeBmc;
use crate::bmc::{Bmcs, Limits};
use crate::ssh::sshd::PRINCIPAL;
use crate::work::agent::Agent;
use crate::work::context::JobContext;
use crate::work::job::{self, End};
use crate::work::jobs::{self, node_job};

/// A lease renewed or lost within the test.
const LEASE: Duration = Duration::from_millis(600);
/// A lease longer than any test.
const LONG_LEASE: Duration = Duration::from_secs(60);

/// Runs the work of a job until the job reports an awaited condition.
async fn run_until_waiting(context: &JobContext) {
    let waits = async {
        while context.voice.awaited().is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        () = waits => {}
        ended = jobs::execute(context) => panic!("{ended:?}"),
        () = tokio::time::sleep(LONG_LEASE) => panic!("the job reports no wait"),
    }
}

#[tokio::test]
async fn a_job_runs_to_its_outcome_and_tells_its_log() {
    let (mut server, sshd) = (
        FakeServer::start().await,
        node(&format!("{}{RESULT}", log_lines(3))),
    );
    let (agent, _dir) = agent(&server, LONG_LEASE).await;
    let context = wipe(&agent, sshd.login(PRINCIPAL), plan());
    job::run(context, CancellationToken::new()).await;
    let result = JobResult::Wiped { disks: vec![] };
    assert_eq!(
        server.outcomes.try_recv(),
        Ok(Outcome::Succeeded { result })
    );
    let ledger = server.ledger.lock().unwrap();
    let told: Vec<&str> = ledger
        .renewals
        .iter()
        .flat_map(|renewal| &renewal.log)
        .map(|line| line.text.as_str())
        .collect();
    assert!(told.ends_with(&["line 0", "line 1", "line 2"]), "{told:?}");
    assert_eq!(ledger.node_clocks, 1, "the lines have the node's time");
}

#[tokio::test]
async fn a_list_of_revoked_keys_is_on_the_node_before_the_work() {
    let (mut server, sshd) = (FakeServer::start().await, node(RESULT));
    let (agent, _dir) = agent(&server, LONG_LEASE).await;
    let host_key = sshd.login(PRINCIPAL).host_key;
    let revoked = |installed: Option<&String>, live: Option<&String>| RevokedKeys {
        installed: installed.cloned(),
        live: live.cloned(),
        serials: vec![7],
    };
    let mut run = async |revoked_keys: Option<RevokedKeys>| {
        let like = wipe(&agent, sshd.login(PRINCIPAL), plan());
        let job = Job {
            revoked_keys,
            ..like.job.clone()
        };
        sshd.write("asked", "");
        let context = Arc::new(JobContext::new(job, Arc::clone(&agent)));
        job::run(context, CancellationToken::new()).await;
        let outcome = server.outcomes.try_recv().unwrap();
        assert!(matches!(outcome, Outcome::Succeeded { .. }), "{outcome:?}");
        let asked = sshd.file("asked");
        let held = std::mem::take(&mut server.ledger.lock().unwrap().keys_revoked);
        (asked.contains("muster_revoked_keys"), held)
    };
    let another = "ssh-ed25519 AAAA".to_owned();
    assert_eq!(run(None).await, (false, 0));
    // A list for another system is no list for this one.
    let of_others = revoked(Some(&another), Some(&another));
    assert_eq!(run(Some(of_others)).await, (false, 0));
    let live = revoked(Some(&another), Some(&host_key));
    assert_eq!(run(Some(live)).await, (true, 0));
    let installed = revoked(Some(&host_key), None);
    assert_eq!(run(Some(installed.clone())).await, (true, 1));
    let asked = sshd.file("asked");
    let place = |words: &str| asked.find(words).unwrap();
    assert!(place("muster_revoked_keys") < place("muster-node run"));
    let list = std::fs::read(sshd.dir.path().join("revoked")).unwrap();
    assert!(list.starts_with(b"SSHKRL\n\0") && list.ends_with(&7_u64.to_be_bytes()));
    // A node that keeps its keys does its work, and is not reported as a node that refuses them.
    sshd.write("keeps_keys", "");
    assert_eq!(run(Some(installed)).await, (true, 0));
}

/// A result that the server never accepts must not be measured again and again.
#[tokio::test]
async fn a_refused_result_ends_the_job_as_a_failure() {
    let (mut server, sshd) = (
        FakeServer::start().await,
        node(&format!("{}{RESULT}", log_lines(1))),
    );
    server.ledger.lock().unwrap().refuses_results = true;
    let (agent, _dir) = agent(&server, LONG_LEASE).await;
    let context = wipe(&agent, sshd.login(PRINCIPAL), plan());
    job::run(context, CancellationToken::new()).await;
    let Ok(Outcome::Failed { failure }) = server.outcomes.try_recv() else {
        panic!("the refused result is a failure")
    };
    assert_eq!(
        (failure.code, failure.retryable),
        (FailureCode::ServerRefused, false)
    );
    assert!(failure.message.contains("too_large"), "{}", failure.message);
}

/// The node waits for an answer, but the server withdraws the job.
#[tokio::test]
async fn a_cancelled_job_stops_the_node_too() {
    let (mut server, sshd) = (FakeServer::start().await, node(&log_lines(1)));
    server.ledger.lock().unwrap().cancel = true;
    let (agent, _dir) = agent(&server, LEASE).await;
    let context = wipe(&agent, sshd.login(PRINCIPAL), plan());
    let job = context.job.id;
    job::run(context, CancellationToken::new()).await;
    assert_eq!(server.outcomes.try_recv(), Ok(Outcome::Cancelled));
    assert!(
        sshd.file("asked")
            .contains(&format!("muster-node cancel {job}\n"))
    );
}

#[tokio::test]
async fn a_stale_attempt_ends_without_a_word_and_a_stale_epoch_ends_the_agent() {
    let (mut server, sshd) = (FakeServer::start().await, node(&log_lines(1)));
    let (agent, _dir) = agent(&server, LEASE).await;
    for (code, superseded) in [("stale_attempt", false), ("stale_epoch", true)] {
        server.ledger.lock().unwrap().stale = Some(code);
        job::run(
            wipe(&agent, sshd.login(PRINCIPAL), plan()),
            CancellationToken::new(),
        )
        .await;
        assert!(server.outcomes.try_recv().is_err());
        assert_eq!(agent.superseded.is_cancelled(), superseded);
    }
}

#[tokio::test]
async fn a_job_past_its_time_says_what_it_waited_for() {
    let mut server = FakeServer::start().await;
    let (agent, _dir) = agent(&server, LONG_LEASE).await;
    let sshd = node("");
    let login = sshd.login(PRINCIPAL);
    drop(sshd);
    let mut context = Arc::into_inner(wipe(&agent, login, plan())).unwrap();
    run_until_waiting(&context).await;
    context.deadline = tokio::time::Instant::now();
    job::run(Arc::new(context), CancellationToken::new()).await;
    let Ok(Outcome::Failed { failure }) = server.outcomes.try_recv() else {
        panic!("a timeout is a failure")
    };
    assert_eq!(
        (failure.code.as_str(), failure.retryable),
        ("timeout", true)
    );
    assert!(
        failure
            .message
            .contains("still waiting for SSH on n1 (127.0.0.1:"),
        "{}",
        failure.message
    );
}

/// The server is gone for good. A job able to act twice stops before the end of its lease, and a
/// following job continues until its deadline.
#[tokio::test]
async fn only_a_job_that_acts_unasked_stops_with_its_lease() {
    let server = FakeServer::start().await;
    server.ledger.lock().unwrap().away_for = u32::MAX;
    let (agent, _dir) = agent(&server, LEASE).await;
    let gone = node("");
    let login = gone.login(PRINCIPAL);
    drop(gone);
    let wiping = wipe(&agent, login.clone(), plan());
    let reboot = JobSpec::Reboot {
        power: Power::Manual {
            person: "ada".into(),
        },
        login,
        permit: PermitId::new(),
    };
    let rebooting = JobContext::new(
        Job {
            spec: reboot,
            ..wiping.job.clone()
        },
        Arc::clone(&agent),
    );
    tokio::select! {
        biased;
        ended = job::keep_lease(&wiping) => panic!("{ended:?}"),
        ended = job::keep_lease(&rebooting) => {
            let End::Done(Err(failure)) = ended else { panic!("{ended:?}") };
            assert_eq!((failure.code.as_str(), failure.retryable), ("lease_lost", true));
        }
    }
}

#[tokio::test]
async fn a_failed_job_tells_what_the_bmc_logged() {
    let mut server = FakeServer::start().await;
    let (agent, _dir) = agent(&server, LONG_LEASE).await;
    let bmc = FakeBmc::start().await;
    let gone = node("");
    let login = gone.login(PRINCIPAL);
    drop(gone);
    let like = wipe(&agent, login.clone(), plan());
    let reboot = JobSpec::Reboot {
        power: Power::Redfish(bmc.target.clone()),
        login,
        permit: PermitId::new(),
    };
    let mut context = JobContext::new(
        Job {
            spec: reboot,
            ..like.job.clone()
        },
        Arc::clone(&agent),
    );
    context.deadline = tokio::time::Instant::now() + Duration::from_millis(300);
    context.began = "2026-01-02T12:00:00Z".parse().unwrap();
    job::run(Arc::new(context), CancellationToken::new()).await;
    let Ok(Outcome::Failed { failure }) = server.outcomes.try_recv() else {
        panic!("it failed")
    };
    assert_eq!(
        failure.code,
        FailureCode::Timeout,
        "the failure stays what it was"
    );
    let ledger = server.ledger.lock().unwrap();
    let told: Vec<&str> = ledger
        .renewals
        .iter()
        .flat_map(|renewal| &renewal.log)
        .map(|line| line.text.as_str())
        .collect();
    assert!(
        told.contains(&"BMC event log, 2026-01-03T00:00:00Z: Critical: PSU lost"),
        "{told:?}"
    );
    assert!(
        !told.iter().any(|line| line.contains("2026-01-01")),
        "{told:?}"
    );
    assert!(
        told.ends_with(&[
            "BMC sensors: 3 read, 1 not OK; 312 W drawn",
            "BMC sensor Fan 2: 0 RPM, Critical"
        ]),
        "{told:?}"
    );
}

#[tokio::test]
async fn a_system_refusing_logins_is_down_before_the_jobs_deadline() {
    let server = FakeServer::start().await;
    let (patient, _dir) = agent(&server, LONG_LEASE).await;
    let (agent, _other_dir) = agent(&server, LONG_LEASE).await;
    let agent = Arc::new(Agent {
        silent: Duration::from_secs(1),
        ..Arc::into_inner(agent).unwrap()
    });
    let gone = node("");
    let login = gone.login(PRINCIPAL);
    drop(gone);
    let spec = JobSpec::Inventory {
        login: login.clone(),
        cabled: Vec::new(),
    };
    let job = Job {
        timeout_s: 3600,
        spec,
        ..wipe(&agent, login.clone(), plan()).job.clone()
    };
    // The number of earlier attempts does not matter.
    let mut looking = JobContext::new(
        Job {
            attempt: 2,
            ..job.clone()
        },
        patient,
    );
    // The first refusal can take longer than a second on a slow machine.
    run_until_waiting(&looking).await;
    looking.agent = Arc::clone(&agent);
    let failure = jobs::execute(&looking).await.unwrap_err();
    assert_eq!(
        (failure.code.as_str(), failure.retryable),
        ("ssh_unreachable", true)
    );
    assert!(
        failure
            .message
            .starts_with("n1 accepted no login for 1 s; waiting for SSH"),
        "{}",
        failure.message
    );
    // A write possibly started by an earlier attempt continues on the node, so the job keeps
    // waiting.
    let wiping = JobContext::new(job, Arc::clone(&agent));
    let waits = tokio::time::timeout(
        Duration::from_secs(3),
        node_job::run(&wiping, &login, Work::Wipe(plan())),
    )
    .await;
    assert!(waits.is_err(), "{waits:?}");
}

#[tokio::test]
async fn only_a_machine_left_off_by_its_reboot_is_started() {
    let (old, new) = (
        "3f2504e0-4f89-41d3-9a0c-0305e82c3301",
        "3f2504e0-4f89-41d3-9a0c-0305e82c3302",
    );
    let (server, sshd, bmc) = (FakeServer::start().await, node(""), FakeBmc::start().await);
    let short = Duration::from_millis(100);
    let limits = Limits {
        spacing: short / 100,
        poll: short / 10,
        stays_off: short,
        ..Limits::default()
    };
    let (agent, _dir) = agent_with(&server, LEASE, Bmcs::new(limits)).await;
    let record = ActRecord {
        attempt: 1,
        act: "reboot".into(),
        before: old.into(),
        started_at: jiff::Timestamp::UNIX_EPOCH,
        age_s: 5,
    };
    let login = sshd.login(PRINCIPAL);
    let like = wipe(&agent, login.clone(), plan());
    let spec = JobSpec::Reboot {
        power: Power::Redfish(bmc.target.clone()),
        login,
        permit: PermitId::new(),
    };
    let job = Job {
        spec,
        acts: vec![record],
        ..like.job.clone()
    };
    let rebooting = || JobContext::new(job.clone(), Arc::clone(&agent));
    sshd.write("boot_id", old);
    bmc.state().power = "On";
    assert!(
        tokio::time::timeout(10 * short, jobs::execute(&rebooting()))
            .await
            .is_err(),
        "it is waited for"
    );
    assert!(bmc.state().resets.is_empty());
    bmc.state().power = "Off";
    let comes_up = async {
        while bmc.state().resets.is_empty() {
            tokio::time::sleep(short / 10).await;
        }
        sshd.write("boot_id", new);
    };
    let rebooting = rebooting();
    let (booted, ()) = tokio::join!(jobs::execute(&rebooting), comes_up);
    assert_eq!(
        booted.unwrap(),
        JobResult::Booted {
            boot_id: new.into()
        }
    );
    assert_eq!(bmc.state().resets, ["On"], "once");
}
