//! Rungs of a ladder: their order, the end of a rung, and stops between two rungs.

use super::*;

#[test]
fn a_gate_that_fails_leads_to_the_ladder_that_its_pool_asks_for() {
    let mut one = validating(Verdict::Fail);
    assert_eq!(
        (moved(&one).to, moved(&one).ladder),
        (State::Quarantined, None),
        "no ladder, as before"
    );
    one.policy = Some(policy(&[]));
    assert_eq!(moved(&one).to, State::Quarantined, "nothing to try");
    one.policy = Some(policy(&[Rung::Reboot]));
    let begun = moved(&one);
    assert_eq!(begun.to, State::Repairing);
    assert!(matches!(begun.ladder, Some(Ladder::Begin(cause)) if cause.signature == "gate:x"));
    one.protected = true;
    assert_eq!(
        moved(&one).to,
        State::Quarantined,
        "what is protected is not rebooted by itself"
    );
    // A crashed tool is no proof of a fault.
    let mut unclear = validating(Verdict::Error);
    unclear.policy = Some(policy(&[Rung::Reboot]));
    assert_eq!(moved(&unclear).to, State::Failed);
    unclear.recovery = Some(recovery(&[Rung::Reboot], 0));
    assert_eq!(
        moved(&unclear).to,
        State::Repairing,
        "but does not end what is under way"
    );
}

#[test]
fn a_machine_that_does_not_come_back_is_power_cycled() {
    let mut one = validating(Verdict::Pass);
    one.policy = Some(policy(&[
        Rung::Collect,
        Rung::RestartServices,
        Rung::Reboot,
        Rung::PowerCycle,
    ]));
    one.suite.as_mut().unwrap().gates[0].after_reboot = true;
    one.steps.push(StepView {
        round: 3,
        ..step(Step::RebootTest, silent())
    });
    let begun = moved(&one);
    let Some(Ladder::Begin(cause)) = begun.ladder else {
        panic!("must begin")
    };
    assert_eq!(
        (begun.to, cause.signature.as_str(), cause.answers),
        (State::Repairing, "unreachable", false)
    );

    let mut climbing = node(State::Repairing);
    climbing.recovery = Some(Recovery {
        cause,
        rungs: one.policy.unwrap().rungs,
        tried: 0,
    });
    assert_eq!(
        decide(&climbing, now()),
        Decision::Start(Step::PowerOff),
        "nothing that needs its answer"
    );
    climbing.steps = vec![step(Step::PowerOff, StepStatus::Succeeded)];
    assert_eq!(decide(&climbing, now()), Decision::Start(Step::BootDisk));
    climbing
        .steps
        .push(step(Step::BootDisk, StepStatus::Succeeded));
    let verified = moved(&climbing);
    assert_eq!(verified.to, State::Validating);
    let Some(Ladder::Climb { tried, went }) = verified.ladder else {
        panic!("must climb")
    };
    let outcomes: Vec<Outcome> = went.iter().map(|tried| tried.outcome).collect();
    assert_eq!(
        (tried, outcomes),
        (
            4,
            vec![
                Outcome::Skipped,
                Outcome::Skipped,
                Outcome::Skipped,
                Outcome::Done
            ]
        )
    );
    // Without a BMC no rung is possible.
    (climbing.steps, climbing.power_person) = (vec![], Some("ann".into()));
    assert!(
        matches!(moved(&climbing).ladder, Some(Ladder::End { how: Ended::Spent, went }) if went.len() == 4)
    );
}

#[test]
fn a_reboot_that_was_begun_ends_before_what_counts_no_more_is_decided_on() {
    let mut one = validating(Verdict::Fail);
    one.suite.as_mut().unwrap().gates[0].after_reboot = true;
    one.steps.push(step(
        Step::RebootTest,
        StepStatus::Running { waiting_for: None },
    ));
    assert!(
        matches!(decide(&one, now()), Decision::Wait(_)),
        "its waiver is over by now"
    );
    one.steps[1] = step(Step::RebootTest, StepStatus::Succeeded);
    assert_eq!(moved(&one).to, State::Quarantined);
}

