//! Traps of drains and of the disruption budget: 4, 7, 10, 19 and 20.

use super::*;

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
