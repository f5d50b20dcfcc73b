//! Tests of two nodes measured against each other, each behind a real sshd: the plans sent, the
//! waits, and the accepted answers.

use std::sync::Arc;
use std::time::Duration;

use muster_core::gates::Verdict;
use muster_core::ids::{JobId, NodeId};
use muster_core::values::Digest;
use muster_core::wire::job::{Job, JobSpec};
use muster_core::wire::node::{Failure, FailureCode, Version};
use muster_core::wire::pair::{PairEnd, PairOrder, PairPlan, PairWay};
use muster_core::wire::result::JobResult;
use serde_json::{Value, json};

use super::agent;
use super::server::FakeServer;
use crate::ssh::sshd::{PRINCIPAL, Sshd};
use crate::work::context::JobContext;
use crate::work::jobs;

const LEASE: Duration = Duration::from_secs(60);

/// Listens until the input ends, and prints the answer written by the test. Answers busy for each
/// line in `busy`, and stays silent if `absent` exists.
const SCRIPT: &str = r#"
case "$SSH_ORIGINAL_COMMAND" in
*" version") exec cat "$NODE/version" ;;
"exec "*" pair serve -")
    read -r line
    if [ -s "$NODE/busy" ]; then
        sed -i 1d "$NODE/busy"
        echo '{"code":"busy","message":"another job","retryable":true}' >&2
        exit 1
    fi
    if [ -e "$NODE/absent" ]; then
        echo '{"code":"tool_missing","message":"iperf3 is not installed here","retryable":false}' >&2
        exit 1
    fi
    echo "$line" >> "$NODE/served"
    echo '{"pair":"listening","port":30127}'
    cat > /dev/null
    echo gone >> "$NODE/gone"
    ;;
"exec "*" pair ask -")
    cat >> "$NODE/asks"
    if [ -e "$NODE/first" ]; then
        cat "$NODE/first"
        rm "$NODE/first"
        exit 0
    fi
    exec cat "$NODE/answer"
    ;;
*) exit 2 ;;
esac
"#;

fn node(verdict: &str) -> Sshd {
    let sshd = Sshd::start(SCRIPT);
    let version = Version {
        protocol: 1,
        version: "0".into(),
        digest: Digest::of(b"muster-node"),
    };
    sshd.write("version", &serde_json::to_string(&version).unwrap());
    sshd.write("answer", &answer(verdict));
    sshd
}

fn answer(verdict: &str) -> String {
    let result = json!({
        "gate": "iperf3-pair", "title": "T", "stage": "pair", "required": true, "verdict": verdict, "reason": "measured", "measured": [],
        "started_at": "2026-01-01T00:00:00Z", "duration_ms": 1,
        "evidence": { "argv": [], "exit": 0, "stdout": "", "stderr": "", "versions": {} },
    });
    json!({ "results": [result], "fingerprint": Digest::of(b"hardware") }).to_string()
}

fn end(sshd: &Sshd, name: &str, other: &str, required: bool) -> PairEnd {
    let gate = json!({
        "id": "iperf3-pair", "title": "T", "stage": "pair", "timeout_s": 5, "parser": "iperf3", "finding": "f", "required": required,
        "argv": ["iperf3", "--client", "${peer_address}", "--port", "${pair_port}"], "criteria": [],
        "peer": { "argv": ["iperf3", "--server", "--port", "${pair_port}"], "ready_s": 5 },
    });
    let profile = json!({
        "model": "virtual", "sockets": 1, "cores_per_socket": 2, "memory_mib": 1800, "schedulable_memory_mib": 1500,
        "root_disk": { "serial_prefix": "ROOT" }, "power_max_w": 300,
    });
    let plan: Value = json!({
        "suite": { "name": "pairs", "version": "1", "gates": [gate] }, "profile": profile, "only": [], "stack": null,
        "variables": { "peer_address": other, "pair_port": "1" },
    });
    PairEnd {
        node: NodeId::new(),
        name: name.into(),
        login: sshd.login(PRINCIPAL),
        plan: serde_json::from_value(plan).unwrap(),
    }
}

async fn run(ends: [PairEnd; 2]) -> Result<Vec<PairWay>, Failure> {
    let server = FakeServer::start().await;
    let (agent, _dir) = agent(&server, LEASE).await;
    let job = Job {
        id: JobId::new(),
        attempt: 1,
        node: ends[0].node,
        node_name: "n1".into(),
        origin: None,
        revoked_keys: None,
        epoch: 1,
        timeout_s: 60,
        acts: Vec::new(),
        spec: JobSpec::Pair(Box::new(PairOrder { ends })),
    };
    match jobs::execute(&JobContext::new(job, Arc::clone(&agent))).await? {
        JobResult::Paired { ways } => Ok(ways),
        other => panic!("{other:?}"),
    }
}

