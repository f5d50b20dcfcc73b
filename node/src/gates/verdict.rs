//! Verdicts of a gate: a reading compared with the criteria, and the verdicts of gates without a reading.

use muster_core::facts::Facts;
use muster_core::gates::{
    Assessment, Evidence, Gate, GateResult, Mode, OnTimeout, Reference, Verdict, assess,
};
use muster_core::profiles::HardwareProfile;
use muster_core::wire::node::GatePlan;

use super::evidence::EVIDENCE_MAX;
use super::parsers::{Reading, Unread};
use super::{Bench, kernel_log, no_gpu};
use crate::machine::Machine;
use crate::tool;

/// Number of faults or gaps in a reason.
const TOLD_MAX: usize = 5;

/// The values that limits and counts may name.
pub(super) fn reference_of<'a>(plan: &'a GatePlan, facts: &'a Facts) -> Reference<'a> {
    Reference {
        profile: &plan.profile,
        facts,
        stack: plan.stack.as_ref(),
        variables: &plan.variables,
    }
}

/// Compares a reading with the gate's criteria. The notes of a parser go into the evidence, and into the reason unless the gate passes.
pub(super) fn judge_reading(
    gate: &Gate,
    reference: &Reference<'_>,
    reading: Reading,
    evidence: &mut Evidence,
) -> Assessment {
    let assessment = assess(gate, &reading.samples, reference);
    let assessment = weigh_unread(gate, &reading.unread, assessment);
    let mut assessment = weigh_report(&reading.faults, &reading.gaps, assessment);
    evidence.versions = reading.versions;
    if !reading.notes.is_empty() {
        let notes = reading.notes.join("\n");
        if evidence.stdout.is_empty() {
            evidence.stdout = tool::tail(notes.as_bytes(), EVIDENCE_MAX);
        }
        if assessment.verdict != Verdict::Pass {
            let shown = reading.notes[..reading.notes.len().min(5)].join("; ");
            assessment.reason = format!("{}: {shown}", assessment.reason);
        }
    }
    assessment
}

/// Adds the values of unknown form to an assessment: an error where a criterion asks for one. A
/// missed limit stays a failure, and other values have no effect.
pub(super) fn weigh_unread(gate: &Gate, unread: &[Unread], assessment: Assessment) -> Assessment {
    let is_asked = |value: &&Unread| {
        let mut criteria = gate.criteria.iter();
        criteria.any(|criterion| criterion.metric == value.metric)
    };
    let Some(Unread { metric, reason }) = unread.iter().find(is_asked) else {
        return assessment;
    };
    let reason = match assessment.verdict {
        Verdict::Pass => format!("{metric}: {reason}"),
        Verdict::Error => format!("{metric}: {reason}; {}", assessment.reason),
        Verdict::Fail | Verdict::Skipped => return assessment,
    };
    Assessment {
        verdict: Verdict::Error,
        reason,
        ..assessment
    }
}

/// Adds the tool's own report to an assessment. A fault of the report is a failure, also beside
/// good values. With a missing part, a gate never passes, and a missed limit stays a failure.
pub(super) fn weigh_report(
    faults: &[String],
    gaps: &[String],
    assessment: Assessment,
) -> Assessment {
    let told = |words: &[String]| words[..words.len().min(TOLD_MAX)].join("; ");
    let both = |words: &[String]| format!("{}; {}", told(words), assessment.reason);
    let (verdict, reason) = match (faults, gaps, assessment.verdict) {
        ([], [], _) => return assessment,
        // The missed limits describe the fault, and missing values follow from the fault.
        ([_, ..], _, Verdict::Fail) => (Verdict::Fail, both(faults)),
        ([_, ..], _, Verdict::Pass | Verdict::Error | Verdict::Skipped) => {
            (Verdict::Fail, told(faults))
        }
        ([], [_, ..], Verdict::Fail) => (
            Verdict::Fail,
            format!("{}; {}", assessment.reason, told(gaps)),
        ),
        ([], [_, ..], Verdict::Pass) => (Verdict::Error, told(gaps)),
        ([], [_, ..], Verdict::Error | Verdict::Skipped) => (Verdict::Error, both(gaps)),
    };
    Assessment {
        verdict,
        reason,
        ..assessment
    }
}

