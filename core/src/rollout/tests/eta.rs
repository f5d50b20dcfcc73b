//! The estimated end: its spread, its assumptions, and the cases without an estimate.

use proptest::prelude::*;

use super::super::rehearsal::{Pace, rehearse};
use super::generated::World;
use super::*;

/// A policy by which two nodes change at a time.
fn by_twos() -> RolloutPolicy {
    let mut policy = policy();
    policy.budgets.max_changing = Amount::Count(2);
    policy
}

/// Minutes from the start to the early and the late end.
fn spread(policy: &RolloutPolicy, fleet: &Fleet, windows: &Calendar) -> (i64, i64) {
    let eta = estimate(policy, fleet, windows, start());
    let Eta::Ends(Estimate { early, late, .. }) = eta else {
        panic!("{eta:?}");
    };
    let since = |end: Timestamp| end.duration_since(start()).as_secs() / 60;
    (since(early), since(late))
}

fn unknown(policy: &RolloutPolicy, fleet: &Fleet) -> String {
    match estimate(policy, fleet, &Calendar::default(), start()) {
        Eta::Unknown { why } => why,
        eta @ (Eta::Ended | Eta::Ends(_)) => panic!("{eta:?}"),
    }
}

fn measured(count: usize, minutes: &[u32]) -> Fleet {
    Fleet {
        durations_s: minutes.iter().map(|minutes| minutes * 60).collect(),
        ..fleet(count)
    }
}

#[test]
fn measured_durations_and_the_concurrency_give_the_spread() {
    let always = Calendar::default();
    // Two slots for the change, which is half of a node's time: three pairs, one after another.
    let fleet = measured(6, &[20, 40]);
    assert_eq!(spread(&by_twos(), &fleet, &always), (40, 80));
    let fleet = measured(6, &[20, 20, 20, 20, 40, 40, 40, 40, 40, 80]);
    assert_eq!(spread(&by_twos(), &fleet, &always), (40, 80));
    // The waves end before the next begins.
    let waves = RolloutPolicy {
        waves: Waves::Sizes(vec![Amount::Count(2), Amount::Count(2)]),
        ..policy()
    };
    let fleet = measured(6, &[20]);
    assert_eq!(spread(&waves, &fleet, &always), (60, 60));
}

#[test]
fn without_a_measurement_the_assumption_is_stated() {
    let mut fleet = fleet(2);
    fleet.nodes[1].effect = Effect::Reinstall;
    let policy = RolloutPolicy {
        allow: Allow::Reinstall,
        ..policy()
    };
    assert_eq!(spread(&policy, &fleet, &Calendar::default()), (30, 120));
    let Eta::Ends(estimate) = estimate(&policy, &fleet, &Calendar::default(), start()) else {
        panic!("an estimate");
    };
    assert_eq!(estimate.left, 2);
    assert_eq!(
        estimate.assumes,
        [
            "No time of this run is known, and the effect reboot is assumed to take 15 to 60 minutes.",
            "No time of this run is known, and the effect reinstall is assumed to take 30 to 120 \
             minutes.",
            "Half of the time of a node is the change, and half is the gates.",
            "Nodes without jobs get no new job before their change.",
            "No other node fails, and nodes out of service stay out.",
        ]
    );
}

#[test]
fn job_ends_soak_windows_and_freezes_move_the_end() {
    let always = Calendar::default();
    let mut busy = measured(1, &[20]);
    busy.nodes[0].jobs = job_for("7", 600);
    // Early, the job ends after half of its time; the node is closed within the drain lead.
    assert_eq!(spread(&policy(), &busy, &always), (320, 620));
    let canary = RolloutPolicy {
        canary: Some(Canary {
            count: Some(1),
            nodes: Vec::new(),
            soak_s: 3600,
        }),
        ..policy()
    };
    assert_eq!(spread(&canary, &measured(2, &[20]), &always), (100, 100));
    let nightly = |freezes| {
        Calendar::from(MaintenanceWindow {
            time_zone: "UTC".to_owned(),
            weekly: vec![Weekly {
                days: Day::ALL.to_vec(),
                start: "10:00:00".parse().unwrap(),
                length_min: 60,
            }],
            freezes,
        })
    };
    assert_eq!(
        spread(&policy(), &measured(1, &[20]), &nightly(Vec::new())),
        (140, 140)
    );
    let today = Freeze {
        first: "2026-11-26".parse().unwrap(),
        last: "2026-11-26".parse().unwrap(),
        reason: String::new(),
    };
    let frozen = nightly(vec![today]);
    assert_eq!(
        spread(&policy(), &measured(1, &[20]), &frozen),
        (24 * 60 + 140, 24 * 60 + 140)
    );
    let Eta::Ends(estimate) = estimate(&canary, &busy, &frozen, start()) else {
        panic!("an estimate");
    };
    for wanted in [
        "A node takes 20 to 20 minutes from closed to done, measured on 1 node of this run.",
        "Jobs end between half of their time left and their limit.",
        "Nodes are closed in the maintenance windows only.",
        "The canary passes and soaks for 60 minutes.",
    ] {
        assert!(
            estimate.assumes.iter().any(|text| text == wanted),
            "{estimate:?}"
        );
    }
}

