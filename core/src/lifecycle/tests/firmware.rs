//! Firmware and BIOS: set before the first write, never interrupted, and read beside a node's jobs.

use super::*;

fn wanting(state: State) -> Snapshot {
    Snapshot {
        sets_firmware: true,
        claim: Some(ClaimState::Bound),
        ..node(state)
    }
}

#[test]
fn firmware_is_set_before_anything_is_written_and_only_where_it_is_wanted() {
    let mut imaging = wanting(State::Imaging);
    assert_eq!(decide(&imaging, now()), Decision::Start(Step::Firmware));
    imaging.steps = vec![step(Step::Firmware, StepStatus::Succeeded)];
    assert_eq!(decide(&imaging, now()), Decision::Start(Step::BootLive));
    imaging.sets_firmware = false;
    imaging.steps.clear();
    assert_eq!(decide(&imaging, now()), Decision::Start(Step::BootLive));

    // The pool received another stack during the write, so the next stay requests the firmware
    // step.
    let mut begun = wanting(State::Imaging);
    begun.steps = vec![
        step(Step::BootLive, StepStatus::Succeeded),
        step(Step::WriteImage, StepStatus::Queued),
    ];
    assert!(matches!(decide(&begun, now()), Decision::Wait(_)));
}

#[test]
fn firmware_is_set_before_a_converge_and_not_after_an_image() {
    let mut drained = wanting(State::Installing);
    assert_eq!(decide(&drained, now()), Decision::Start(Step::Firmware));
    drained.live = true;
    assert_eq!(decide(&drained, now()), Decision::Start(Step::BootDisk));
}

#[test]
fn an_update_that_failed_leaves_the_node_failed_with_what_the_bmc_said() {
    let mut imaging = wanting(State::Imaging);
    imaging.steps = vec![step(
        Step::Firmware,
        StepStatus::Failed {
            at: now(),
            failure: failure(false),
        },
    )];
    let Decision::Advance(moved) = decide(&imaging, now()) else {
        panic!("must fail")
    };
    assert_eq!(
        (moved.to, moved.failed_phase),
        (State::Failed, Some(State::Imaging))
    );
    assert_eq!(
        moved.reason.as_deref(),
        Some("set firmware and BIOS: the BMC did not answer in 15 s")
    );
}

#[test]
fn a_release_waits_for_a_running_update_and_cancels_a_queued_one() {
    let mut imaging = wanting(State::Imaging);
    imaging.claim = Some(ClaimState::Releasing);
    for status in [StepStatus::Running { waiting_for: None }, StepStatus::Lost] {
        imaging.steps = vec![step(Step::Firmware, status)];
        assert!(
            matches!(decide(&imaging, now()), Decision::Wait(_)),
            "{:?}",
            imaging.steps
        );
    }
    imaging.steps = vec![step(Step::Firmware, StepStatus::Queued)];
    assert_eq!(decide(&imaging, now()), Decision::Cancel(Step::Firmware));
    imaging.steps = vec![step(Step::Firmware, StepStatus::Succeeded)];
    let Decision::Advance(moved) = decide(&imaging, now()) else {
        panic!("must move")
    };
    assert_eq!(moved.to, State::Wiping);
}

#[test]
fn a_rack_without_power_to_spare_orders_updates_too() {
    let mut imaging = wanting(State::Imaging);
    imaging.power = PowerShare {
        rack: Some("r1".into()),
        budget_w: Some(500),
        committed_w: 300,
        reserved: false,
    };
    assert!(matches!(decide(&imaging, now()), Decision::Wait(_)));
}

#[test]
fn a_node_in_service_is_only_looked_at() {
    let mut serving = wanting(State::InService);
    serving.action = Some(Action::CheckDrift);
    assert_eq!(decide(&serving, now()), Decision::Start(Step::FirmwareLook));
    serving.steps = vec![step(Step::FirmwareLook, StepStatus::Succeeded)];
    assert_eq!(decide(&serving, now()), Decision::Start(Step::Drift));
    serving.sets_firmware = false;
    serving.steps.clear();
    assert_eq!(decide(&serving, now()), Decision::Start(Step::Drift));
}