#[test]
fn a_rung_that_cannot_be_done_is_tried_once_and_the_next_one_comes() {
    let mut climbing = node(State::Repairing);
    climbing.recovery = Some(recovery(
        &[Rung::Collect, Rung::RestartServices, Rung::Reboot],
        0,
    ));
    assert_eq!(decide(&climbing, now()), Decision::Start(Step::Inventory));
    climbing.steps = vec![step(Step::Inventory, StepStatus::Succeeded)];
    assert_eq!(
        decide(&climbing, now()),
        Decision::Start(Step::FirmwareLook)
    );
    climbing.power_person = Some("ada".into());
    assert_eq!(
        decide(&climbing, now()),
        Decision::Start(Step::Converge),
        "nobody says what its firmware is"
    );
    climbing.power_person = None;
    climbing.steps = vec![step(Step::Inventory, silent())];
    assert_eq!(
        decide(&climbing, now()),
        Decision::Start(Step::Converge),
        "not again, though it could be"
    );
    climbing.steps.push(step(Step::Converge, silent()));
    assert_eq!(decide(&climbing, now()), Decision::Start(Step::Reboot));
    climbing
        .steps
        .push(step(Step::Reboot, StepStatus::Succeeded));
    assert!(matches!(
        moved(&climbing).ladder,
        Some(Ladder::Climb { tried: 3, .. })
    ));
    // The rung did not help, and no rung is left.
    let mut back = validating(Verdict::Fail);
    back.recovery = Some(recovery(
        &[Rung::Collect, Rung::RestartServices, Rung::Reboot],
        3,
    ));
    let end = moved(&back);
    assert!(matches!(
        end.ladder,
        Some(Ladder::End {
            how: Ended::Spent,
            ..
        })
    ));
    assert_eq!(
        end.reason.unwrap(),
        "gate x: 3 errors; tried without success: check the parts, restart failed services, reboot"
    );
}

/// A new driver is on the disk and the old driver runs. Dead services were not started, and gates
/// would measure the old state again.
#[test]
fn services_that_wait_for_a_reboot_are_no_rung_that_helped() {
    let mut climbing = node(State::Repairing);
    climbing.recovery = Some(recovery(&[Rung::RestartServices, Rung::Reboot], 0));
    climbing.steps = vec![step(Step::Converge, StepStatus::Succeeded)];
    let lock = crate::values::Digest::of(b"lock");
    let report = |reboot_for: &[&str]| {
        let reboot_for = reboot_for.iter().map(|item| (*item).to_owned()).collect();
        Some(crate::stacks::ConvergeReport {
            lock,
            items: vec![],
            reboot_for,
        })
    };
    climbing.converged = report(&[]);
    assert_eq!(moved(&climbing).to, State::Validating);
    climbing.converged = report(&["reboot for package nvidia-open"]);
    assert_eq!(decide(&climbing, now()), Decision::Start(Step::Reboot));
    climbing
        .steps
        .push(step(Step::Reboot, StepStatus::Succeeded));
    let Some(Ladder::Climb { tried: 2, went }) = moved(&climbing).ladder else {
        panic!("two rungs")
    };
    assert_eq!(
        (went[0].outcome, went[1].outcome),
        (Outcome::Failed, Outcome::Done)
    );
}

#[test]
fn the_last_rungs_leave_the_ladder() {
    let mut climbing = node(State::Repairing);
    climbing.recovery = Some(recovery(&[Rung::Reimage, Rung::Rma], 0));
    let imaging = moved(&climbing);
    assert!(
        imaging.to == State::Imaging
            && matches!(imaging.ladder, Some(Ladder::Climb { tried: 1, .. }))
    );
    climbing.protected = true;
    let spared = moved(&climbing);
    assert_eq!(
        spared.to,
        State::Quarantined,
        "a protected disk is not written"
    );
    let Some(Ladder::End { how, went }) = spared.ladder else {
        panic!("must end")
    };
    assert_eq!(
        (how, went[0].outcome, went[1].rung),
        (Ended::Spent, Outcome::Skipped, Rung::Rma)
    );
}