fn said(sshd: &Sshd, file: &str) -> Vec<PairPlan> {
    sshd.file(file)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[tokio::test]
async fn each_end_listens_once_asks_once_and_is_left_alone() {
    let (one, other) = (node("pass"), node("fail"));
    let ends = [
        end(&one, "n1", "10.0.0.2", true),
        end(&other, "n2", "10.0.0.1", true),
    ];
    let nodes = [ends[0].node, ends[1].node];
    let ways = run(ends).await.unwrap();
    let told: Vec<(NodeId, NodeId, Verdict)> = ways
        .iter()
        .map(|way| (way.from, way.to, way.results[0].verdict))
        .collect();
    assert_eq!(
        told,
        [
            (nodes[0], nodes[1], Verdict::Pass),
            (nodes[1], nodes[0], Verdict::Fail)
        ]
    );
    for (sshd, peer) in [(&one, "10.0.0.2"), (&other, "10.0.0.1")] {
        let (served, asked) = (said(sshd, "served"), said(sshd, "asks"));
        assert_eq!(
            (served.len(), asked.len(), sshd.file("gone").as_str()),
            (1, 1, "gone\n"),
            "the listener is gone"
        );
        let word = |plan: &PairPlan, word: &str| plan.plan.variables.get(word).cloned();
        // The listener chooses its port, and the other end receives the port.
        assert_eq!(
            (word(&served[0], "pair_port"), word(&asked[0], "pair_port")),
            (None, Some("30127".into()))
        );
        assert_eq!(word(&asked[0], "peer_address").as_deref(), Some(peer));
        assert_eq!(asked[0].plan.only, ["iperf3-pair"]);
    }
}

#[tokio::test]
async fn an_error_is_measured_again_with_a_new_listener() {
    for (retries, verdict, runs) in [(0, Verdict::Error, 1), (1, Verdict::Pass, 2)] {
        let (one, other) = (node("pass"), node("fail"));
        one.write("first", &answer("error"));
        let mut ends = [
            end(&one, "n1", "10.0.0.2", true),
            end(&other, "n2", "10.0.0.1", true),
        ];
        ends.iter_mut()
            .for_each(|end| end.plan.suite.gates[0].retries = retries);
        let ways = run(ends).await.unwrap();
        let result = &ways[0].results[0];
        assert_eq!((result.verdict, result.former.len() + 1), (verdict, runs));
        assert_eq!(
            (said(&other, "served").len(), said(&one, "asks").len()),
            (runs, runs)
        );
        // A measured value below the limit stays a failure.
        assert_eq!(
            (ways[1].results[0].verdict, said(&other, "asks").len()),
            (Verdict::Fail, 1)
        );
    }
}

#[tokio::test]
async fn what_a_dead_attempt_left_there_is_waited_for() {
    let (one, other) = (node("pass"), node("pass"));
    other.write("busy", "still\n");
    let ways = run([
        end(&one, "n1", "10.0.0.2", true),
        end(&other, "n2", "10.0.0.1", true),
    ])
    .await
    .unwrap();
    assert!(
        ways.iter()
            .all(|way| way.results[0].verdict == Verdict::Pass),
        "{ways:?}"
    );
    assert_eq!(other.file("busy"), "");
}

#[tokio::test]
async fn a_listener_that_cannot_is_an_error_and_skipped_only_where_it_may_be() {
    for (required, verdict) in [(true, Verdict::Error), (false, Verdict::Skipped)] {
        let (one, other) = (node("pass"), node("pass"));
        other.write("absent", "");
        let ends = [
            end(&one, "n1", "10.0.0.2", required),
            end(&other, "n2", "10.0.0.1", required),
        ];
        let ways = run(ends).await.unwrap();
        let first = &ways[0].results[0];
        assert_eq!((first.verdict, ways[0].fingerprint), (verdict, None));
        assert_eq!(first.reason, "n2: iperf3 is not installed here");
        assert_eq!(
            ways[1].results[0].verdict,
            Verdict::Pass,
            "the other way has its own answer"
        );
    }
}

#[tokio::test]
async fn an_unusable_answer_blames_no_node_and_a_refused_login_fails_the_job() {
    let (one, other) = (node("pass"), node("pass"));
    one.write("answer", "{\"results\":\n");
    let ways = run([
        end(&one, "n1", "10.0.0.2", true),
        end(&other, "n2", "10.0.0.1", true),
    ])
    .await
    .unwrap();
    assert_eq!(ways[0].results[0].verdict, Verdict::Error);
    assert_eq!(
        other.file("gone").lines().count(),
        1,
        "its listener is gone all the same"
    );
    other.write("principals", "somebody-else\n");
    let failure = run([
        end(&one, "n1", "10.0.0.2", true),
        end(&other, "n2", "10.0.0.1", true),
    ])
    .await
    .unwrap_err();
    assert!(
        failure.code == FailureCode::SshAuthRefused && failure.message.starts_with("n2: "),
        "{failure:?}"
    );
}
