//! Messages of the two ends of a pair gate, and the agent's order and result.

use serde_json::json;

use super::{gate_result, golden, id, job, login};
use crate::ids::NodeId;
use crate::values::Digest;
use crate::wire::calls::ReportOutcome;
use crate::wire::job::JobSpec;
use crate::wire::pair::{PairAnswer, PairEnd, PairLine, PairOrder, PairWay};
use crate::wire::result::{JobResult, Outcome};

#[test]
fn the_ends_of_a_pair() {
    golden("pair-listening", &PairLine::Listening { port: 30_127 });
    golden(
        "pair-ended",
        &PairLine::Ended {
            exit: Some(0),
            said: "Accepted connection".into(),
        },
    );
    golden(
        "pair-answer",
        &PairAnswer {
            results: vec![gate_result()],
            fingerprint: Digest::of(b"hardware"),
        },
    );
}

#[test]
fn a_pair_for_an_agent() {
    let suite = json!({ "name": "pairs", "version": "1", "gates": [{
        "id": "iperf3-pair", "title": "TCP between the two is fast enough", "stage": "pair", "timeout_s": 40, "parser": "iperf3",
        "argv": ["iperf3", "--client", "${peer_address}", "--port", "${pair_port}"], "finding": "The way between the two is slow.",
        "peer": { "argv": ["iperf3", "--server", "--port", "${pair_port}"], "ready_s": 10 },
        "criteria": [{ "metric": "network.received", "op": ">=", "limit": 9.0, "unit": "Gb/s" }],
    }]});
    let profile = json!({
        "model": "virtual", "sockets": 1, "cores_per_socket": 2, "memory_mib": 1800, "schedulable_memory_mib": 1500,
        "root_disk": { "serial_prefix": "ROOT" }, "power_max_w": 300,
    });
    let end = |number: u128, other: &str| {
        PairEnd {
        node: NodeId(id(number)),
        name: format!("n{number}"),
        login: login(),
        plan: serde_json::from_value(json!({
            "suite": suite, "profile": profile, "only": [], "stack": null, "variables": { "peer_address": other },
        }))
        .unwrap(),
    }
    };
    let ends = [end(2, "10.77.0.12"), end(3, "10.77.0.11")];
    golden(
        "job-pair",
        &job(JobSpec::Pair(Box::new(PairOrder { ends }))),
    );
    let way = |from, to, fingerprint| PairWay {
        from: NodeId(id(from)),
        to: NodeId(id(to)),
        results: vec![gate_result()],
        fingerprint,
    };
    let ways = vec![way(2, 3, Some(Digest::of(b"hardware"))), way(3, 2, None)];
    let outcome = Outcome::Succeeded {
        result: JobResult::Paired { ways },
    };
    golden(
        "outcome-paired",
        &ReportOutcome {
            epoch: 1,
            attempt: 2,
            outcome,
        },
    );
}
