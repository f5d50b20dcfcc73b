//! Failing nodes: the next rung, and the bounds holding a recovery back.

mod causes; // Failures that begin a recovery or none
mod ladders; // Rungs: order, ends, stops

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
