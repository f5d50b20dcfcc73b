//! Pair gates rejected by the linter, and older pair gates still accepted.

use crate::gates::*;

fn shipped() -> Suite {
    toml::from_str(Shipped::find(SUITES, "pairs").unwrap().text).unwrap()
}

#[test]
fn every_shipped_gate_of_the_suite_is_a_pair_gate() {
    let suite = shipped();
    let ids: Vec<&str> = suite.gates.iter().map(|gate| gate.id.as_str()).collect();
    assert_eq!(
        ids,
        ["iperf3-pair", "ib-write-bw-pair", "ib-write-lat-pair"]
    );
    assert!(
        suite
            .gates
            .iter()
            .all(|gate| gate.peer.is_some() && gate.stage == Stage::Pair)
    );
    for shipped in SUITES.iter().filter(|shipped| shipped.name != "pairs") {
        let other: Suite = toml::from_str(shipped.text).unwrap();
        assert!(
            other.gates.iter().all(|gate| gate.peer.is_none()),
            "{} is run on one node",
            shipped.name
        );
    }
}

#[test]
fn the_linter_refuses_two_ends_that_could_miss_each_other() {
    fn peer(gate: &mut Gate) -> &mut Peer {
        gate.peer.as_mut().unwrap()
    }
    fn drop_word(argv: &mut Vec<String>, word: &str) {
        argv.retain(|argument| argument != word);
    }
    type Break = (&'static str, fn(&mut Gate));
    let breaks: [Break; 18] = [
        ("belongs to stage pair", |gate| gate.stage = Stage::Node),
        ("peer has no argv", |gate| peer(gate).argv.clear()),
        ("peer: \"/bin/bash\" is no program of parser", |gate| {
            peer(gate).argv.insert(0, "/bin/bash".into())
        }),
        ("peer names an unknown variable", |gate| {
            peer(gate).argv.push("${user}".into())
        }),
        ("must not name ${peer_address}", |gate| {
            peer(gate).argv.push("${peer_address}".into())
        }),
        ("must not name ${peer_address} or ${each}", |gate| {
            peer(gate).argv.push("/dev/${each}".into())
        }),
        ("two pairs on one node would use the same port", |gate| {
            drop_word(&mut peer(gate).argv, "${pair_port}")
        }),
        ("where the peer listens", |gate| {
            drop_word(&mut gate.argv, "${pair_port}")
        }),
        ("argv does not name ${peer_address}", |gate| {
            drop_word(&mut gate.argv, "${peer_address}")
        }),
        ("ready_s of the peer is 1 to 60", |gate| {
            peer(gate).ready_s = 0
        }),
        ("ready_s of the peer is 1 to 60", |gate| {
            peer(gate).ready_s = 61
        }),
        ("says of the peer is empty", |gate| {
            peer(gate).says = Some(" ".into())
        }),
        ("takes an hour at most", |gate| gate.timeout_s = 3601),
        ("runs once, not for each disk", |gate| {
            gate.each = Some(Each::Disks)
        }),
        ("at most one retry", |gate| gate.retries = 2),
        ("needs the effect network_load", |gate| {
            gate.effects = vec![SideEffect::CpuLoad]
        }),
        ("needs a drained node", |gate| gate.needs.clear()),
        ("but the gate has no `peer`", |gate| gate.peer = None),
    ];
    assert_eq!(lint(&shipped()), Vec::<String>::new());
    for (problem, break_it) in breaks {
        for at in 0..3 {
            let mut suite = shipped();
            break_it(&mut suite.gates[at]);
            let found = lint(&suite);
            assert!(
                found.iter().any(|found| found.contains(problem)),
                "{problem}: {found:?}"
            );
        }
    }
    let says = "argv = [\"iperf3\"]\nready_s = 1\nsays_not = \"x\"\n";
    assert!(
        toml::from_str::<Peer>(says).is_err(),
        "an unknown field does not even parse"
    );
}

#[test]
fn a_gate_of_before_is_none_and_is_not_told_of_it() {
    let admit: Suite = toml::from_str(Shipped::find(SUITES, "admit").unwrap().text).unwrap();
    let told = serde_json::to_value(&admit.gates[0]).unwrap();
    assert!(
        told.get("peer").is_none(),
        "agents of before know nothing of it: {told}"
    );
    let pair = serde_json::to_value(&shipped().gates[0]).unwrap();
    assert_eq!(
        serde_json::from_value::<Gate>(pair).unwrap(),
        shipped().gates[0]
    );
}
