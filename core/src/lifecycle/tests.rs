//! Walks of nodes through their states, and the properties that hold on every one.

use std::collections::BTreeMap;

use jiff::Timestamp;
use proptest::prelude::*;

use super::decide;
use super::decision::{Decision, Effect, Move};
use super::snapshot::{PowerShare, Snapshot, StepStatus, StepView};
use super::state::{Purpose, State, Wish};
use super::steps::Step;
use super::table;
use crate::claims::ClaimState;
use crate::profiles::{HardwareProfile, RootDiskRule};
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
        wish: None,
        wish_reason: None,
        claim: None,
        undo_until: None,
        protected: false,
        in_cluster: matches!(state, State::InService | State::Draining),
        live: false,
        installed: false,
        power_person: None,
        power: PowerShare::default(),
        steps: vec![],
        profile: Some(profile()),
        facts: None,
        converged: None,
        suite: None,
        gates: vec![],
        gates_after_reboot: vec![],
    }
}

fn step(step: Step, status: StepStatus) -> StepView {
    StepView { step, round: 1, status }
}

fn failure(retryable: bool) -> Failure {
    Failure { code: "x".into(), message: "the BMC did not answer in 15 s".into(), retryable }
}

#[test]
fn a_rack_without_power_to_spare_orders_power_ons() {
    let mut waiting = node(State::Inspecting);
    waiting.power = PowerShare { rack: Some("r1".into()), budget_w: Some(500), committed_w: 300, reserved: false };
    let Decision::Wait(wait) = decide(&waiting, now()) else { panic!("must wait") };
    assert_eq!(wait.condition, "r1's power budget: 300 of 500 W are committed, this node may draw 300 W");
    waiting.power.committed_w = 200;
    assert_eq!(decide(&waiting, now()), Decision::Start(Step::BootLive));
}

#[test]
fn a_step_is_retried_with_back_off_and_then_the_phase_has_failed() {
    let mut imaging = node(State::Imaging);
    imaging.claim = Some(ClaimState::Bound);
    imaging.steps = vec![step(Step::BootLive, StepStatus::Failed { at: now(), failure: failure(true) })];
    let Decision::Retry(Step::BootLive, at) = decide(&imaging, now()) else { panic!("must retry") };
    assert_eq!(at, Timestamp::from_second(1_700_000_010).unwrap());
    imaging.steps[0].round = Step::BootLive.max_rounds();
    let Decision::Advance(last) = decide(&imaging, now()) else { panic!("must fail") };
    assert_eq!((last.to, last.failed_phase), (State::Failed, Some(State::Imaging)));
    imaging.steps = vec![step(Step::BootLive, StepStatus::Failed { at: now(), failure: failure(false) })];
    assert!(matches!(decide(&imaging, now()), Decision::Advance(Move { to: State::Failed, .. })));
}

#[test]
fn a_release_stops_the_running_step_and_leaves_the_scheduler_before_the_wipe() {
    let mut admitting = node(State::Admitting);
    admitting.claim = Some(ClaimState::Releasing);
    admitting.in_cluster = true;
    admitting.steps = vec![step(Step::Admit, StepStatus::Running { waiting_for: None })];
    assert_eq!(decide(&admitting, now()), Decision::Cancel(Step::Admit));
    admitting.steps = vec![step(Step::Admit, StepStatus::Cancelled)];
    assert_eq!(decide(&admitting, now()), Decision::Start(Step::Remove));
    admitting.steps.push(step(Step::Remove, StepStatus::Succeeded));
    let Decision::Advance(gone) = decide(&admitting, now()) else { panic!("must move") };
    assert_eq!(gone.to, State::Wiping);
    assert!(gone.effects.contains(&Effect::LeaveCluster));
}

#[test]
fn a_wipe_that_cannot_be_verified_is_never_claimable_again() {
    let mut wiping = node(State::Wiping);
    wiping.steps = vec![
        step(Step::BootLive, StepStatus::Succeeded),
        step(Step::Wipe, StepStatus::Failed { at: now(), failure: failure(false) }),
    ];
    let Decision::Advance(moved) = decide(&wiping, now()) else { panic!("must move") };
    assert_eq!(moved.to, State::Quarantined);
    let mut held = node(State::Quarantined);
    held.reason = moved.reason;
    held.wish = Some(Wish::Recover);
    assert!(matches!(decide(&held, now()), Decision::Wait(_)));
}

#[test]
fn without_a_suite_nothing_is_admitted() {
    let mut validating = node(State::Validating);
    validating.claim = Some(ClaimState::Bound);
    assert!(matches!(decide(&validating, now()), Decision::Advance(Move { to: State::Failed, .. })));
}

