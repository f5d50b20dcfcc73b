//! The traps of other engines, by their number in the research on the field. Each test was seen
//! failing without the guard under test.

use super::*;

#[test]
fn trap_01_a_node_is_not_closed_before_its_change_can_start() {
    let mut fleet = fleet(3);
    fleet.nodes[0].jobs = job_for("7", 16);
    fleet.nodes[1].jobs = job_for("8", 15);
    fleet.nodes[2].jobs = Jobs::Known(vec![job("9", None)]);
    let first = plan(&policy(), &fleet, start());
    assert_eq!(
        closed(&first),
        [id(1)],
        "only job 8 ends within the drain lead"
    );
    assert_eq!(
        (acts(&first, 0), acts(&first, 2)),
        (vec!["wait"], vec!["wait"])
    );
    // The holder and the end are named while the node waits.
    fleet.nodes[0].stage = Stage::Waiting;
    let waits = plan(&policy(), &fleet, start());
    let place = &waits.placements[0];
    assert_eq!(place.mark, Mark::Waiting);
    let rule = place.why.as_ref().unwrap();
    assert_eq!((rule.code(), rule.waits_for()), ("job", WaitsFor::Job));
    assert_eq!(
        rule.to_string(),
        "job 7 of alice ends by 2026-11-26T08:16:00Z"
    );
}

#[test]
fn trap_01_a_node_without_a_free_changing_slot_is_not_closed() {
    let mut policy = policy();
    policy.budgets.max_changing = Amount::Count(1);
    let mut fleet = fleet(2);
    fleet.nodes[0] = staged(0, Stage::Changing(Change::Working));
    fleet.nodes[1].stage = Stage::Waiting;
    let plan = plan(&policy, &fleet, start());
    assert!(plan.actions.is_empty(), "{plan:?}");
    assert_eq!(why(&plan, 1), Some("max_changing"));
    assert_eq!(
        plan.placements[1].why.as_ref().unwrap().waits_for(),
        WaitsFor::Slot
    );
}

#[test]
fn trap_01_a_node_whose_last_job_outlives_the_window_is_not_closed() {
    let mut fleet = fleet(1);
    fleet.window = Opening::Open {
        until: Some(start() + minutes(5)),
    };
    fleet.nodes[0].jobs = job_for("7", 6);
    let plan = plan(&policy(), &fleet, start());
    assert_eq!(
        (closed(&plan), why(&plan, 0)),
        (vec![], Some("window_ends"))
    );
}

#[test]
fn trap_02_a_waiting_node_holds_no_changing_slot() {
    let mut policy = policy();
    policy.budgets.max_changing = Amount::Count(1);
    let mut fleet = fleet(3);
    for number in [0, 1] {
        fleet.nodes[number].stage = Stage::Waiting;
        fleet.nodes[number].jobs = job_for("7", 600);
    }
    assert_eq!(closed(&plan(&policy, &fleet, start())), [id(2)]);
}

#[test]
fn trap_02_a_started_node_is_scheduled_before_all_others() {
    let mut policy = policy();
    policy.budgets.max_changing = Amount::Count(2);
    let mut fleet = fleet(2);
    let wrong = Change::Wrong {
        result: "boots r1".to_owned(),
    };
    fleet.nodes.push(staged(2, Stage::Changing(wrong)));
    fleet
        .nodes
        .push(staged(3, Stage::Changing(Change::Drained)));
    let plan = plan(&policy, &fleet, start());
    let order: Vec<_> = plan
        .actions
        .iter()
        .map(|action| (action.node, action.act.code()))
        .collect();
    assert_eq!(
        order,
        [(id(2), "change"), (id(3), "change")],
        "both slots are held by started nodes"
    );
    // Outside of the window, started nodes go on too.
    fleet.window = Opening::Closed { opens: None };
    assert_eq!(acts(&super::plan(&policy, &fleet, start()), 2), ["change"]);
}

#[test]
fn trap_02_a_node_that_waits_for_a_person_holds_no_waiting_slot() {
    let mut policy = policy();
    policy.budgets.max_waiting = Amount::Count(1);
    policy.drain = DrainPolicy::Deadline {
        after_s: 60,
        then: AfterDeadline::Ask,
    };
    let mut fleet = fleet(2);
    fleet.nodes[0].stage = Stage::Waiting;
    fleet.nodes[0].jobs = job_for("7", 600);
    fleet.nodes[1].jobs = job_for("8", 600);
    let plan = plan(&policy, &fleet, start() + minutes(2));
    assert_eq!(
        (why(&plan, 0), acts(&plan, 1)),
        (Some("drain_deadline"), vec!["wait"])
    );
}