/// The verdict of the gate that reports a node without the GPUs of the profile. The PCI bus was
/// read and lists none, so the verdict of a required gate is a failure.
pub(super) fn judge_no_gpu(gate: &Gate, bench: &Bench<'_>) -> Assessment {
    let verdict = match gate.mode(Some(&bench.plan.profile)) {
        Mode::Required => Verdict::Fail,
        Mode::Optional | Mode::Shadow => Verdict::Skipped,
    };
    unmeasured(verdict, no_gpu::describe(bench))
}

/// A verdict without measured values.
pub(super) fn unmeasured(verdict: Verdict, reason: String) -> Assessment {
    Assessment {
        verdict,
        reason,
        measured: Vec::new(),
    }
}

/// The verdict of a gate that cannot be measured on the node: an error where the profile requires the gate, else skipped.
pub(super) fn judge_absent(gate: &Gate, profile: &HardwareProfile, why: String) -> Assessment {
    let verdict = match gate.mode(Some(profile)) {
        Mode::Required => Verdict::Error,
        Mode::Optional | Mode::Shadow => Verdict::Skipped,
    };
    unmeasured(verdict, why)
}

/// The verdict of a gate whose tool did not end in time.
pub(super) fn judge_timeout(gate: &Gate, hangs: bool) -> Assessment {
    let verdict = match gate.on_timeout {
        OnTimeout::Error => Verdict::Error,
        OnTimeout::Fail => Verdict::Fail,
    };
    unmeasured(verdict, tool::overdue(gate.timeout_s, hangs))
}

/// Seconds since the boot, where the gate missed and its values may still settle.
pub(super) fn settling_s(gate: &Gate, assessment: &Assessment, machine: &Machine) -> Option<u64> {
    let up_s = kernel_log::now_us(machine)? / 1_000_000;
    (matches!(assessment.verdict, Verdict::Fail | Verdict::Error) && up_s < gate.settle_s)
        .then_some(up_s)
}

/// The verdict of a gate whose values were still settling at the job's deadline: an error.
pub(super) fn judge_unsettled(
    gate: &Gate,
    assessment: Assessment,
    machine: &Machine,
) -> Assessment {
    let Some(up_s) = settling_s(gate, &assessment, machine) else {
        return assessment;
    };
    let reason = format!(
        "{}; measured {up_s} s after boot, within the settle time of {} s",
        assessment.reason, gate.settle_s
    );
    Assessment {
        verdict: Verdict::Error,
        reason,
        ..assessment
    }
}

/// The result of a gate that is skipped because gate `by` of an earlier stage blocks.
pub(super) fn skip_gate(gate: &Gate, by: &Gate, bench: &Bench<'_>) -> GateResult {
    let reason = match (no_gpu::concerns(gate, bench), no_gpu::concerns(by, bench)) {
        (true, _) => no_gpu::REASON.to_owned(),
        (false, true) => format!("not run: {}", no_gpu::REASON),
        (false, false) => format!("not run: gate {} of an earlier stage did not pass", by.id),
    };
    make_result(gate, bench, Verdict::Skipped, reason)
}

/// A result with the gate's own fields, and without values or evidence.
pub(super) fn make_result(
    gate: &Gate,
    bench: &Bench<'_>,
    verdict: Verdict,
    reason: String,
) -> GateResult {
    let mode = gate.mode(Some(&bench.plan.profile));
    let Gate {
        id, title, stage, ..
    } = gate.clone();
    GateResult {
        gate: id,
        title,
        stage,
        required: mode == Mode::Required,
        shadow: mode == Mode::Shadow,
        verdict,
        reason,
        measured: Vec::new(),
        started_at: bench.cx.clock().now(),
        duration_ms: 0,
        former: Vec::new(),
        finding: String::new(),
        waived: None,
        evidence: Evidence::default(),
    }
}
