//! The order of nodes, closed times, observed progress, and the sentences of rules.

use super::*;

#[test]
fn equal_nodes_are_taken_by_name_in_any_order_of_the_fleet() {
    let mut fleet = fleet(3);
    fleet.nodes.reverse();
    let planned = plan(&policy(), &fleet, start());
    assert_eq!(closed(&planned), [0, 1, 2].map(id));
}

#[test]
fn order_keys_sort_the_nodes() {
    let mut fleet = fleet(5);
    for (number, rack) in ["r2", "r1", "r2", "r1"].into_iter().enumerate() {
        fleet.nodes[number].rack = Some(rack.to_owned());
    }
    fleet.nodes[0].jobs = job_for("7", 5);
    fleet.nodes[1].jobs = job_for("8", 3);
    fleet.nodes[3].labels = [("zone".to_owned(), "a".to_owned())].into();
    let by = |order: &[OrderKey]| {
        let policy = RolloutPolicy {
            order: order.to_vec(),
            ..policy()
        };
        closed(&plan(&policy, &fleet, start()))
    };
    assert_eq!(
        by(&[OrderKey::IdleFirst, OrderKey::JobEnd]),
        [2, 3, 4, 1, 0].map(id)
    );
    assert_eq!(
        by(&[OrderKey::Rack]),
        [3, 1, 2, 0, 4].map(id),
        "then by job end"
    );
    assert_eq!(
        by(&[OrderKey::Label("zone".to_owned()), OrderKey::Rack]),
        [3, 1, 2, 0, 4].map(id)
    );
}

#[test]
fn freezes_and_closed_windows_start_no_work() {
    let mut fleet = fleet(2);
    fleet.nodes[1].stage = Stage::Waiting;
    fleet.window = Opening::Closed {
        opens: Some(start() + minutes(60)),
    };
    let closed_window = plan(&policy(), &fleet, start());
    assert_eq!(
        (closed_window.actions.len(), why(&closed_window, 1)),
        (0, Some("window_closed"))
    );
    assert_eq!(
        closed_window.placements[1]
            .why
            .as_ref()
            .unwrap()
            .waits_for(),
        WaitsFor::Window
    );
    fleet.window = Opening::Open { until: None };
    fleet.frozen_until = Some(start() + minutes(60));
    let frozen = plan(&policy(), &fleet, start());
    assert_eq!(
        (acts(&frozen, 0), acts(&frozen, 1)),
        (vec![], vec!["give_back"])
    );
    assert_eq!(
        closed(&plan(&policy(), &fleet, start() + minutes(60))).len(),
        2
    );
    // A window read as open, but over by now.
    fleet.window = Opening::Open {
        until: Some(start()),
    };
    assert_eq!(
        why(&plan(&policy(), &fleet, start() + minutes(60)), 0),
        Some("window_closed")
    );
}

#[test]
fn a_step_follows_the_observed_progress() {
    let failed_gate = Validation::GateFailed {
        finding: "gpu.count is 7".to_owned(),
    };
    let table = [
        (Stage::Changing(Change::Draining), None),
        (Stage::Changing(Change::Drained), Some("change")),
        (Stage::Changing(Change::Working), None),
        (Stage::Changing(Change::Arrived), Some("validate")),
        (Stage::Validating(Validation::Gating), None),
        (Stage::Validating(Validation::ResultMissing), None),
        (Stage::Validating(failed_gate), Some("fail")),
        (Stage::Validating(Validation::Passed), Some("readmit")),
        (Stage::Validating(Validation::Readmitting), None),
    ];
    for (stage, act) in table {
        let fleet = Fleet {
            nodes: vec![staged(0, stage.clone())],
            ..fleet(0)
        };
        let plan = plan(&policy(), &fleet, start());
        assert_eq!(acts(&plan, 0).first().copied(), act, "{stage:?}");
    }
    let mut fleet = Fleet {
        nodes: vec![staged(0, Stage::Validating(Validation::Readmitting))],
        ..fleet(0)
    };
    fleet.nodes[0].member.service = Service::Serving;
    assert_eq!(
        plan(&policy(), &fleet, start()).actions[0].act,
        Act::Finish { changed: true }
    );
}

#[test]
fn validation_has_slots_of_its_own() {
    let mut policy = policy();
    policy.budgets.max_validating = Amount::Count(1);
    let mut fleet = fleet(0);
    fleet.nodes = (0..2)
        .map(|number| staged(number, Stage::Changing(Change::Arrived)))
        .collect();
    let plan = plan(&policy, &fleet, start());
    assert_eq!(
        (acts(&plan, 0), why(&plan, 1)),
        (vec!["validate"], Some("max_validating"))
    );
    assert_eq!(mark(&plan, 1), Mark::Changing);
}

#[test]
fn nodes_beyond_the_date_of_the_visit_are_listed() {
    let policy = RolloutPolicy {
        visit_by: Some(start()),
        ..policy()
    };
    let mut fleet = fleet(2);
    fleet.nodes[0] = done(0);
    fleet.nodes[1].condition.held = true;
    let plan = plan(&policy, &fleet, start());
    let overdue: Vec<bool> = plan
        .placements
        .iter()
        .map(|place| place.is_overdue)
        .collect();
    assert_eq!((overdue, why(&plan, 1)), (vec![false, true], Some("held")));
}

#[test]
fn each_rule_and_reason_has_a_sentence() {
    let halt = |reason| Rule::Halted(reason).to_string();
    let failures = HaltReason::Failures {
        failed: 2,
        tolerated: 1,
    };
    let slots = Rule::Slots {
        phase: Phase::Validating,
        in_use: 2,
        max: 2,
    };
    let table = [
        (
            halt(failures),
            "the rollout is halted: failed over the whole run: 2 nodes; tolerated: 1",
        ),
        (
            halt(HaltReason::Canary {
                node: "n1".to_owned(),
            }),
            "the rollout is halted: the canary n1 failed",
        ),
        (
            Rule::Wave { number: 2, open: 1 }.to_string(),
            "wave 2 waits for 1 node",
        ),
        (
            Rule::Canary { open: 3 }.to_string(),
            "the canary waits for 3 nodes",
        ),
        (
            slots.to_string(),
            "every slot for validating nodes is in use: 2 of 2",
        ),
        (
            Rule::Job(job("7", None)).to_string(),
            "job 7 of alice has no end",
        ),
        (
            Rule::Soak { until: start() }.to_string(),
            "the canary soaks until 2026-11-26T08:00:00Z",
        ),
        (
            Because::DrainFailed {
                why: "timeout".to_owned(),
            }
            .to_string(),
            "the drain failed before any change: timeout",
        ),
    ];
    for (sentence, wanted) in table {
        assert_eq!(sentence, wanted);
    }
}