#[test]
fn trap_03_a_failure_budget_never_expires() {
    let mut policy = policy();
    policy.failure_budget = FailureBudget {
        count: Some(1),
        percent: None,
    };
    let mut fleet = fleet(10);
    // Nine of ten nodes are finished: beyond any share of progress, and days later.
    for number in 0..7 {
        fleet.nodes[number] = done(number);
    }
    fleet.nodes[7] = staged(7, Stage::Failed);
    assert!(
        closed(&plan(&policy, &fleet, start())).len() == 2,
        "a tolerated failure"
    );
    fleet.nodes[8] = staged(8, Stage::Failed);
    let halt = plan(&policy, &fleet, start() + minutes(100_000));
    assert_eq!(
        halt.verdict,
        Verdict::Halt(HaltReason::Failures {
            failed: 2,
            tolerated: 1
        })
    );
    assert!(halt.actions.is_empty(), "{halt:?}");
    assert_eq!(
        halt.failure_rule,
        "stops at the 2nd failure over the whole run; 2 so far"
    );
}

#[test]
fn trap_03_a_retried_or_departed_failure_still_counts() {
    let mut policy = policy();
    policy.failure_budget = FailureBudget {
        count: Some(1),
        percent: None,
    };
    let mut fleet = fleet(4);
    fleet.nodes[0].failed_before = true;
    fleet.failed_and_left = 1;
    let plan = plan(&policy, &fleet, start());
    assert_eq!(
        plan.verdict,
        Verdict::Halt(HaltReason::Failures {
            failed: 2,
            tolerated: 1
        })
    );
}

#[test]
fn trap_04_a_node_that_changes_its_domain_frees_the_slot_of_the_former() {
    let mut fleet = fleet(3);
    fleet.budget.domains = vec![domain("rack:r1", 1), domain("rack:r2", 1)];
    for node in &mut fleet.nodes {
        node.member.domains = ["rack:r1".to_owned()].into();
    }
    fleet.nodes[0].stage = Stage::Changing(Change::Working);
    fleet.nodes[0].member.service = Service::Taken;
    assert_eq!(closed(&plan(&policy(), &fleet, start())), []);
    fleet.nodes[0].member.domains = ["rack:r2".to_owned()].into();
    assert_eq!(closed(&plan(&policy(), &fleet, start())), [id(1)]);
}

#[test]
fn trap_05_the_observed_state_decides_and_not_the_reported_failure() {
    let wrong = Change::Wrong {
        result: "exit code 143".to_owned(),
    };
    let mut fleet = Fleet {
        nodes: vec![staged(0, Stage::Changing(wrong))],
        ..fleet(0)
    };
    fleet.nodes[0].wrong = vec!["exit code 143".to_owned()];
    assert_eq!(acts(&plan(&policy(), &fleet, start()), 0), ["fail"]);
    fleet.nodes[0].effect = Effect::None;
    assert_eq!(acts(&plan(&policy(), &fleet, start()), 0), ["validate"]);
}

#[test]
fn trap_06_a_failed_node_holds_no_slot_and_a_stall_names_its_cause() {
    let mut policy = policy();
    policy.budgets.max_changing = Amount::Count(1);
    let mut fleet = fleet(2);
    fleet.nodes[0] = staged(0, Stage::Failed);
    fleet.nodes[0].member.service = Service::Out;
    assert_eq!(
        closed(&plan(&policy, &fleet, start())),
        [id(1)],
        "the phase has a free slot"
    );
    // The failed node is out, so a budget of 1 is used up.
    fleet.budget.max_unavailable = Amount::Count(1);
    let later = start() + minutes(4 * 60);
    let stalled = plan(&policy, &fleet, later);
    let Verdict::Stalled { cause, since } = &stalled.verdict else {
        panic!("{stalled:?}");
    };
    assert_eq!(
        cause.to_string(),
        "the pool has 1 of 2 nodes out, and 1 may be out at a time"
    );
    assert_eq!(
        (*since, cause.code(), why(&stalled, 1)),
        (start(), "pool_budget", Some("pool_budget"))
    );
    assert_eq!(
        plan(&policy, &fleet, later - minutes(1)).verdict,
        Verdict::Running
    );
    // A person writes the failed node off until a date.
    fleet.nodes[0].member.written_off_until = Some(later + minutes(1));
    assert_eq!(closed(&plan(&policy, &fleet, later)), [id(1)]);
    assert_eq!(
        closed(&plan(&policy, &fleet, later + minutes(1))),
        [],
        "the date has passed"
    );
}

