//! Failed drains: repeated for the former purpose, or undone.

use jiff::SignedDuration;

use super::*;
use crate::lifecycle::wait::WaitReason;

#[test]
fn a_drain_that_failed_goes_on_for_what_it_was_for() {
    let mut draining = node(State::Draining);
    draining.purpose = Some(Purpose::Repair);
    draining.steps = vec![step(
        Step::Drain,
        StepStatus::Failed {
            at: now(),
            failure: failure(false),
        },
    )];
    let Decision::Advance(moved) = decide(&draining, now()) else {
        panic!("must move")
    };
    assert_eq!(
        (moved.to, moved.purpose),
        (State::Failed, Some(Purpose::Repair))
    );
    let mut failed = node(State::Failed);
    (failed.failed_phase, failed.purpose, failed.in_cluster) =
        (Some(State::Draining), moved.purpose, true);
    failed.action = Some(Action::Retry);
    let Decision::Advance(again) = decide(&failed, now()) else {
        panic!("must move")
    };
    assert_eq!(
        (again.to, again.purpose),
        (State::Draining, Some(Purpose::Repair))
    );
    // Jobs may still run here. The jobs end first, for every requested action.
    for (action, purpose) in [
        (Action::Quarantine, Purpose::Repair),
        (Action::Maintain, Purpose::Maintenance),
    ] {
        failed.action = Some(action);
        let Decision::Advance(again) = decide(&failed, now()) else {
            panic!("must move")
        };
        assert_eq!((again.to, again.purpose), (State::Draining, Some(purpose)));
    }
}

#[test]
fn a_failed_drain_is_undone() {
    let mut failed = node(State::Failed);
    (failed.failed_phase, failed.purpose, failed.in_cluster) =
        (Some(State::Draining), Some(Purpose::Upgrade), true);
    failed.action = Some(Action::Undrain);
    assert_eq!(decide(&failed, now()), Decision::Start(Step::Admit));
    let refused = StepStatus::Failed {
        at: now(),
        failure: failure(false),
    };
    failed.steps = vec![step(Step::Admit, refused)];
    assert!(matches!(decide(&failed, now()), Decision::Refused(_)));
    failed.steps = vec![step(Step::Admit, StepStatus::Succeeded)];
    let Decision::Advance(back) = decide(&failed, now()) else {
        panic!("must serve")
    };
    assert_eq!((back.to, back.purpose), (State::InService, None));
    assert!(back.effects.contains(&Effect::ActionTaken));
    // A node removed from the scheduler, or failed later, has to pass the gates.
    let left = Snapshot {
        in_cluster: false,
        ..failed.clone()
    };
    let later = Snapshot {
        failed_phase: Some(State::Installing),
        ..failed.clone()
    };
    for other in [left, later] {
        assert!(matches!(decide(&other, now()), Decision::Refused(_)));
    }
    // A release stops the admission first, because the admission lifts the drain.
    failed.claim = Some(ClaimState::Releasing);
    failed.action = Some(Action::Release);
    failed.steps = vec![step(Step::Admit, StepStatus::Running { waiting_for: None })];
    assert_eq!(decide(&failed, now()), Decision::Cancel(Step::Admit));
    failed.steps = vec![step(Step::Admit, StepStatus::Cancelled)];
    let Decision::Advance(moved) = decide(&failed, now()) else {
        panic!("must move")
    };
    assert_eq!(
        (moved.to, moved.purpose),
        (State::Draining, Some(Purpose::Release))
    );
}

#[test]
fn a_drained_node_waits_for_its_unit_unless_the_change_is_replaced() {
    let mut drained = node(State::Draining);
    (drained.purpose, drained.waits_for_unit) = (Some(Purpose::Upgrade), true);
    let awaited = |node: &Snapshot| match decide(node, now()) {
        Decision::Wait(wait) => Some((wait.reason, wait.until)),
        _ => None,
    };
    assert_eq!(decide(&drained, now()), Decision::Start(Step::Drain));
    drained.steps = vec![step(Step::Drain, StepStatus::Succeeded)];
    let until = Some(now() + SignedDuration::from_secs(30));
    for purpose in [Purpose::Upgrade, Purpose::Reinstall] {
        drained.purpose = Some(purpose);
        assert_eq!(awaited(&drained), Some((WaitReason::Unit, until)));
    }
    let starts = Snapshot {
        waits_for_unit: false,
        ..drained.clone()
    };
    assert_eq!(decide(&starts, now()), Decision::Start(Step::Remove));
    let undrained = Snapshot {
        action: Some(Action::Undrain),
        ..drained.clone()
    };
    assert_eq!(decide(&undrained, now()), Decision::Start(Step::Admit));
    for action in [Action::Quarantine, Action::Maintain] {
        let replaced = Snapshot {
            action: Some(action),
            ..drained.clone()
        };
        assert_eq!(decide(&replaced, now()), Decision::Start(Step::Remove));
    }
    // Once begun, the removal goes on.
    let removal = step(Step::Remove, StepStatus::Running { waiting_for: None });
    drained.steps.push(removal);
    assert_eq!(awaited(&drained).map(|wait| wait.0), Some(WaitReason::Step));
}
