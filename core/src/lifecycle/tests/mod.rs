//! Walks of nodes through their states, and the properties holding on every walk.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test names the arms that it is about"
)]

mod asked; // Requests on a resting node
mod document; // The table in the docs, with the reasons for each move
mod drains; // Failed drains, repeated or undone
mod faults; // Failing nodes: ladders, bounds
mod firmware; // Required firmware before the first write to a machine
mod pairing; // Held, measured, returned to the scheduler
mod sweeps; // Sweeps of nodes in service

use std::collections::BTreeMap;

use jiff::Timestamp;
use proptest::prelude::*;

use super::decide;
use super::decision::{Decision, Effect, Ladder, Move};
use super::snapshot::{PowerShare, Room, SchedulerOut, Snapshot, StepStatus, StepView};
use super::state::{Action, Purpose, State};
use super::steps::Step;
use super::table;
use crate::claims::ClaimState;
use crate::facts::{Disk, Facts};
use crate::gates::Suite;
use crate::profiles::{HardwareProfile, RootDiskRule};
use crate::recovery::{Cause, Hold, Recovery, RecoveryPolicy, Rung};
use crate::wire::node::Failure;

fn now() -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap()
}

fn profile() -> HardwareProfile {
    HardwareProfile {
        model: "virtual".into(),
        arch: "amd64".into(),
        sockets: 0,
        cores_per_socket: 0,
        threads_per_core: 1,
        memory_mib: 0,
        schedulable_memory_mib: 0,
        gpus: None,
        nics: 0,
        disks: vec![],
        root_disk: RootDiskRule::default(),
        power_max_w: 300,
        deadlines_s: BTreeMap::new(),
        thresholds: BTreeMap::new(),
        words: BTreeMap::new(),
        ceilings: BTreeMap::new(),
        gates: BTreeMap::new(),
    }
}

fn node(state: State) -> Snapshot {
    Snapshot {
        name: "n1".into(),
        state,
        entered_at: now(),
        purpose: (state == State::Draining).then_some(Purpose::Release),
        failed_phase: (state == State::Failed).then_some(State::Imaging),
        reason: None,
        action: None,
        action_reason: None,
        claim: None,
        undo_until: None,
        protected: false,
        held: false,
        unsanitised: false,
        data_left: None,
        until: None,
        stop: false,
        disputed_parts: vec![],
        returns_to_maker: false,
        in_cluster: matches!(state, State::InService | State::Draining),
        live: false,
        installed: false,
        off: false,
        power_person: None,
        power: PowerShare::default(),
        sets_firmware: false,
        needs_inventory: false,
        steps: vec![],
        profile: Some(profile()),
        facts: None,
        converged: None,
        suite: None,
        gates: vec![],
        gates_after_reboot: vec![],
        scheduler: None,
        sweep: None,
        swept: vec![],
        recovery: None,
        policy: None,
        hold: None,
        pairing: None,
        held_back: false,
        room: Room::Enough,
        waits_for_unit: false,
        no_slot: None,
    }
}

fn recovery(rungs: &[Rung], tried: usize) -> Recovery {
    let cause = Cause {
        signature: "gate:x".into(),
        what: "gate x: 3 errors".into(),
        answers: true,
        asked: false,
        action: None,
    };
    Recovery {
        cause,
        rungs: rungs.to_vec(),
        tried,
    }
}

fn step(step: Step, status: StepStatus) -> StepView {
    StepView {
        step,
        round: 1,
        current: true,
        status,
    }
}

fn failure(retryable: bool) -> Failure {
    Failure {
        code: "x".into(),
        message: "the BMC did not answer in 15 s".into(),
        retryable,
    }
}

#[test]
fn a_rack_without_power_to_spare_orders_power_ons() {
    let mut waiting = node(State::Inspecting);
    waiting.power = PowerShare {
        rack: Some("r1".into()),
        budget_w: Some(500),
        committed_w: 300,
        reserved: false,
    };
    let Decision::Wait(wait) = decide(&waiting, now()) else {
        panic!("must wait")
    };
    assert_eq!(
        wait.condition,
        "r1's power budget: 300 of 500 W are committed, this node may draw 300 W"
    );
    waiting.power.committed_w = 200;
    assert_eq!(decide(&waiting, now()), Decision::Start(Step::BootLive));
}