#[test]
fn the_binding_rule_is_stated() {
    let eta = estimate(
        &by_twos(),
        &measured(6, &[20]),
        &Calendar::default(),
        start(),
    );
    let Eta::Ends(estimate) = eta else {
        panic!("{eta:?}");
    };
    let wanted = "Now at most 2 nodes can change at a time: every slot for changing nodes is in \
                  use: 2 of 2.";
    assert!(
        estimate.assumes.iter().any(|text| text == wanted),
        "{estimate:?}"
    );
}

#[test]
fn started_nodes_count_with_the_rest_of_their_time() {
    let mut fleet = measured(0, &[20]);
    let mut working = staged(0, Stage::Changing(Change::Working));
    working.since = start() - minutes(6);
    let mut gating = staged(1, Stage::Validating(Validation::Gating));
    gating.since = start() - minutes(60);
    fleet.nodes = vec![working, gating];
    fleet.planned = 2;
    assert_eq!(spread(&policy(), &fleet, &Calendar::default()), (14, 14));
    fleet.nodes[0] = staged(0, Stage::Changing(Change::Draining));
    fleet.nodes[0].jobs = job_for("7", 10);
    assert_eq!(spread(&policy(), &fleet, &Calendar::default()), (25, 30));
    for node in &mut fleet.nodes {
        node.stage = Stage::Done { changed: true };
    }
    let eta = estimate(&policy(), &fleet, &Calendar::default(), start());
    assert_eq!(eta, Eta::Ended);
}

#[test]
fn a_drain_deadline_ends_the_wait_of_the_estimate() {
    let policy = RolloutPolicy {
        drain: DrainPolicy::Deadline {
            after_s: 7200,
            then: AfterDeadline::Requeue,
        },
        ..policy()
    };
    let mut fleet = measured(1, &[20]);
    fleet.nodes[0].jobs = Jobs::Known(vec![job("7", None)]);
    assert_eq!(spread(&policy, &fleet, &Calendar::default()), (140, 140));
}

#[test]
fn an_unknown_end_is_reported_as_unknown() {
    let mut halted = fleet(2);
    halted.control = Control::Halted(HaltReason::Person("smoke".to_owned()));
    assert_eq!(
        unknown(&policy(), &halted),
        "the rollout is halted: halted by a person: smoke"
    );
    let mut signal = fleet(2);
    signal.signals = vec!["loss of nodes".to_owned()];
    assert_eq!(
        unknown(&policy(), &signal),
        "the rollout is halted: loss of nodes"
    );
    let mut superseded = fleet(2);
    superseded.control = Control::Superseded;
    assert_eq!(
        unknown(&policy(), &superseded),
        "a newer rollout has taken over"
    );
    let mut held = fleet(2);
    held.nodes[1].condition.held = true;
    assert_eq!(unknown(&policy(), &held), "n1: the claim is on hold");
    let mut endless = fleet(2);
    endless.nodes[1].jobs = Jobs::Known(vec![job("7", None)]);
    assert_eq!(
        unknown(&policy(), &endless),
        "n1: job 7 of alice has no end"
    );
    let mut busy = fleet(2);
    busy.nodes[1].condition.busy = Some("recovery".to_owned());
    assert_eq!(
        unknown(&policy(), &busy),
        "n1: another operation has the node: recovery"
    );
    let mut missing = fleet(1);
    missing.nodes[0] = staged(0, Stage::Validating(Validation::ResultMissing));
    assert_eq!(unknown(&policy(), &missing), "n0: a gate has no result");
    let mut shut = fleet(1);
    shut.since = start() - minutes(600);
    shut.nodes[0].since = shut.since;
    shut.budget.max_unavailable = Amount::Count(0);
    assert_eq!(
        unknown(&policy(), &shut),
        "no progress since 2026-11-25T22:00:00Z: the pool has 0 of 1 nodes out, and 0 may be out at \
         a time"
    );
}

