//! Canary, waves, order, drain policies, refused effects, membership.

use super::*;

/// The code of an obstacle, the effect of the change, and the fact that makes the obstacle.
type Obstacle = (&'static str, Effect, fn(&mut Node));

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
fn an_effect_beyond_the_policy_is_refused_and_never_done() {
    let mut fleet = fleet(2);
    fleet.nodes[0].effect = Effect::Reinstall;
    // The effect may also rise while the node drains.
    fleet.nodes[1] = staged(1, Stage::Changing(Change::Drained));
    fleet.nodes[1].effect = Effect::Reinstall;
    let refused = plan(&policy(), &fleet, start());
    assert_eq!(
        (acts(&refused, 0), acts(&refused, 1)),
        (vec!["skip"], vec!["give_back"])
    );
    let sentence = "the node needs a reinstall, and at most reboot is allowed";
    assert!(
        refused
            .actions
            .iter()
            .all(|action| action.because.to_string() == sentence)
    );
    let policy = RolloutPolicy {
        allow: Allow::Reinstall,
        ..policy()
    };
    let allowed = plan(&policy, &fleet, start());
    assert_eq!(
        (acts(&allowed, 0), acts(&allowed, 1)),
        (vec!["close"], vec!["change"])
    );
    fleet.nodes[0].effect = Effect::Wipe;
    assert_eq!(acts(&plan(&policy, &fleet, start()), 0), ["skip"]);
}

#[test]
fn each_obstacle_keeps_the_node_and_gives_a_waiting_node_back() {
    let later = start() + minutes(1);
    let obstacles: [Obstacle; 7] = [
        ("held", Effect::InPlace, |node| node.condition.held = true),
        ("protected", Effect::Reboot, |node| {
            node.condition.protected = true
        }),
        ("adopted", Effect::Reinstall, |node| {
            node.condition.adopted = true
        }),
        ("busy", Effect::InPlace, |node| {
            node.condition.busy = Some("recovery".to_owned())
        }),
        ("joining", Effect::Reboot, |node| {
            node.member.service = Service::Joining
        }),
        ("deferred", Effect::Reboot, |node| {
            node.condition.deferred_until = Some(start() + minutes(1))
        }),
        ("others_drain", Effect::Reboot, |node| {
            node.member.others_drain = Some("root".to_owned())
        }),
    ];
    let policy = RolloutPolicy {
        allow: Allow::Reinstall,
        ..policy()
    };
    for (code, effect, set) in obstacles {
        let mut fleet = fleet(1);
        fleet.nodes[0].effect = effect;
        set(&mut fleet.nodes[0]);
        assert_eq!(why(&plan(&policy, &fleet, start()), 0), Some(code));
        fleet.nodes[0].stage = Stage::Waiting;
        assert_eq!(
            acts(&plan(&policy, &fleet, start()), 0),
            ["give_back"],
            "{code}"
        );
        let resumes = plan(&policy, &fleet, later).actions[0].act.code();
        assert_eq!(resumes == "close", code == "deferred", "{code}");
    }
    let mut fleet = fleet(2);
    fleet.nodes[0].condition.protected = true;
    fleet.nodes[0].effect = Effect::InPlace;
    fleet.nodes[1].condition.adopted = true;
    assert_eq!(
        closed(&plan(&policy, &fleet, start())).len(),
        2,
        "no disk is written, no node stopped"
    );
}

#[test]
fn a_job_that_cannot_be_requeued_keeps_the_node_open_and_asks_a_person() {
    let drain = DrainPolicy::Deadline {
        after_s: 3600,
        then: AfterDeadline::Requeue,
    };
    let mut policy = RolloutPolicy { drain, ..policy() };
    policy.budgets.max_waiting = Amount::Count(1);
    let mut fleet = fleet(2);
    fleet.nodes[0].stage = Stage::Waiting;
    let interactive = Job {
        requeues: false,
        ..job("8", None)
    };
    fleet.nodes[0].jobs = Jobs::Known(vec![job("7", None), interactive]);
    fleet.nodes[1].jobs = job_for("9", 600);
    let before = plan(&policy, &fleet, start() + minutes(59));
    assert_eq!(why(&before, 0), Some("job"));
    let after = plan(&policy, &fleet, start() + minutes(60));
    let rule = after.placements[0].why.as_ref().unwrap();
    assert_eq!(
        (acts(&after, 0), rule.code(), rule.waits_for()),
        (vec![], "cannot_requeue", WaitsFor::Person)
    );
    assert_eq!(
        rule.to_string(),
        "job 8 of alice cannot be requeued: a person ends the \
         job or skips the node"
    );
    assert!(!rule.without_holders().to_string().contains("alice"));
    assert_eq!(acts(&after, 1), ["wait"], "no waiting slot is held");
}

#[test]
fn drain_policies_end_a_wait_at_the_deadline() {
    let wait = |then| {
        let drain = DrainPolicy::Deadline {
            after_s: 3600,
            then,
        };
        let policy = RolloutPolicy { drain, ..policy() };
        let mut fleet = fleet(1);
        fleet.nodes[0].stage = Stage::Waiting;
        fleet.nodes[0].jobs = Jobs::Known(vec![job("7", None)]);
        let before = plan(&policy, &fleet, start() + minutes(59));
        assert_eq!((before.actions.len(), why(&before, 0)), (0, Some("job")));
        plan(&policy, &fleet, start() + minutes(60))
    };
    let requeue = wait(AfterDeadline::Requeue);
    assert_eq!(
        requeue.actions[0].act,
        Act::Close {
            takes_slot: true,
            requeue: true
        }
    );
    assert_eq!(acts(&wait(AfterDeadline::Skip), 0), ["skip"]);
    let ask = wait(AfterDeadline::Ask);
    let rule = ask.placements[0].why.as_ref().unwrap();
    assert_eq!(
        (rule.code(), rule.waits_for()),
        ("drain_deadline", WaitsFor::Person)
    );
    let mut fleet = fleet(1);
    fleet.nodes[0].jobs = Jobs::Known(vec![job("7", None)]);
    fleet.nodes[0].requeue_agreed = true;
    let agreed = plan(&policy(), &fleet, start());
    assert_eq!(
        agreed.actions[0].act,
        Act::Close {
            takes_slot: true,
            requeue: true
        }
    );
    let interactive = |ends| Job {
        requeues: false,
        ..job("8", ends)
    };
    let near = Some(start() + minutes(10));
    fleet.nodes[0].jobs = Jobs::Known(vec![job("7", None), interactive(near)]);
    let agreed = plan(&policy(), &fleet, start());
    assert_eq!(acts(&agreed, 0), ["wait"], "job 8 ends soon by itself");
    fleet.nodes[0].jobs = Jobs::Known(vec![job("7", None)]);
    for (minute, expected) in [(15, Some("window_ends")), (16, None)] {
        let until = Some(start() + minutes(minute));
        fleet.window = Opening::Open { until };
        let plan = plan(&policy(), &fleet, start());
        assert_eq!(why(&plan, 0), expected, "no job ends for nothing");
    }
    fleet.nodes[0].jobs = Jobs::Unknown;
    let unknown = plan(&policy(), &fleet, start());
    assert_eq!(
        (unknown.actions.len(), why(&unknown, 0)),
        (0, Some("jobs_unknown")),
        "unseen jobs are not ended"
    );
}

#[test]
fn nodes_of_a_job_are_taken_together_when_the_job_ends() {
    let mut policy = policy();
    policy.order = vec![OrderKey::IdleFirst];
    policy.budgets.max_changing = Amount::Count(2);
    let mut fleet = fleet(4);
    for (number, id) in [(0, "8"), (1, "7"), (2, "8"), (3, "7")] {
        fleet.nodes[number].jobs = job_for(id, 10);
        fleet.nodes[number].stage = Stage::Waiting;
    }
    assert_eq!(closed(&plan(&policy, &fleet, start())), [id(1), id(3)]);
}

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
fn a_train_is_ordered_with_the_change() {
    let policy = RolloutPolicy {
        train: true,
        ..policy()
    };
    let fleet = Fleet {
        nodes: vec![staged(0, Stage::Changing(Change::Drained))],
        ..fleet(0)
    };
    let plan = plan(&policy, &fleet, start());
    assert_eq!(
        plan.actions[0].act,
        Act::Change {
            effect: Effect::Reboot,
            train: true
        }
    );
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