#[test]
fn a_step_is_retried_with_back_off_and_then_the_phase_has_failed() {
    let mut imaging = node(State::Imaging);
    imaging.claim = Some(ClaimState::Bound);
    imaging.steps = vec![step(
        Step::BootLive,
        StepStatus::Failed {
            at: now(),
            failure: failure(true),
        },
    )];
    let Decision::Retry(Step::BootLive, at) = decide(&imaging, now()) else {
        panic!("must retry")
    };
    assert_eq!(at, Timestamp::from_second(1_700_000_010).unwrap());
    imaging.steps[0].round = Step::BootLive.max_rounds();
    let Decision::Advance(last) = decide(&imaging, now()) else {
        panic!("must fail")
    };
    assert_eq!(
        (last.to, last.failed_phase),
        (State::Failed, Some(State::Imaging))
    );
    imaging.steps = vec![step(
        Step::BootLive,
        StepStatus::Failed {
            at: now(),
            failure: failure(false),
        },
    )];
    assert!(matches!(
        decide(&imaging, now()),
        Decision::Advance(Move {
            to: State::Failed,
            ..
        })
    ));
}

#[test]
fn the_inventory_precedes_the_image_where_it_is_needed() {
    let mut imaging = node(State::Imaging);
    (imaging.claim, imaging.steps) = (
        Some(ClaimState::Bound),
        vec![step(Step::BootLive, StepStatus::Succeeded)],
    );
    assert_eq!(decide(&imaging, now()), Decision::Start(Step::WriteImage));
    imaging.needs_inventory = true;
    assert_eq!(decide(&imaging, now()), Decision::Start(Step::Inventory));
    imaging
        .steps
        .push(step(Step::Inventory, StepStatus::Succeeded));
    for has in [true, false] {
        imaging.needs_inventory = has;
        assert_eq!(decide(&imaging, now()), Decision::Start(Step::WriteImage));
    }
    // The pool received the profile during the write. The stay ends as begun.
    imaging.needs_inventory = true;
    imaging.steps[1] = step(Step::WriteImage, StepStatus::Running { waiting_for: None });
    assert!(matches!(decide(&imaging, now()), Decision::Wait(_)));
}

#[test]
fn a_release_stops_the_step_and_leaves_the_scheduler_before_the_wipe() {
    let mut admitting = node(State::Admitting);
    admitting.claim = Some(ClaimState::Releasing);
    admitting.in_cluster = true;
    admitting.steps = vec![step(Step::Admit, StepStatus::Running { waiting_for: None })];
    assert_eq!(decide(&admitting, now()), Decision::Cancel(Step::Admit));
    admitting.steps = vec![step(Step::Admit, StepStatus::Cancelled)];
    assert_eq!(decide(&admitting, now()), Decision::Start(Step::Remove));
    admitting
        .steps
        .push(step(Step::Remove, StepStatus::Succeeded));
    let Decision::Advance(gone) = decide(&admitting, now()) else {
        panic!("must move")
    };
    assert_eq!(gone.to, State::Wiping);
    assert!(gone.effects.contains(&Effect::LeaveCluster));
}

#[test]
fn a_wipe_that_cannot_be_verified_is_never_claimable_again() {
    let mut wiping = node(State::Wiping);
    wiping.steps = vec![
        step(Step::BootLive, StepStatus::Succeeded),
        step(
            Step::Wipe,
            StepStatus::Failed {
                at: now(),
                failure: failure(false),
            },
        ),
    ];
    let Decision::Advance(moved) = decide(&wiping, now()) else {
        panic!("must move")
    };
    assert_eq!(moved.to, State::Quarantined);
    assert!(!moved.effects.contains(&Effect::Sanitised));
    let mut held = node(State::Quarantined);
    (held.unsanitised, held.reason) = (true, moved.reason);
    held.action = Some(Action::Recover);
    assert!(matches!(decide(&held, now()), Decision::Wait(_)));
    // A retirement and a reinstatement do not change the rule.
    let mut back = node(State::Inspecting);
    (back.unsanitised, back.live) = (true, true);
    back.steps = vec![
        step(Step::Inventory, StepStatus::Succeeded),
        step(Step::PowerOff, StepStatus::Succeeded),
    ];
    back.facts = Some(Facts {
        disks: vec![disk(Some("ROOT"))],
        ..Facts::default()
    });
    let Decision::Advance(moved) = decide(&back, now()) else {
        panic!("must move")
    };
    assert_eq!(moved.to, State::Quarantined);
    back.data_left = Some("n9 left data on its disks on 2026-01-05".into());
    let Decision::Advance(moved) = decide(&back, now()) else {
        panic!("must move")
    };
    let reason = "unsanitised: n9 left data on its disks on 2026-01-05";
    assert_eq!(
        (moved.to, moved.reason.as_deref()),
        (State::Quarantined, Some(reason))
    );
    back.unsanitised = false;
    let Decision::Advance(moved) = decide(&back, now()) else {
        panic!("must move")
    };
    assert_eq!(moved.to, State::Available);
}