#[test]
fn trap_06_a_window_a_soak_and_a_freeze_are_no_stall() {
    let later = start() + minutes(10_000);
    let verdict = |fleet: &Fleet, policy: &RolloutPolicy| plan(policy, fleet, later).verdict;
    let mut waits = fleet(2);
    waits.window = Opening::Closed {
        opens: Some(later + minutes(1)),
    };
    assert_eq!(verdict(&waits, &policy()), Verdict::Running);
    waits.window = Opening::Open { until: None };
    waits.frozen_until = Some(later + minutes(1));
    assert_eq!(verdict(&waits, &policy()), Verdict::Running);
    waits.frozen_until = None;
    waits.nodes[0] = done(0);
    let canary = Canary {
        count: Some(1),
        nodes: Vec::new(),
        soak_s: 600_001,
    };
    let soak = RolloutPolicy {
        canary: Some(canary),
        ..policy()
    };
    assert_eq!(verdict(&waits, &soak), Verdict::Running);
    // The time of a closed window is no time without progress.
    let quick = RolloutPolicy {
        stall_after_s: 600,
        ..policy()
    };
    let mut opened = fleet(1);
    opened.budget.max_unavailable = Amount::Count(0);
    let closed = |start: i64, end: i64| Period {
        start: later - minutes(start),
        end: later - minutes(end),
    };
    opened.closed = vec![closed(10_000, 9)];
    assert_eq!(verdict(&opened, &quick), Verdict::Running);
    // Openings shorter than the deadline count together.
    opened.closed = vec![closed(10_000, 2000), closed(1996, 1000), closed(995, 1)];
    assert!(matches!(verdict(&opened, &quick), Verdict::Stalled { .. }));
    opened.closed = vec![closed(10_000, 2000), closed(1996, 1000), closed(996, 1)];
    assert_eq!(verdict(&opened, &quick), Verdict::Running);
    // A window that never opens, and a change that hangs. The change goes on outside the window.
    waits.window = Opening::Closed { opens: None };
    waits.closed = vec![closed(10_000, 0)];
    assert!(matches!(
        verdict(&waits, &policy()),
        Verdict::Stalled { .. }
    ));
    waits.nodes[1].stage = Stage::Changing(Change::Working);
    waits.window = Opening::Open { until: None };
    let Verdict::Stalled { cause, .. } = verdict(&waits, &policy()) else {
        panic!("a change hangs");
    };
    assert_eq!(
        cause.to_string(),
        "n1 is changing since 2026-11-26T08:00:00Z"
    );
}

#[test]
fn trap_07_a_node_drained_by_others_is_left_alone() {
    let mut fleet = fleet(2);
    fleet.nodes[0].member.others_drain = Some("root: fan".to_owned());
    let plan = plan(&policy(), &fleet, start());
    assert_eq!(
        (acts(&plan, 0), why(&plan, 0)),
        (vec![], Some("others_drain"))
    );
    assert_eq!(closed(&plan), [id(1)]);
}

#[test]
fn trap_07_a_drain_by_others_counts_against_the_budget() {
    let mut fleet = fleet(2);
    fleet.budget.max_unavailable = Amount::Count(1);
    fleet.nodes[0].member.others_drain = Some("root: fan".to_owned());
    let plan = plan(&policy(), &fleet, start());
    assert_eq!(
        (closed(&plan), why(&plan, 1)),
        (vec![], Some("pool_budget"))
    );
}

#[test]
fn trap_08_a_terminal_mark_is_left_by_no_plan() {
    let mut fleet = fleet(0);
    // Healthy nodes on the target, and a skipped node that could be changed now.
    for (number, stage) in [Stage::Failed, Stage::Skipped, Stage::Done { changed: true }]
        .into_iter()
        .enumerate()
    {
        let mut node = staged(number, stage);
        node.member.service = Service::Serving;
        fleet.nodes.push(node);
    }
    fleet.nodes[0].effect = Effect::None;
    fleet.nodes[0].runs = Some(TARGET);
    let plan = plan(&policy(), &fleet, start());
    assert!(plan.actions.is_empty(), "{plan:?}");
    assert_eq!(
        (mark(&plan, 0), mark(&plan, 1), mark(&plan, 2)),
        (Mark::Failed, Mark::Skipped, Mark::Done)
    );
    assert_eq!(plan.verdict, Verdict::Done);
}

