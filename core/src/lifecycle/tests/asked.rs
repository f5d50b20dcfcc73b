//! Requests on a resting node: power and gates. A new installation leaves the resting state.

use super::*;
use crate::gates::{Evidence, GateResult, Stage, Verdict};

const RESTS: [State; 2] = [State::Quarantined, State::Maintenance];

fn resting(state: State, action: Action) -> Snapshot {
    Snapshot {
        action: Some(action),
        ..node(state)
    }
}

fn held(state: State, action: Action) -> Snapshot {
    Snapshot {
        claim: Some(ClaimState::Bound),
        installed: true,
        unsanitised: true,
        ..resting(state, action)
    }
}

#[test]
fn power_is_switched_where_nobody_works() {
    for (action, step_of) in [
        (Action::PowerOn, Step::PowerOn),
        (Action::PowerOff, Step::PowerOff),
        (Action::PowerCycle, Step::PowerCycle),
    ] {
        for state in RESTS {
            let mut asked = resting(state, action);
            assert_eq!(
                decide(&asked, now()),
                Decision::Start(step_of),
                "{state} {action}"
            );
            asked.steps = vec![step(step_of, StepStatus::Succeeded)];
            assert!(matches!(decide(&asked, now()), Decision::Granted(_)));
            asked.steps = vec![step(
                step_of,
                StepStatus::Failed {
                    at: now(),
                    failure: failure(false),
                },
            )];
            assert!(matches!(decide(&asked, now()), Decision::Refused(_)));
            // A second request in the same stay runs the step again.
            asked.steps = vec![StepView {
                current: false,
                ..step(step_of, StepStatus::Succeeded)
            }];
            assert_eq!(decide(&asked, now()), Decision::Retry(step_of, now()));
            // A step of an earlier request is stopped first.
            asked.steps = vec![StepView {
                current: false,
                ..step(step_of, StepStatus::Running { waiting_for: None })
            }];
            assert_eq!(decide(&asked, now()), Decision::Cancel(step_of));
        }
        for state in [
            State::InService,
            State::Draining,
            State::Validating,
            State::Imaging,
            State::Wiping,
        ] {
            assert!(!table::action_allowed(state, action), "{state} {action}");
        }
    }
    // A claimable node stays off.
    assert!(!table::action_allowed(State::Available, Action::PowerOn));
}

#[test]
fn a_machine_is_not_started_from_disks_that_may_be_anybodys() {
    for action in [Action::PowerOn, Action::PowerCycle] {
        let mut asked = resting(State::Quarantined, action);
        asked.unsanitised = true;
        assert!(
            matches!(decide(&asked, now()), Decision::Refused(_)),
            "{action}"
        );
        // The owner's own system may be started.
        assert!(
            matches!(
                decide(&held(State::Quarantined, action), now()),
                Decision::Start(_)
            ),
            "{action}"
        );
        asked.unsanitised = false;
        asked.power_person = Some("remote hands".into());
        let Decision::Refused(why) = decide(&asked, now()) else {
            panic!("nothing to act with")
        };
        assert_eq!(
            why,
            "the node has no BMC: remote hands must press the power button"
        );
    }
}

#[test]
fn what_starts_a_machine_needs_its_share_of_the_racks_power() {
    let mut asked = held(State::Maintenance, Action::PowerOn);
    asked.power = PowerShare {
        rack: Some("r1".into()),
        budget_w: Some(500),
        committed_w: 300,
        reserved: false,
    };
    let Decision::Wait(wait) = decide(&asked, now()) else {
        panic!("must not start")
    };
    assert!(
        wait.condition.contains("r1's power budget"),
        "{}",
        wait.condition
    );
}

fn passed() -> GateResult {
    GateResult {
        gate: "memory".into(),
        title: "memory".into(),
        stage: Stage::Inventory,
        required: true,
        shadow: false,
        verdict: Verdict::Pass,
        reason: String::new(),
        measured: vec![],
        started_at: now(),
        duration_ms: 1,
        former: vec![],
        finding: String::new(),
        waived: None,
        evidence: Evidence::default(),
    }
}

#[test]
fn gates_run_in_the_installed_system_or_in_the_live_image() {
    let mut own = held(State::Maintenance, Action::RunGates);
    assert_eq!(decide(&own, now()), Decision::Start(Step::Gates));
    own.off = true;
    assert_eq!(decide(&own, now()), Decision::Start(Step::BootDisk));
    (own.off, own.gates) = (false, vec![passed()]);
    own.steps = vec![
        step(Step::BootDisk, StepStatus::Succeeded),
        step(Step::Gates, StepStatus::Succeeded),
    ];
    assert_eq!(
        decide(&own, now()),
        Decision::Granted("gates: 1 pass".into())
    );

    for ending in [
        StepStatus::Succeeded,
        StepStatus::Cancelled,
        StepStatus::Failed {
            at: now(),
            failure: failure(false),
        },
    ] {
        let mut bare = resting(State::Available, Action::RunGates);
        assert_eq!(decide(&bare, now()), Decision::Start(Step::BootLive));
        bare.stop = ending == StepStatus::Cancelled;
        bare.steps = vec![
            step(Step::BootLive, StepStatus::Succeeded),
            step(Step::Gates, ending.clone()),
        ];
        assert_eq!(
            decide(&bare, now()),
            Decision::Start(Step::PowerOff),
            "{ending:?}"
        );
        bare.steps.push(step(Step::PowerOff, StepStatus::Succeeded));
        let answer = decide(&bare, now());
        let well = ending == StepStatus::Succeeded;
        assert_eq!(matches!(answer, Decision::Granted(_)), well, "{answer:?}");
        assert!(well || matches!(answer, Decision::Refused(_)), "{answer:?}");
        // A claimable node is off; a node still on cannot be claimed.
        bare.steps[2].status = StepStatus::Failed {
            at: now(),
            failure: failure(false),
        };
        assert!(matches!(
            decide(&bare, now()),
            Decision::Advance(Move {
                to: State::Quarantined,
                ..
            })
        ));
    }
}

