//! Traps of failures and stalls: 3, 5, 6, 8, 9 and 13.

use super::*;

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