#[test]
fn trap_09_an_unreadable_node_is_that_nodes_condition_only() {
    let mut fleet = fleet(4);
    fleet.nodes[0].condition.unreadable = Some("row 7: no such state".to_owned());
    fleet.nodes[1].member.service = Service::Unknown;
    fleet.nodes[2] = staged(2, Stage::Changing(Change::Drained));
    fleet.nodes[2].condition.unreadable = Some("row 9".to_owned());
    let plan = plan(&policy(), &fleet, start());
    assert_eq!(
        [why(&plan, 0), why(&plan, 1), why(&plan, 2)],
        [Some("unreadable"); 3]
    );
    let acted: Vec<_> = plan.actions.iter().map(|action| action.node).collect();
    assert_eq!(acted, [id(3)]);
    // Silence counts as out.
    fleet.budget.max_unavailable = Amount::Count(2);
    assert_eq!(
        why(&super::plan(&policy(), &fleet, start()), 3),
        Some("pool_budget")
    );
}

#[test]
fn trap_10_every_node_that_is_out_counts_for_any_reason() {
    // Four nodes, of which two must serve. A crashed node and a node in repair are out already.
    let mut fleet = fleet(4);
    fleet.budget.max_unavailable = Amount::Count(2);
    fleet.nodes[0] = out(node(0));
    fleet.nodes[0].condition.busy = Some("recovery".to_owned());
    assert_eq!(
        closed(&plan(&policy(), &fleet, start())),
        [id(1)],
        "one slot is left"
    );
    fleet.neighbours.push(Member {
        service: Service::Out,
        ..member(9)
    });
    let plan = plan(&policy(), &fleet, start());
    assert_eq!(
        (closed(&plan), why(&plan, 1)),
        (vec![], Some("pool_budget"))
    );
}

#[test]
fn trap_10_the_second_of_two_plans_is_refused_at_its_commit() {
    // Two rollouts plan on the same facts, and a single slot is left.
    let mut first = fleet(1);
    first.budget.max_unavailable = Amount::Count(1);
    first.neighbours = vec![member(1)];
    let mut second = Fleet {
        nodes: vec![node(1)],
        neighbours: vec![member(0)],
        ..first.clone()
    };
    assert_eq!(closed(&plan(&policy(), &first, start())), [id(0)]);
    assert_eq!(closed(&plan(&policy(), &second, start())), [id(1)]);
    // The first commit takes the slot; the executor of the second opens the ledger again.
    second.neighbours[0].service = Service::Taken;
    let ledger = Ledger::open(&second.budget, second.members(), start());
    let refusal = ledger.check(&second.nodes[0].member).unwrap_err();
    assert_eq!((refusal.out, refusal.max), (1, 1));
}

#[test]
fn trap_12_slots_are_taken_singly_within_a_plan() {
    let mut fleet = fleet(10);
    fleet.budget.max_unavailable = Amount::Percent(25);
    fleet.budget.domains = vec![domain("rack:r1", 1)];
    for node in &mut fleet.nodes[..5] {
        node.member.domains = ["rack:r1".to_owned()].into();
    }
    let plan = plan(&policy(), &fleet, start());
    assert_eq!(closed(&plan), [id(0), id(5)], "25% of 10 rounds down to 2");
    assert_eq!(
        (why(&plan, 1), why(&plan, 6)),
        (Some("domain_budget"), Some("pool_budget"))
    );
    let mut policy = policy();
    policy.budgets.max_changing = Amount::Count(1);
    assert_eq!(closed(&super::plan(&policy, &fleet, start())), [id(0)]);
}

#[test]
fn trap_13_the_same_wrong_result_twice_is_failed() {
    let wrong = |result: &str, before: &[&str]| {
        let change = Change::Wrong {
            result: result.to_owned(),
        };
        let mut node = staged(0, Stage::Changing(change));
        node.wrong = before.iter().map(|&text| text.to_owned()).collect();
        let fleet = Fleet {
            nodes: vec![node],
            ..fleet(0)
        };
        let plan = plan(&policy(), &fleet, start());
        let [action] = &plan.actions[..] else {
            panic!("{plan:?}");
        };
        (action.act.code(), action.because.code())
    };
    assert_eq!(wrong("boots r1", &[]), ("change", "wrong_result"));
    assert_eq!(
        wrong("boots r1", &["boots r1"]),
        ("fail", "same_result_twice")
    );
    assert_eq!(wrong("no boot", &["boots r1"]), ("change", "wrong_result"));
    assert_eq!(
        wrong("gpu lost", &["boots r1", "no boot"]),
        ("fail", "too_many_attempts")
    );
}

