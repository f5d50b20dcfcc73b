//! Refused effects, obstacles, jobs and drain policies.

use super::*;

/// The code of an obstacle, the effect of the change, and the fact that makes the obstacle.
type Obstacle = (&'static str, Effect, fn(&mut Node));

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
