//! Failing nodes: the next rung, and the bounds holding a recovery back.

use super::*;
use crate::clusters::DrainReason;
use crate::gates::xid::Action;
use crate::gates::{
    Criterion, Evidence, Gate, GateResult, Limit, Measured, OnTimeout, Op, Stage, Verdict,
};
use crate::recovery::{Ended, Means, Outcome};
use crate::wire::failure::FailureCode;

pub(super) fn suite() -> Suite {
    let gate = Gate {
        id: "x".into(),
        title: "X".into(),
        checks: vec![],
        stage: Stage::Node,
        argv: vec![],
        peer: None,
        env: BTreeMap::new(),
        each: None,
        output: None,
        keep: vec![],
        timeout_s: 1,
        window_s: None,
        settle_s: 0,
        during: None,
        parser: "facts".into(),
        count: None,
        criteria: vec![Criterion {
            metric: "profile.misses".into(),
            of: None,
            best: None,
            op: Op::Equal,
            limit: Limit::Number(0.0),
            unit: "misses".into(),
        }],
        finding: "It is broken.".into(),
        on_timeout: OnTimeout::Error,
        needs: vec![],
        effects: vec![],
        arch: vec![],
        retries: 0,
        required: true,
        shadow: false,
        after_reboot: false,
    };
    Suite {
        name: "s".into(),
        version: "1".into(),
        gates: vec![gate],
    }
}

pub(super) fn result(verdict: Verdict) -> Vec<GateResult> {
    vec![GateResult {
        gate: "x".into(),
        title: "X".into(),
        stage: Stage::Node,
        required: true,
        shadow: false,
        verdict,
        reason: "3 errors".into(),
        measured: vec![],
        started_at: now(),
        duration_ms: 1,
        former: vec![],
        finding: String::new(),
        waived: None,
        evidence: Evidence::default(),
    }]
}

fn policy(rungs: &[Rung]) -> RecoveryPolicy {
    RecoveryPolicy {
        rungs: rungs.to_vec(),
        ..RecoveryPolicy::none()
    }
}

fn validating(verdict: Verdict) -> Snapshot {
    let mut one = node(State::Validating);
    (one.claim, one.suite) = (Some(ClaimState::Bound), Some(suite()));
    one.steps = vec![StepView {
        round: Step::Gates.max_rounds(),
        ..step(Step::Gates, StepStatus::Succeeded)
    }];
    one.gates = result(verdict);
    one
}

pub(super) fn moved(node: &Snapshot) -> Move {
    match decide(node, now()) {
        Decision::Advance(moved) => moved,
        other => panic!("must move: {other:?}"),
    }
}

pub(super) fn silent() -> StepStatus {
    let failure = Failure {
        code: FailureCode::Timeout,
        message: "no answer".into(),
        retryable: true,
    };
    StepStatus::Failed { at: now(), failure }
}

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

/// A stack locked against another image, or a deleted credential, is not a fault of the machine.
/// The disk must not be overwritten for such a failure.
#[test]
fn what_nobody_declared_begins_no_ladder_and_climbs_none() {
    let mut one = validating(Verdict::Pass);
    one.policy = Some(policy(&[Rung::Reboot, Rung::Reimage]));
    one.suite.as_mut().unwrap().gates[0].after_reboot = true;
    for code in ["not_declared", "bad_suite", "node_protocol"] {
        let failure = Failure {
            code: code.into(),
            message: "the pool names no image".into(),
            retryable: false,
        };
        let refused = StepStatus::Failed { at: now(), failure };
        for steps in [vec![step(Step::Gates, refused.clone())], {
            let passed = StepView {
                round: 2,
                ..step(Step::Gates, StepStatus::Succeeded)
            };
            vec![passed, step(Step::RebootTest, refused)]
        }] {
            one.steps = steps;
            for under_way in [None, Some(recovery(&[Rung::Reboot, Rung::Reimage], 1))] {
                one.recovery = under_way;
                assert_eq!(
                    (moved(&one).to, moved(&one).ladder),
                    (State::Failed, None),
                    "{code}"
                );
            }
        }
    }
}