#[test]
fn a_ladder_leaves_a_held_node_what_it_runs() {
    let all = [
        Rung::Collect,
        Rung::RestartServices,
        Rung::Reboot,
        Rung::PowerCycle,
        Rung::Reimage,
    ];
    let mut climbing = node(State::Repairing);
    (climbing.held, climbing.recovery) = (true, Some(recovery(&all[1..3], 0)));
    assert_eq!(
        decide(&climbing, now()),
        Decision::Start(Step::Reboot),
        "what its pool asks for now is not installed"
    );
    climbing.recovery = Some(recovery(&all[4..], 0));
    let spared = moved(&climbing);
    let Some(Ladder::End { how, went }) = spared.ladder else {
        panic!("must end")
    };
    assert_eq!(
        (spared.to, how, went[0].outcome),
        (State::Quarantined, Ended::Spent, Outcome::Skipped)
    );
    assert!(went[0].why.as_deref().unwrap().contains("on hold"));
    // Rungs without a permanent change are never skipped. A rung begun before the claim was held
    // runs to its end.
    let spared = all.map(|rung| {
        climbing
            .recovery
            .as_ref()
            .unwrap()
            .refusal(rung, HELD_MEANS)
            .is_some()
    });
    assert_eq!(spared, [false, true, false, false, true]);
    climbing.recovery = Some(recovery(&all[1..3], 0));
    climbing.steps = vec![step(Step::Converge, StepStatus::Queued)];
    assert!(matches!(decide(&climbing, now()), Decision::Wait(_)));
}

const HELD_MEANS: Means = Means {
    bmc: true,
    protected: false,
    held: true,
};

#[test]
fn a_person_and_the_breaker_stop_a_ladder_between_its_rungs() {
    let mut climbing = node(State::Repairing);
    climbing.recovery = Some(recovery(&[Rung::Reboot, Rung::PowerCycle], 0));
    climbing.hold = Some(Hold::Fleet("5 others".into()));
    let held = moved(&climbing);
    assert_eq!(held.reason.as_deref(), Some("gate x: 3 errors; 5 others"));
    assert!(matches!(
        held.ladder,
        Some(Ladder::End {
            how: Ended::HeldBack,
            ..
        })
    ));
    // A rung under way is not left half done.
    climbing.steps = vec![step(
        Step::Reboot,
        StepStatus::Running { waiting_for: None },
    )];
    assert!(matches!(decide(&climbing, now()), Decision::Wait(_)));
    (climbing.hold, climbing.stop) = (None, true);
    assert!(matches!(decide(&climbing, now()), Decision::Wait(_)));
    climbing.steps = vec![step(Step::Reboot, StepStatus::Succeeded)];
    let stopped = moved(&climbing);
    assert!(stopped.to == State::Quarantined && stopped.effects.contains(&Effect::Stopped));
    assert!(
        matches!(stopped.ladder, Some(Ladder::End { how: Ended::Stopped, went }) if went.len() == 1)
    );
    // A node that is off in the middle of a power cycle is started again first.
    climbing.recovery.as_mut().unwrap().tried = 1;
    climbing.steps = vec![step(Step::PowerOff, StepStatus::Succeeded)];
    assert_eq!(decide(&climbing, now()), Decision::Start(Step::BootDisk));
    climbing
        .steps
        .push(step(Step::BootDisk, StepStatus::Succeeded));
    assert!(moved(&climbing).effects.contains(&Effect::Stopped));
    climbing.steps.clear();
    assert!(
        moved(&climbing).effects.contains(&Effect::Stopped),
        "none is begun"
    );
    climbing.recovery.as_mut().unwrap().tried = 0;
    climbing.stop = false;
    climbing.steps = vec![step(Step::Reboot, StepStatus::Cancelled)];
    assert!(moved(&climbing).effects.contains(&Effect::Stopped));
    // The bound also applies between verification and the next rung.
    let mut back = validating(Verdict::Fail);
    (back.recovery, back.hold) = (climbing.recovery, Some(Hold::Fleet("5 others".into())));
    assert!(matches!(
        moved(&back).ladder,
        Some(Ladder::End {
            how: Ended::HeldBack,
            ..
        })
    ));
}