#[test]
fn trap_14_the_effective_concurrency_and_its_rule_are_shown() {
    let mut policy = policy();
    policy.budgets.max_changing = Amount::Count(2);
    let mut fleet = fleet(4);
    fleet.budget.domains = vec![domain("rack:r1", 1)];
    for node in &mut fleet.nodes {
        node.member.domains = ["rack:r1".to_owned()].into();
        node.jobs = job_for("7", 600);
    }
    let plan = plan(&policy, &fleet, start());
    assert_eq!(
        (plan.concurrency.now, plan.concurrency.max),
        (0, 1),
        "2 slots act as 1"
    );
    let rule = plan.concurrency.bound_by.unwrap();
    assert_eq!(
        (rule.code(), rule.to_string().as_str()),
        (
            "domain_budget",
            "the failure domain rack:r1 has 1 of 4 nodes out, and 1 may be out at a time"
        )
    );
    fleet.budget.domains.clear();
    let plan = super::plan(&policy, &fleet, start());
    assert_eq!(
        (
            plan.concurrency.max,
            plan.concurrency.bound_by.unwrap().code()
        ),
        (2, "max_changing")
    );
    // A node of another domain changes beside the first, although the second is refused.
    policy.budgets.max_changing = Amount::Count(3);
    fleet.budget.domains = vec![domain("rack:r1", 1)];
    fleet.nodes.truncate(3);
    fleet.nodes[2].member.domains.clear();
    let plan = super::plan(&policy, &fleet, start());
    assert_eq!(
        (
            plan.concurrency.max,
            plan.concurrency.bound_by.unwrap().code()
        ),
        (2, "domain_budget")
    );
}

#[test]
fn trap_16_a_superseded_rollout_cancels_and_the_worst_goes_first() {
    let mut old = fleet(4);
    old.control = Control::Superseded;
    old.nodes[1].stage = Stage::Waiting;
    old.nodes[2] = staged(2, Stage::Changing(Change::Draining));
    old.nodes[3] = staged(3, Stage::Changing(Change::Arrived));
    let plan_old = plan(&policy(), &old, start());
    assert_eq!(
        (acts(&plan_old, 0), acts(&plan_old, 1)),
        (vec!["skip"], vec!["skip"])
    );
    assert_eq!(
        (acts(&plan_old, 2), acts(&plan_old, 3)),
        (vec!["give_back"], vec!["validate"])
    );

    let mut new = fleet(4);
    new.target = RevisionNumber(3);
    new.supersedes = Some(TARGET);
    new.nodes[2].going_to = Some(TARGET);
    new.nodes[3].runs = Some(TARGET);
    new.nodes[3].jobs = job_for("7", 10);
    let plan_new = plan(&policy(), &new, start());
    assert_eq!(closed(&plan_new), [id(2), id(3), id(0), id(1)]);
}

#[test]
fn trap_17_a_halt_wins_over_every_intent() {
    let mut fleet = fleet(8);
    fleet.control = Control::Halted(HaltReason::Person("smoke".to_owned()));
    fleet.promoted = true;
    fleet.nodes[1].stage = Stage::Waiting;
    fleet.nodes[2] = staged(2, Stage::Changing(Change::Draining));
    fleet.nodes[3] = staged(3, Stage::Changing(Change::Drained));
    let wrong = Change::Wrong {
        result: "boots r1".to_owned(),
    };
    fleet.nodes[4] = staged(4, Stage::Changing(wrong));
    fleet.nodes[5] = staged(5, Stage::Changing(Change::Arrived));
    fleet.nodes[6] = staged(6, Stage::Validating(Validation::Passed));
    fleet.nodes[7].requeue_agreed = true;
    fleet.nodes[7].jobs = job_for("7", 600);
    let plan = plan(&policy(), &fleet, start());
    assert!(
        plan.actions.iter().all(|action| !action.act.starts()),
        "{plan:?}"
    );
    assert_eq!(
        (why(&plan, 0), why(&plan, 4)),
        (Some("halted"), Some("halted"))
    );
    // Capacity is given back all the same.
    let given: Vec<_> = (1..=6).map(|number| acts(&plan, number)).collect();
    assert_eq!(
        given,
        [
            vec!["give_back"],
            vec!["give_back"],
            vec!["give_back"],
            vec![],
            vec!["validate"],
            vec!["readmit"]
        ]
    );
}