#[test]
fn a_claim_given_up_at_rest_is_wiped_when_an_earlier_attempt_wrote() {
    let mut resting = node(State::Available);
    resting.claim = Some(ClaimState::Releasing);
    for (unsanitised, to) in [(true, State::Wiping), (false, State::Inspecting)] {
        resting.unsanitised = unsanitised;
        let Decision::Advance(moved) = decide(&resting, now()) else {
            panic!("must move")
        };
        assert_eq!(
            (moved.to, moved.effects.contains(&Effect::EndClaim)),
            (to, !unsanitised)
        );
    }
}

fn disk(serial: Option<&str>) -> Disk {
    Disk {
        name: "sdb".into(),
        serial: serial.map(str::to_owned),
        ..Disk::default()
    }
}

#[test]
fn a_disk_that_no_permit_can_name_is_not_wiped_and_not_forgotten() {
    let mut wiping = node(State::Wiping);
    wiping.steps = vec![
        step(Step::BootLive, StepStatus::Succeeded),
        step(Step::Inventory, StepStatus::Succeeded),
    ];
    wiping.facts = Some(Facts {
        disks: vec![disk(Some("ROOT")), disk(None)],
        ..Facts::default()
    });
    let Decision::Advance(moved) = decide(&wiping, now()) else {
        panic!("must move")
    };
    assert_eq!(moved.to, State::Quarantined);
    let reason = moved.reason.unwrap();
    assert!(
        reason.starts_with("unsanitised: disk sdb has no serial"),
        "{reason}"
    );
}

#[test]
fn what_was_asked_to_stop_begins_nothing_more() {
    let mut imaging = node(State::Imaging);
    (imaging.claim, imaging.stop) = (Some(ClaimState::Bound), true);
    for steps in [
        vec![step(Step::BootLive, StepStatus::Succeeded)],
        vec![step(
            Step::BootLive,
            StepStatus::Failed {
                at: now(),
                failure: failure(true),
            },
        )],
    ] {
        imaging.steps = steps;
        let Decision::Advance(moved) = decide(&imaging, now()) else {
            panic!("must stop")
        };
        assert_eq!(
            (moved.to, moved.failed_phase),
            (State::Failed, Some(State::Imaging))
        );
        assert!(moved.effects.contains(&Effect::Stopped));
    }
    // A stopped drain returns the node to service; a drain for a release cannot return the node.
    let mut draining = node(State::Draining);
    (draining.purpose, draining.stop) = (Some(Purpose::Maintenance), true);
    draining.steps = vec![step(Step::Drain, StepStatus::Cancelled)];
    assert_eq!(decide(&draining, now()), Decision::Start(Step::Admit));
    (draining.purpose, draining.claim) = (Some(Purpose::Release), Some(ClaimState::Releasing));
    let Decision::Advance(moved) = decide(&draining, now()) else {
        panic!("must stop")
    };
    assert_eq!(
        (moved.to, moved.purpose),
        (State::Failed, Some(Purpose::Release))
    );
}

