//! Traps of halted, superseded and reversed rollouts: 16 and 17.

use super::*;

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