#[test]
fn a_failure_that_would_halt_the_rollout_leaves_the_end_unknown() {
    let mut strict = policy();
    strict.failure_budget.count = Some(0);
    strict.budgets.max_changing = Amount::Count(1);
    let mut fleet = fleet(3);
    let finding = "gpu.count is 7".to_owned();
    fleet.nodes[0] = staged(0, Stage::Validating(Validation::GateFailed { finding }));
    assert_eq!(
        unknown(&strict, &fleet),
        "the rollout is halted: failed over the whole run: 1 node; tolerated: 0"
    );
}

#[test]
fn units_are_rehearsed_as_a_whole() {
    let mut fleet = measured(4, &[20]);
    fleet.budget.domains = vec![whole("a", 2), whole("b", 2)];
    fleet.budget.max_unavailable = Amount::Count(3);
    for (number, node) in fleet.nodes.iter_mut().enumerate() {
        node.member.domains = [["a", "b"][number / 2].to_owned()].into();
    }
    assert_eq!(spread(&policy(), &fleet, &Calendar::default()), (40, 40));
}

#[test]
fn an_estimate_has_a_bound() {
    let pace = Pace {
        durations_s: [(Effect::Reboot, 1200)].into(),
        jobs_percent: 100,
    };
    let mut slow = policy();
    slow.budgets.max_changing = Amount::Count(1);
    let run = |most_work, fleet: &Fleet| {
        rehearse(
            &slow,
            fleet,
            &Calendar::default(),
            &pace,
            most_work,
            start(),
        )
    };
    let many = "the rollout has too many steps for an estimate".to_owned();
    assert_eq!(run(300, &fleet(30)), Err(many));
    assert_eq!(run(30_000, &fleet(30)), Ok(start() + minutes(310)));
    // Windows of 15 minutes a day admit a single node each.
    let seldom = MaintenanceWindow {
        time_zone: "UTC".to_owned(),
        weekly: vec![Weekly {
            days: vec![Day::Monday],
            start: "10:00:00".parse().unwrap(),
            length_min: 15,
        }],
        freezes: Vec::new(),
    };
    let long = rehearse(
        &slow,
        &fleet(200),
        &seldom.into(),
        &pace,
        1_000_000,
        start(),
    );
    assert_eq!(long, Err("the rollout takes more than a year".to_owned()));
}

#[test]
fn ends_of_many_jobs_are_planned_together() {
    let pace = Pace {
        durations_s: [(Effect::Reboot, 1200)].into(),
        jobs_percent: 100,
    };
    let canary = RolloutPolicy {
        canary: Some(Canary {
            count: Some(1),
            nodes: Vec::new(),
            soak_s: 60_000,
        }),
        ..policy()
    };
    // While the canary soaks, 199 jobs end at 199 times.
    let mut fleet = fleet(200);
    for (number, node) in fleet.nodes.iter_mut().enumerate().skip(1) {
        node.jobs = job_for("7", 10 + 5 * number as i64);
    }
    let most_work = 200 * 150;
    let end = rehearse(
        &canary,
        &fleet,
        &Calendar::default(),
        &pace,
        most_work,
        start(),
    );
    assert_eq!(end, Ok(start() + minutes(1040)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// A disturbed fleet has an ordered spread or a reason, and so has the fleet once calm.
    #[test]
    fn an_estimate_has_an_ordered_spread_or_a_reason(count in 1..12usize, seed in any::<u64>()) {
        let mut world = World::new(count, seed);
        for _ in 0..20 {
            world.tick();
        }
        for is_calm in [false, true] {
            if is_calm {
                world.calm();
            }
            let last = world.rollouts.len() - 1;
            world.load(last);
            let (fleet, now) = (&world.rollouts[last], world.now);
            let left = fleet.nodes.iter().filter(|node| !node.stage.mark().is_terminal());
            match estimate(&world.policy, fleet, &world.calendar, now) {
                Eta::Ended => prop_assert_eq!(left.count(), 0),
                Eta::Ends(estimate) => {
                    prop_assert!(now <= estimate.early && estimate.early <= estimate.late);
                    prop_assert!(left.count() as u32 == estimate.left && estimate.left > 0);
                }
                Eta::Unknown { why } => prop_assert!(!why.is_empty()),
            }
        }
    }
}