#[test]
fn a_node_on_its_first_way_outlasts_a_switch_that_is_restarted() {
    let failure = Failure {
        code: FailureCode::SshUnreachable,
        message: "nobody".into(),
        retryable: true,
    };
    let silent = |state, at: Step, round| {
        let mut one = node(state);
        (one.claim, one.suite, one.installed) = (Some(ClaimState::Bound), Some(suite()), true);
        let status = StepStatus::Failed {
            at: now(),
            failure: failure.clone(),
        };
        one.steps = vec![
            step(Step::BootDisk, StepStatus::Succeeded),
            StepView {
                round,
                ..step(at, status)
            },
        ];
        one
    };
    for (state, at) in [
        (State::Installing, Step::Converge),
        (State::Validating, Step::Gates),
    ] {
        assert!(
            matches!(decide(&silent(state, at, 7), now()), Decision::Retry(same, _) if same == at),
            "{state}"
        );
        assert_eq!(moved(&silent(state, at, 8)).to, State::Failed);
        let mut other = silent(state, at, at.max_rounds());
        if let StepStatus::Failed { failure, .. } = &mut other.steps[1].status {
            failure.code = "timeout".into();
        }
        assert_eq!(
            moved(&other).to,
            State::Failed,
            "{state}: only of one that lets nobody in"
        );
    }
    let mut climbing = silent(State::Validating, Step::Gates, Step::Gates.max_rounds());
    climbing.recovery = Some(recovery(&[Rung::Reboot], 0));
    assert_eq!(
        moved(&climbing).to,
        State::Repairing,
        "a ladder does not wait"
    );
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

#[test]
fn a_drain_by_the_health_check_is_a_fault_and_a_foreign_drain_is_not() {
    let said = |reason: Option<&str>, steady| {
        SchedulerOut::new("drained".into(), reason.map(str::to_owned), steady)
    };
    let mut one = node(State::InService);
    let ours = "muster: gate kernel.new: kernel.xid_fatal is 1 events, wanted == 0";
    one.scheduler = Some(said(Some(ours), true));
    let out = moved(&one);
    assert_eq!(
        (out.to, out.purpose),
        (State::Draining, Some(Purpose::Repair))
    );
    let Some(Ladder::Begin(cause)) = &out.ladder else {
        panic!("a fault is handed on: {out:?}")
    };
    assert_eq!(
        (cause.signature.as_str(), cause.asked),
        ("gate:kernel.new", false)
    );
    assert!(out.reason.unwrap().contains("kernel.xid_fatal is 1 events"));
    // A single observation may be older than the node's admission.
    one.scheduler = Some(said(Some(ours), false));
    assert!(
        matches!(decide(&one, now()), Decision::Wait(wait) if wait.condition.contains("drained: muster: gate kernel.new"))
    );
    for somebody in [
        Some("broken fan"),
        Some("muster:"),
        Some("muster: upgrade"),
        Some("not muster: gate x: y"),
        None,
    ] {
        one.scheduler = Some(said(somebody, true));
        let Decision::Wait(wait) = decide(&one, now()) else {
            panic!("{somebody:?} is left alone")
        };
        assert!(
            wait.condition
                .starts_with("the scheduler to give the node jobs again"),
            "{somebody:?}: {}",
            wait.condition
        );
    }
    // The bounds of a sweep's fault also apply to this fault.
    one.scheduler = Some(said(Some(ours), true));
    one.hold = Some(Hold::Fleet("it is the fleet".into()));
    assert!(
        matches!(decide(&one, now()), Decision::Wait(wait) if wait.condition.contains("stays in service: it is the fleet"))
    );
    (one.hold, one.protected) = (None, true);
    assert!(
        matches!(decide(&one, now()), Decision::Wait(wait) if wait.condition.contains("the node is protected"))
    );
    // An invalid gate id is not used as a signature.
    one.protected = false;
    one.scheduler = Some(said(Some("muster: gate <b>: x"), true));
    assert!(
        matches!(moved(&one).ladder, Some(Ladder::Begin(cause)) if cause.signature == "gate:unknown")
    );
}

#[test]
fn what_the_kernel_asks_for_comes_with_the_cause() {
    let asks = |metric: &str, word: &str, verdict| {
        let mut results = result(Verdict::Fail);
        results[0].measured = vec![Measured {
            metric: metric.into(),
            entity: String::new(),
            value: Limit::Text(word.into()),
            op: Op::NotEqual,
            limit: Limit::Text("reset gpu".into()),
            unit: "text".into(),
            verdict,
        }];
        results
    };
    let action = |results: &[GateResult]| Cause::gates(results, now(), "it failed".into()).action;
    assert_eq!(
        action(&asks("kernel.recovery_action", "reset gpu", Verdict::Fail)),
        Some(Action::ResetGpu)
    );
    assert_eq!(
        action(&asks(
            "gpu.recovery_action",
            "Node Reboot Required",
            Verdict::Fail
        )),
        Some(Action::RebootNode)
    );
    assert_eq!(
        action(&asks("gpu.recovery_action", "Something new", Verdict::Fail)),
        Some(Action::Inspect)
    );
    assert_eq!(
        action(&asks("kernel.recovery_action", "reset gpu", Verdict::Pass)),
        None,
        "it held"
    );
    assert_eq!(
        action(&asks("kernel.recovery_action", "hope", Verdict::Fail)),
        None
    );
    let mut shadow = asks("kernel.recovery_action", "reset gpu", Verdict::Fail);
    shadow[0].shadow = true;
    assert_eq!(action(&shadow), None, "a shadow is only told");
    let both = [
        asks("kernel.recovery_action", "reset gpu", Verdict::Fail),
        asks("kernel.recovery_action", "inspect", Verdict::Fail),
    ];
    assert_eq!(
        action(&both.concat()),
        Some(Action::Inspect),
        "the hardest of all"
    );
}

#[test]
fn a_drain_for_a_recovery_leads_to_its_first_rung() {
    let mut draining = node(State::Draining);
    (draining.claim, draining.purpose) = (Some(ClaimState::Bound), Some(Purpose::Repair));
    draining.steps = vec![
        step(Step::Drain, StepStatus::Succeeded),
        step(Step::Remove, StepStatus::Succeeded),
    ];
    assert_eq!(moved(&draining).to, State::Quarantined);
    draining.recovery = Some(recovery(&[Rung::Reboot], 0));
    assert_eq!(moved(&draining).to, State::Repairing);
    draining.action = Some(super::Action::Quarantine);
    assert_eq!(
        moved(&draining).to,
        State::Quarantined,
        "a person wants it left alone"
    );
}

#[test]
fn a_recovery_waits_for_its_turn_and_a_frequent_failure_does_not() {
    let mut one = validating(Verdict::Fail);
    one.policy = Some(policy(&[Rung::Reboot]));
    one.hold = Some(Hold::Later("2 other nodes are being recovered".into()));
    let Decision::Wait(wait) = decide(&one, now()) else {
        panic!("must wait")
    };
    assert!(wait.until.is_some_and(|until| until > now()) && wait.owner == "muster");
    one.hold = Some(Hold::Node("the node was recovered 2 times".into()));
    assert_eq!(
        moved(&one).reason.as_deref(),
        Some("gate x: 3 errors; the node was recovered 2 times")
    );
}

#[test]
fn an_orphaned_drain_of_muster_is_lifted_and_any_other_drain_stays() {
    let said = |reason: &str, steady| {
        let reason = Some(reason.to_owned());
        Some(SchedulerOut::new("drained".into(), reason, steady))
    };
    for ours in DrainReason::ALL {
        let mut one = node(State::InService);
        one.scheduler = said(ours.as_str(), true);
        assert_eq!(decide(&one, now()), Decision::Start(Step::Admit));
        // The scheduler was asked, and its next report is awaited.
        one.steps = vec![step(Step::Admit, StepStatus::Succeeded)];
        assert!(
            matches!(decide(&one, now()), Decision::Wait(wait) if wait.condition.contains(ours.as_str()))
        );
        // A single observation may be older than the entry into service.
        one = node(State::InService);
        one.scheduler = said(ours.as_str(), false);
        assert!(matches!(decide(&one, now()), Decision::Wait(_)));
    }
    let mut one = node(State::InService);
    one.scheduler = said("broken fan", true);
    assert!(matches!(decide(&one, now()), Decision::Wait(_)));
}