/// The page of a quarantined node shows the commands to type.
#[test]
fn a_quarantined_node_waits_for_commands_that_fit_its_reason() {
    let waits = |change: &dyn Fn(&mut Snapshot)| {
        let mut held = node(State::Quarantined);
        change(&mut held);
        let Decision::Wait(wait) = decide(&held, now()) else {
            panic!("must wait")
        };
        wait.next_action
    };
    assert!(waits(&|held| held.unsanitised = true).contains("muster node wipe n1"));
    assert!(
        waits(&|held| held.disputed_parts = vec!["disk A".into()]).contains("muster node parts n1")
    );
    let maker = waits(&|held| held.returns_to_maker = true);
    assert!(
        maker.contains("muster node rma n1") && maker.contains("replace-parts n1"),
        "{maker}"
    );
    assert!(
        waits(&|held| held.claim = Some(ClaimState::Bound))
            .contains("muster node gates n1 --failed")
    );
    assert!(waits(&|_| {}).contains("muster node recover n1"));
}

#[test]
fn a_maintenance_ends_at_its_time_and_not_before() {
    let mut held = node(State::Maintenance);
    held.until = Some(now() + jiff::SignedDuration::from_secs(60));
    let Decision::Wait(wait) = decide(&held, now()) else {
        panic!("must wait")
    };
    assert_eq!(
        (wait.until, wait.next_action.as_str()),
        (held.until, "resume automatically")
    );
    let Decision::Advance(moved) = decide(&held, held.until.unwrap()) else {
        panic!("must resume")
    };
    assert_eq!(moved.to, State::Inspecting);
}

#[test]
fn an_inspection_in_service_leaves_the_node_where_it_is() {
    let mut serving = node(State::InService);
    serving.action = Some(Action::Inspect);
    assert_eq!(decide(&serving, now()), Decision::Start(Step::Inventory));
    let former = StepView {
        current: false,
        ..step(Step::Inventory, StepStatus::Succeeded)
    };
    serving.steps = vec![former];
    assert_eq!(
        decide(&serving, now()),
        Decision::Retry(Step::Inventory, now())
    );
    serving.steps = vec![step(Step::Inventory, StepStatus::Succeeded)];
    assert!(matches!(decide(&serving, now()), Decision::Granted(_)));
    serving.steps = vec![step(
        Step::Inventory,
        StepStatus::Failed {
            at: now(),
            failure: failure(false),
        },
    )];
    assert!(matches!(decide(&serving, now()), Decision::Refused(_)));
}

#[test]
fn an_adoption_only_reads_and_a_failure_changes_no_state() {
    let mut found = node(State::Discovered);
    found.action = Some(Action::Adopt);
    assert_eq!(decide(&found, now()), Decision::Start(Step::Adopt));
    found.steps = vec![step(
        Step::Adopt,
        StepStatus::Failed {
            at: now(),
            failure: failure(false),
        },
    )];
    assert!(matches!(decide(&found, now()), Decision::Refused(_)));
    found.steps[0].current = false;
    assert_eq!(decide(&found, now()), Decision::Retry(Step::Adopt, now()));
    found.steps = [Step::Adopt, Step::Inventory, Step::Drift]
        .map(|done| step(done, StepStatus::Succeeded))
        .into();
    let Decision::Advance(moved) = decide(&found, now()) else {
        panic!("must move")
    };
    assert_eq!(moved.to, State::InService);
    assert!(moved.effects.contains(&Effect::Adopted));
}

#[test]
fn what_is_protected_is_not_written() {
    for (state, before, claim) in [
        (
            State::Imaging,
            vec![Step::BootLive],
            Some(ClaimState::Bound),
        ),
        (
            State::Wiping,
            vec![Step::BootLive, Step::Inventory],
            Some(ClaimState::Releasing),
        ),
    ] {
        let mut guarded = node(state);
        (guarded.protected, guarded.claim) = (true, claim);
        guarded.steps = before
            .into_iter()
            .map(|done| step(done, StepStatus::Succeeded))
            .collect();
        let Decision::Wait(wait) = decide(&guarded, now()) else {
            panic!("{state}: must wait")
        };
        assert_eq!(wait.condition, "the node's protection to be removed");
        let wiped = if state == State::Wiping {
            Step::Wipe
        } else {
            Step::WriteImage
        };
        guarded.steps.push(step(
            wiped,
            StepStatus::Failed {
                at: now(),
                failure: failure(true),
            },
        ));
        assert!(
            matches!(decide(&guarded, now()), Decision::Wait(_)),
            "nor again"
        );
    }
}

