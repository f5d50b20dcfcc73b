//! Traps of slots and windows: 1, 2, 12 and 14.

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
