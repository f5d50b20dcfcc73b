//! Canary, soak and waves, and the results that open the next wave.

use super::*;

fn with_canary(count: u32, waves: Waves) -> RolloutPolicy {
    let canary = Canary {
        count: Some(count),
        nodes: Vec::new(),
        soak_s: 1800,
    };
    RolloutPolicy {
        canary: Some(canary),
        waves,
        ..policy()
    }
}

/// The fleet after the closed nodes are done.
fn finish(fleet: &mut Fleet, plan: &Plan, now: Timestamp) {
    for node in closed(plan) {
        let node = fleet
            .nodes
            .iter_mut()
            .find(|other| other.member.node == node)
            .unwrap();
        node.stage = Stage::Done { changed: true };
        node.effect = Effect::None;
        node.since = now;
    }
}

#[test]
fn canary_soak_and_waves_follow_each_other() {
    let policy = with_canary(2, Waves::Sizes(vec![Amount::Count(3), Amount::Percent(50)]));
    let mut fleet = fleet(20);
    let mut now = start();
    let mut sizes = Vec::new();
    loop {
        let plan = plan(&policy, &fleet, now);
        let begun = closed(&plan).len();
        if begun == 0 {
            assert_eq!(plan.verdict, Verdict::Done);
            break;
        }
        sizes.push(begun);
        // While the wave is open, no other node begins.
        for action in &plan.actions {
            let node = fleet
                .nodes
                .iter_mut()
                .find(|node| node.member.node == action.node)
                .unwrap();
            node.stage = Stage::Validating(Validation::Gating);
        }
        let open = super::plan(&policy, &fleet, now);
        assert_eq!(closed(&open), []);
        finish(&mut fleet, &plan, now);
        if sizes.len() == 1 {
            let soak = super::plan(&policy, &fleet, now + minutes(29));
            assert_eq!(
                soak.binding,
                Some(Rule::Soak {
                    until: now + minutes(30)
                })
            );
            assert!(!soak.has_canary_passed && closed(&soak).is_empty());
            now += minutes(30);
        }
        assert!(super::plan(&policy, &fleet, now).has_canary_passed);
    }
    assert_eq!(sizes, [2, 3, 10, 5]);
}

#[test]
fn skipped_nodes_open_no_wave_early() {
    let policy = RolloutPolicy {
        waves: Waves::Sizes(vec![Amount::Percent(50)]),
        ..policy()
    };
    let mut fleet = fleet(20);
    for number in 0..10 {
        fleet.nodes[number] = staged(number, Stage::Changing(Change::Working));
    }
    for number in 10..18 {
        fleet.nodes[number].stage = Stage::Skipped;
    }
    let held = plan(&policy, &fleet, start());
    assert_eq!(
        held.binding,
        Some(Rule::Wave {
            number: 2,
            open: 10
        })
    );
    // A started node that is skipped leaves its place to another.
    fleet.nodes[0].stage = Stage::Skipped;
    assert_eq!(closed(&plan(&policy, &fleet, start())), [id(18)]);
}

#[test]
fn exponential_waves_double() {
    let policy = RolloutPolicy {
        waves: Waves::Exponential {
            initial: Amount::Count(1),
            factor: 2,
        },
        ..policy()
    };
    let mut fleet = fleet(12);
    let sizes: Vec<usize> = (0..4)
        .map(|_| {
            let plan = plan(&policy, &fleet, start());
            finish(&mut fleet, &plan, start());
            closed(&plan).len()
        })
        .collect();
    assert_eq!(sizes, [1, 2, 4, 5]);
}

#[test]
fn a_missing_gate_result_holds_the_next_wave() {
    let policy = RolloutPolicy {
        waves: Waves::Sizes(vec![Amount::Count(2)]),
        ..policy()
    };
    let mut fleet = fleet(4);
    fleet.nodes[0] = done(0);
    fleet.nodes[1] = staged(1, Stage::Validating(Validation::ResultMissing));
    let plan = plan(&policy, &fleet, start());
    assert!(plan.actions.is_empty(), "{plan:?}");
    assert_eq!(plan.binding, Some(Rule::ResultMissing));
    assert_eq!(why(&plan, 2), Some("wave"));
}