fn any_status() -> impl Strategy<Value = StepStatus> {
    prop_oneof![
        Just(StepStatus::Queued),
        Just(StepStatus::Running { waiting_for: None }),
        Just(StepStatus::Succeeded),
        Just(StepStatus::Cancelled),
        any::<bool>().prop_map(|retryable| StepStatus::Failed { at: now(), failure: failure(retryable) }),
    ]
}

prop_compose! {
    fn any_node()(
        state in proptest::sample::select(State::ALL),
        wish in proptest::option::of(proptest::sample::select(Wish::ALL)),
        claim in proptest::option::of(prop_oneof![Just(ClaimState::Bound), Just(ClaimState::Releasing)]),
        (protected, live, installed, in_cluster) in any::<(bool, bool, bool, bool)>(),
        steps in proptest::collection::btree_map(proptest::sample::select(Step::ALL), (any_status(), 1..4_i32), 0..5),
        budget in proptest::option::of(0..1000_u32),
        committed in 0..1000_u32,
        purpose in proptest::sample::select(Purpose::ALL),
        phase in proptest::sample::select(&[
            State::Inspecting, State::Imaging, State::Installing, State::Validating, State::Admitting, State::Draining, State::Wiping,
        ]),
    ) -> Snapshot {
        let steps = steps.into_iter().map(|(step, (status, round))| StepView { step, round, status }).collect();
        let mut node = node(state);
        node.purpose = (state == State::Draining).then_some(purpose);
        node.failed_phase = (state == State::Failed).then_some(phase);
        // A wipe is begun by a release, or on a node without a claim.
        let claim = if node.failed_phase == Some(State::Wiping) { claim.and(Some(ClaimState::Releasing)) } else { claim };
        node.reason = Some("because".into());
        Snapshot {
            wish, claim, protected, live, installed, in_cluster: in_cluster || state == State::InService, steps,
            power: PowerShare { rack: None, budget_w: budget, committed_w: committed, reserved: false }, ..node
        }
    }
}

proptest! {
    /// Whatever a node has been through, the answer is a legal move, and none of the promises is broken by it.
    #[test]
    fn every_answer_keeps_the_promises(node in any_node()) {
        match decide(&node, now()) {
            Decision::Advance(moved) => {
                prop_assert!(table::legal(node.state, moved.to), "{} -> {}", node.state, moved.to);
                prop_assert_eq!(moved.to == State::Draining, moved.purpose.is_some());
                prop_assert_eq!(moved.to == State::Failed, moved.failed_phase.is_some());
                prop_assert!(moved.to != State::Quarantined || moved.reason.is_some());
                // A claimed node is wiped only by its release.
                if moved.to == State::Wiping {
                    prop_assert!(node.claim != Some(ClaimState::Bound) || node.purpose == Some(Purpose::Release));
                    prop_assert!(!node.in_cluster || moved.effects.contains(&Effect::LeaveCluster) || node.claim.is_none());
                }
                // Nothing is admitted but through its gates.
                if moved.to == State::Admitting {
                    prop_assert_eq!(node.state, State::Validating);
                }
            }
            Decision::Start(step) => {
                prop_assert!(node.step(step).is_none());
                prop_assert!(node.active().is_none() || node.active().is_some_and(|view| view.step != step));
                if step == Step::WriteImage { prop_assert_eq!(node.state, State::Imaging); }
                if step == Step::Wipe { prop_assert_eq!(node.state, State::Wiping); }
            }
            Decision::Retry(step, _) => prop_assert!(node.step(step).is_some_and(|view| view.round <= step.max_rounds())),
            Decision::Cancel(step) => prop_assert!(node.active().is_some_and(|view| view.step == step)),
            Decision::Wait(wait) => prop_assert!(!wait.condition.is_empty() && !wait.owner.is_empty()),
        }
    }
}

/// A wish that a state never takes would wait for ever: what is allowed must be taken, now or after the step that runs.
#[test]
fn an_allowed_wish_is_taken() {
    for &state in State::ALL {
        for &wish in Wish::ALL.iter().filter(|&&wish| wish != Wish::Release && table::wish_allowed(state, wish)) {
            let mut asked = node(state);
            asked.wish = Some(wish);
            asked.purpose = (state == State::Draining).then_some(Purpose::Maintenance);
            let answer = decide(&asked, now());
            let taken = matches!(&answer, Decision::Advance(moved) if moved.effects.contains(&Effect::WishTaken));
            let on_its_way = matches!(answer, Decision::Start(Step::Remove | Step::Admit) | Decision::Cancel(_));
            assert!(taken || on_its_way, "{state} ignores {wish}: {answer:?}");
        }
    }
}

/// The whole table, so that a change of it is seen in review.
#[test]
fn the_transition_table() {
    let lines: Vec<String> = State::ALL
        .iter()
        .map(|from| {
            format!("{from} -> {}", table::targets(*from).iter().map(|to| to.as_str()).collect::<Vec<_>>().join(", "))
        })
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}