#[test]
fn a_new_installation_goes_through_the_scheduler_and_the_gates() {
    for (action, purpose, to) in [
        (Action::Converge, Purpose::Upgrade, State::Installing),
        (Action::Reinstall, Purpose::Reinstall, State::Imaging),
    ] {
        let Decision::Advance(moved) = decide(&held(State::InService, action), now()) else {
            panic!("must drain")
        };
        assert_eq!((moved.to, moved.purpose), (State::Draining, Some(purpose)));
        let mut draining = held(State::Draining, action);
        (draining.action, draining.purpose) = (None, Some(purpose));
        assert_eq!(
            decide(&draining, now()),
            Decision::Start(Step::Drain),
            "jobs first"
        );
        draining.steps = vec![
            step(Step::Drain, StepStatus::Succeeded),
            step(Step::Remove, StepStatus::Succeeded),
        ];
        let Decision::Advance(moved) = decide(&draining, now()) else {
            panic!("must move")
        };
        assert_eq!(moved.to, to);
        assert!(moved.effects.contains(&Effect::LeaveCluster));
        for state in table::states_for(action) {
            if *state == State::InService {
                continue;
            }
            let Decision::Advance(moved) = decide(&held(*state, action), now()) else {
                panic!("{state}: must move")
            };
            assert_eq!(moved.to, to, "{state}");
            // Without a claim there is no stack to install.
            let unclaimed = decide(&resting(*state, action), now());
            let refused = match action {
                Action::Converge => matches!(unclaimed, Decision::Refused(_)),
                _ => matches!(unclaimed, Decision::Wait(_)),
            };
            assert!(refused, "{state} {action}: {unclaimed:?}");
        }
        // Jobs may still run after a failed drain. The jobs end first.
        let mut stuck = held(State::Failed, action);
        (stuck.failed_phase, stuck.purpose, stuck.in_cluster) =
            (Some(State::Draining), Some(Purpose::Repair), true);
        let Decision::Advance(moved) = decide(&stuck, now()) else {
            panic!("must drain")
        };
        assert_eq!((moved.to, moved.purpose), (State::Draining, Some(purpose)));
    }
}

#[test]
fn a_quarantined_node_leaves_the_scheduler_before_a_converge() {
    let mut listed = held(State::Quarantined, Action::Converge);
    listed.in_cluster = true;
    assert_eq!(decide(&listed, now()), Decision::Start(Step::Remove));
    // A claim whose image was never written has no system to converge.
    let mut empty = held(State::Quarantined, Action::Converge);
    empty.installed = false;
    assert!(matches!(decide(&empty, now()), Decision::Refused(_)));
}

#[test]
fn a_node_that_was_switched_off_is_booted_before_its_gates() {
    let mut back = held(State::Validating, Action::Resume);
    back.action = None;
    back.suite = Some(crate::gates::Suite {
        name: "admit".into(),
        version: "1".into(),
        gates: vec![],
    });
    assert_eq!(decide(&back, now()), Decision::Start(Step::Gates));
    back.off = true;
    assert_eq!(decide(&back, now()), Decision::Start(Step::BootDisk));
}

#[test]
fn a_release_stops_what_runs_where_the_node_rests() {
    for state in RESTS {
        let mut asked = held(state, Action::RunGates);
        asked.claim = Some(ClaimState::Releasing);
        asked.steps = vec![step(Step::Gates, StepStatus::Running { waiting_for: None })];
        assert_eq!(decide(&asked, now()), Decision::Cancel(Step::Gates));
        asked.steps = vec![step(Step::Gates, StepStatus::Cancelled)];
        assert!(matches!(
            decide(&asked, now()),
            Decision::Advance(Move {
                to: State::Wiping,
                ..
            })
        ));
    }
}

#[test]
fn a_bmcs_password_is_changed_where_nothing_else_talks_to_it() {
    for state in [
        State::Available,
        State::InService,
        State::Quarantined,
        State::Maintenance,
    ] {
        let mut asked = resting(state, Action::RotateBmc);
        assert_eq!(
            decide(&asked, now()),
            Decision::Start(Step::RotateBmc),
            "{state}"
        );
        asked.steps = vec![step(Step::RotateBmc, StepStatus::Succeeded)];
        assert!(
            matches!(decide(&asked, now()), Decision::Granted(_)),
            "{state}"
        );
        asked.steps = vec![step(
            Step::RotateBmc,
            StepStatus::Failed {
                at: now(),
                failure: failure(false),
            },
        )];
        assert!(
            matches!(decide(&asked, now()), Decision::Refused(_)),
            "{state}"
        );
        asked.power_person = Some("remote hands".into());
        assert_eq!(
            decide(&asked, now()),
            Decision::Refused("the node has no BMC: ask remote hands".into()),
            "{state}"
        );
    }
    for state in [
        State::Draining,
        State::Imaging,
        State::Wiping,
        State::Inspecting,
    ] {
        assert!(
            !table::action_allowed(state, Action::RotateBmc),
            "{state}: a job may be powering it"
        );
    }
}