#[test]
fn a_named_canary_begins_alone_and_its_failure_halts() {
    let canary = Canary {
        count: None,
        nodes: vec!["n2".to_owned(), "n3".to_owned()],
        soak_s: 0,
    };
    let policy = RolloutPolicy {
        canary: Some(canary),
        ..policy()
    };
    let mut fleet = fleet(5);
    assert_eq!(closed(&plan(&policy, &fleet, start())), [id(2), id(3)]);
    fleet.nodes[2] = done(2);
    fleet.nodes[3] = staged(3, Stage::Failed);
    let halt = plan(&policy, &fleet, start());
    assert_eq!(
        halt.verdict,
        Verdict::Halt(HaltReason::Canary {
            node: "n3".to_owned()
        })
    );
    assert!(halt.actions.is_empty() && !halt.has_canary_passed);
    fleet.promoted = true;
    assert_eq!(
        closed(&plan(&policy, &fleet, start())).len(),
        3,
        "a person has promoted"
    );
    fleet.promoted = false;
    fleet.nodes[2].stage = Stage::Skipped;
    fleet.nodes[3].stage = Stage::Skipped;
    assert_eq!(
        why(&plan(&policy, &fleet, start()), 0),
        Some("canary_without_result")
    );
}

#[test]
fn nodes_that_need_no_change_are_done_and_are_no_canary() {
    let policy = with_canary(1, Waves::Sizes(Vec::new()));
    let mut fleet = fleet(4);
    for number in 0..2 {
        fleet.nodes[number].effect = Effect::None;
    }
    fleet.nodes[2].stage = Stage::Done { changed: false };
    let plan = plan(&policy, &fleet, start());
    assert_eq!(plan.actions[0].act, Act::Finish { changed: false });
    assert_eq!(
        closed(&plan),
        [id(3)],
        "the canary is a node that is changed"
    );
}

#[test]
fn a_monitor_without_an_answer_holds_nodes_and_ends_no_wait() {
    let mut fleet = Fleet {
        nodes: vec![
            staged(0, Stage::Waiting),
            node(1),
            staged(2, Stage::Changing(Change::Draining)),
            staged(3, Stage::Changing(Change::Drained)),
        ],
        silent: Some(Silent::Monitor("errors".to_owned())),
        ..fleet(0)
    };
    let held = plan(&policy(), &fleet, start());
    assert_eq!(
        ([0, 1, 2, 3].map(|node| acts(&held, node)), held.verdict),
        ([vec![], vec![], vec![], vec!["change"]], Verdict::Running)
    );
    let rule = held.binding.unwrap();
    assert_eq!(
        (rule.code(), rule.to_string().as_str(), rule.waits_for()),
        (
            "monitor_silent",
            "the monitor errors has no present answer",
            WaitsFor::Progress
        )
    );
    fleet.silent = None;
    assert_eq!(closed(&plan(&policy(), &fleet, start())).len(), 2);
}

/// Only a person can end this wait, so a draining node serves again. A comparison at the next tick ends
/// the other wait.
#[test]
fn changed_nodes_that_cannot_be_compared_hold_all_others() {
    for (is_pending, draining, waits_for) in [
        (false, vec!["give_back"], WaitsFor::Person),
        (true, vec![], WaitsFor::Progress),
    ] {
        let fleet = Fleet {
            nodes: vec![
                staged(0, Stage::Done { changed: true }),
                node(1),
                staged(2, Stage::Changing(Change::Draining)),
            ],
            silent: Some(Silent::Gate {
                name: "gpu.burn/burn.speed".to_owned(),
                is_pending,
            }),
            ..fleet(0)
        };
        let held = plan(&policy(), &fleet, start());
        assert_eq!([1, 2].map(|node| acts(&held, node)), [vec![], draining]);
        let rule = held.binding.unwrap();
        assert_eq!((rule.code(), rule.waits_for()), ("not_compared", waits_for));
    }
}

/// The comparison of the last node may halt the rollout.
#[test]
fn a_rollout_ends_after_the_comparison_of_its_last_node() {
    for (is_pending, verdict) in [(true, Verdict::Running), (false, Verdict::Done)] {
        let fleet = Fleet {
            nodes: vec![staged(0, Stage::Done { changed: true })],
            silent: Some(Silent::Gate {
                name: "gpu.burn/burn.speed".to_owned(),
                is_pending,
            }),
            ..fleet(0)
        };
        assert_eq!(plan(&policy(), &fleet, start()).verdict, verdict);
    }
}
