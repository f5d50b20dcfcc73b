//! Failures that begin a recovery, and failures that begin none.

use super::*;

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
    draining.action = Some(super::super::Action::Quarantine);
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