#[test]
fn without_a_suite_nothing_is_admitted() {
    let mut validating = node(State::Validating);
    validating.claim = Some(ClaimState::Bound);
    assert!(matches!(
        decide(&validating, now()),
        Decision::Advance(Move {
            to: State::Failed,
            ..
        })
    ));
}

fn any_status() -> impl Strategy<Value = StepStatus> {
    prop_oneof![
        Just(StepStatus::Queued),
        Just(StepStatus::Lost),
        Just(StepStatus::Running { waiting_for: None }),
        Just(StepStatus::Succeeded),
        Just(StepStatus::Cancelled),
        any::<bool>().prop_map(|retryable| StepStatus::Failed {
            at: now(),
            failure: failure(retryable)
        }),
    ]
}

prop_compose! {
    fn any_node()(
        state in proptest::sample::select(State::ALL),
        action in proptest::option::of(proptest::sample::select(Action::ALL)),
        claim in proptest::option::of(prop_oneof![Just(ClaimState::Bound), Just(ClaimState::Releasing)]),
        (protected, live, installed, in_cluster) in any::<(bool, bool, bool, bool)>(),
        (unsanitised, stop, over, off, sets_firmware, needs_inventory) in any::<(bool, bool, bool, bool, bool, bool)>(),
        steps in proptest::collection::btree_map(proptest::sample::select(Step::ALL), (any_status(), 1..4_i32, any::<bool>()), 0..5),
        (climbs, tried, has_policy, held, drained) in
            (proptest::option::of(proptest::sample::subsequence(Rung::ALL, 0..6)), 0..6_usize, any::<bool>(), any::<bool>(), proptest::option::of(any::<bool>())),
        budget in proptest::option::of(0..1000_u32),
        committed in 0..1000_u32,
        purpose in proptest::sample::select(Purpose::ALL),
        phase in proptest::sample::select(&[
            State::Inspecting, State::Imaging, State::Installing, State::Validating, State::Admitting, State::Draining, State::Wiping,
        ]),
    ) -> Snapshot {
        let view = |(step, (status, round, current))| StepView { step, round, current, status };
        let steps = steps.into_iter().map(view).collect();
        let mut node = node(state);
        node.failed_phase = (state == State::Failed).then_some(phase);
        node.purpose = (state == State::Draining || node.failed_phase == Some(State::Draining)).then_some(purpose);
        node.until = over.then(now);
        // A wipe begins with a release, or on a node without a claim.
        let claim = if node.failed_phase == Some(State::Wiping) { claim.and(Some(ClaimState::Releasing)) } else { claim };
        node.reason = Some("because".into());
        let climbs = climbs.filter(|_| matches!(state, State::Draining | State::Repairing | State::Imaging | State::Installing | State::Validating));
        Snapshot {
            recovery: climbs.map(|rungs| recovery(&rungs, tried)),
            policy: has_policy.then(|| RecoveryPolicy { rungs: Rung::ALL.to_vec(), ..RecoveryPolicy::none() }),
            hold: held.then(|| Hold::Fleet("it is the fleet".into())),
            scheduler: drained.map(|steady| SchedulerOut::new("drained".into(), Some("muster: gate x: 3 errors".into()), steady)),
            action, claim, protected, live, installed, off, unsanitised, stop, sets_firmware, needs_inventory, steps,
            in_cluster: in_cluster || state == State::InService,
            power: PowerShare { rack: None, budget_w: budget, committed_w: committed, reserved: false }, ..node
        }
    }
}