#[test]
fn trap_17_a_rollback_starts_from_a_sick_revision() {
    // Every node of the bad revision is out, and the budget is exceeded.
    let mut fleet = fleet(3);
    fleet.target = BEFORE;
    fleet.budget.max_unavailable = Amount::Count(1);
    for node in &mut fleet.nodes {
        node.runs = Some(TARGET);
        node.member.service = Service::Out;
    }
    let plan = plan(&policy(), &fleet, start());
    assert_eq!(closed(&plan).len(), 3);
    assert!(plan.actions.iter().all(|action| matches!(
        action.act,
        Act::Close {
            takes_slot: false,
            ..
        }
    )));
}

#[test]
fn trap_17_a_standing_reason_halts_again_after_a_resume() {
    let mut fleet = fleet(2);
    fleet.signals = vec!["loss of 3 nodes in 5 minutes".to_owned()];
    let plan = plan(&policy(), &fleet, start());
    let Verdict::Halt(reason) = &plan.verdict else {
        panic!("{plan:?}");
    };
    assert_eq!((reason.code(), plan.actions.len()), ("signal", 0));
}

#[test]
fn trap_19_a_failed_drain_gives_the_node_back_at_once() {
    let failed = Stage::Changing(Change::DrainFailed {
        why: "timeout".to_owned(),
    });
    let mut fleet = Fleet {
        nodes: vec![staged(0, failed)],
        ..fleet(0)
    };
    let first = plan(&policy(), &fleet, start());
    let not_before = start() + minutes(10);
    assert_eq!(first.actions[0].act, Act::GiveBack { not_before });
    assert_eq!(
        (mark(&first, 0), first.actions[0].because.code()),
        (Mark::NotBegun, "drain_failed")
    );
    // The same failure again: failed, and given back too.
    fleet.nodes[0].wrong = vec!["timeout".to_owned()];
    let second = plan(&policy(), &fleet, start());
    assert_eq!(second.actions[0].act, Act::Fail { give_back: true });
    // The pause holds: the drain is not repeated at once.
    fleet.nodes[0] = node(0);
    fleet.nodes[0].condition.deferred_until = Some(not_before);
    assert_eq!(why(&plan(&policy(), &fleet, start()), 0), Some("deferred"));
    assert_eq!(closed(&plan(&policy(), &fleet, not_before)), [id(0)]);
}

#[test]
fn trap_20_a_cancelled_drain_fences_the_change() {
    let cancelled = staged(0, Stage::Changing(Change::DrainCancelled));
    let fleet = Fleet {
        nodes: vec![cancelled],
        ..fleet(0)
    };
    let plan = plan(&policy(), &fleet, start());
    assert_eq!(
        (acts(&plan, 0), mark(&plan, 0)),
        (vec!["skip"], Mark::Skipped)
    );
    assert_eq!(plan.actions[0].because.code(), "drain_cancelled");
}

#[test]
fn trap_20_a_node_that_serves_again_is_not_changed() {
    let wrong = Change::Wrong {
        result: "boots r1".to_owned(),
    };
    for change in [Change::Draining, Change::Drained, wrong] {
        let mut fleet = Fleet {
            nodes: vec![staged(0, Stage::Changing(change))],
            ..fleet(0)
        };
        fleet.nodes[0].member.service = Service::Serving;
        let plan = plan(&policy(), &fleet, start());
        assert_eq!(acts(&plan, 0), ["skip"], "{fleet:?}");
        assert_eq!(plan.actions[0].because.code(), "drain_cancelled");
    }
}

#[test]
fn trap_20_a_used_up_budget_gives_capacity_back() {
    let mut fleet = fleet(4);
    fleet.budget.max_unavailable = Amount::Count(1);
    fleet.nodes[0] = staged(0, Stage::Changing(Change::Arrived));
    fleet.nodes[1] = staged(1, Stage::Validating(Validation::Passed));
    fleet.nodes[2] = staged(
        2,
        Stage::Changing(Change::DrainFailed {
            why: "timeout".to_owned(),
        }),
    );
    let plan = plan(&policy(), &fleet, start());
    let codes: Vec<_> = plan
        .actions
        .iter()
        .map(|action| action.act.code())
        .collect();
    assert_eq!(codes, ["validate", "readmit", "give_back"]);
}