proptest! {
    /// For any history of a node, the decision is a legal move and keeps every promise.
    #[test]
    fn every_answer_keeps_the_promises(node in any_node()) {
        match decide(&node, now()) {
            Decision::Advance(moved) => {
                prop_assert!(table::legal(node.state, moved.to), "{} -> {}", node.state, moved.to);
                let drains = moved.to == State::Draining || moved.failed_phase == Some(State::Draining);
                prop_assert_eq!(drains, moved.purpose.is_some());
                prop_assert_eq!(moved.to == State::Failed, moved.failed_phase.is_some());
                prop_assert!(moved.to != State::Quarantined || moved.reason.is_some());
                // A disk that may hold user data is not claimable by another user.
                if moved.to == State::Available { prop_assert!(!node.unsanitised || node.claim.is_some()); }
                if moved.effects.contains(&Effect::Sanitised) { prop_assert!(node.done(Step::Wipe)); }
                // A claimed node is wiped only by its release.
                if moved.to == State::Wiping {
                    prop_assert!(node.claim != Some(ClaimState::Bound) || node.purpose == Some(Purpose::Release));
                    prop_assert!(!node.in_cluster || moved.effects.contains(&Effect::LeaveCluster) || node.claim.is_none());
                }
                // A node is admitted only through its gates. The rungs of a ladder only go up, and
                // no rung runs while a bound holds the recovery back.
                if let Some(Ladder::Climb { tried, went }) = &moved.ladder {
                    let before = node.recovery.as_ref().map_or(0, |recovery| recovery.tried);
                    prop_assert!(*tried > before && went.len() == tried - before);
                }
                if moved.to == State::Repairing {
                    prop_assert!(node.state == State::Draining || node.hold.is_none());
                }
                prop_assert!(moved.to != State::Imaging || node.state != State::Repairing || !node.protected);
                // A retry of a failed admission repeats the admission: the gates have passed before.
                if moved.to == State::Admitting && node.failed_phase != Some(State::Admitting) {
                    prop_assert_eq!(node.state, State::Validating);
                }
            }
            Decision::Start(step) => {
                prop_assert!(node.step(step).is_none());
                prop_assert!(node.active().is_none() || node.active().is_some_and(|view| view.step != step));
                if step == Step::WriteImage { prop_assert_eq!(node.state, State::Imaging); }
                if step == Step::Wipe { prop_assert_eq!(node.state, State::Wiping); }
                prop_assert!(!node.protected || !step.destroys());
                // A rung under way runs to its end.
                let seen_through = node.state == State::Repairing && matches!(step, Step::BootDisk | Step::FirmwareLook);
                prop_assert!(!node.stop || seen_through || matches!(step, Step::Remove | Step::Admit | Step::Inventory | Step::PowerOff));
            }
            Decision::Retry(step, _) => {
                prop_assert!(node.step(step).is_some_and(|view| !view.current || view.round <= step.max_rounds()));
            }
            Decision::Granted(text) | Decision::Refused(text) => {
                prop_assert!(node.action.is_some() && !text.is_empty());
            }
            Decision::Cancel(step) => {
                prop_assert!(node.active().is_some_and(|view| view.step == step));
                // A firmware step is never interrupted during the update.
                let writes = matches!(node.state, State::Imaging | State::Installing) && step == Step::Firmware;
                prop_assert!(!writes || node.active().is_some_and(|view| view.status == StepStatus::Queued));
            }
            Decision::Wait(wait) => prop_assert!(!wait.condition.is_empty() && !wait.owner.is_empty()),
        }
    }
}

/// A requested action that no state handles would wait forever. Every allowed action must be taken,
/// now or after the running step.
#[test]
fn an_allowed_action_is_taken() {
    for &state in State::ALL {
        for &action in Action::ALL
            .iter()
            .filter(|&&action| action != Action::Release && table::action_allowed(state, action))
        {
            let mut asked = node(state);
            asked.action = Some(action);
            if matches!(action, Action::Converge | Action::Reinstall) {
                (asked.claim, asked.installed) = (Some(ClaimState::Bound), true);
            }
            asked.sweep = Some(Suite {
                name: "sweep".into(),
                version: "1".into(),
                gates: vec![],
            });
            asked.purpose = (state == State::Draining).then_some(Purpose::Maintenance);
            if (state, action) == (State::Failed, Action::Undrain) {
                (asked.failed_phase, asked.in_cluster) = (Some(State::Draining), true);
            }
            let answer = decide(&asked, now());
            let taken = matches!(&answer, Decision::Advance(moved) if moved.effects.contains(&Effect::ActionTaken))
                || matches!(answer, Decision::Granted(_));
            let on_its_way = matches!(answer, Decision::Start(step) if !step.destroys())
                || matches!(answer, Decision::Cancel(_));
            assert!(taken || on_its_way, "{state} ignores {action}: {answer:?}");
        }
    }
}
