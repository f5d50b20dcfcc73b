//! Nodes without a GPU on the PCI bus, and with GPUs in the profile. One gate reports the missing
//! GPUs: the gate of the inventory, else the first gate of GPUs. The other gates of GPUs are
//! skipped with the same reason, because a tool without a GPU blames the driver or a library.

use muster_core::gates::{Gate, Mode};

use super::Bench;

/// The reason of a skipped gate.
pub(super) const REASON: &str = "no GPU was found";
/// The parser of the inventory, and the metric that counts the missing GPUs.
const INVENTORY: &str = "facts";
const MISSES: &str = "profile.misses";

/// Whether the gate measures GPUs on a node without a GPU.
pub(super) fn concerns(gate: &Gate, bench: &Bench<'_>) -> bool {
    lacks_gpus(bench) && gate.measures_gpus()
}

/// Returns the reason against running a gate on a node without a GPU. In a run without a gate of
/// the inventory, the first required gate with a tool and without a load is run, and the evidence
/// has the tool's own words.
pub(super) fn refusal(gate: &Gate, bench: &Bench<'_>) -> Option<String> {
    (concerns(gate, bench) && !is_reporter(gate, bench)).then(|| REASON.to_owned())
}

fn is_reporter(gate: &Gate, bench: &Bench<'_>) -> bool {
    gate.mode(Some(&bench.plan.profile)) == Mode::Required
        && !gate.argv.is_empty()
        && gate.effects.is_empty()
        && gate.during.is_none()
        && !bench.shared.has_reported_no_gpu()
        && !inventory_reports(gate, bench)
}

/// Whether a gate of the inventory reports the missing GPUs, in the stage of the gate or before.
fn inventory_reports(gate: &Gate, bench: &Bench<'_>) -> bool {
    let plan = bench.plan;
    plan.suite.gates.iter().any(|other| {
        other.parser == INVENTORY
            && other.stage <= gate.stage
            && other.mode(Some(&plan.profile)) == Mode::Required
            && (plan.only.is_empty() || plan.only.contains(&other.id))
            && other.criteria.iter().any(|one| one.metric == MISSES)
    })
}

/// Returns the sentence for the gate of the inventory; `None` on a node with a GPU, or for a
/// profile without GPUs.
pub(super) fn report(bench: &Bench<'_>) -> Option<String> {
    lacks_gpus(bench).then(|| describe(bench))
}

/// Returns the sentence of the reporting gate.
pub(super) fn describe(bench: &Bench<'_>) -> String {
    let model = &bench.plan.profile.model;
    let expected = expected(bench);
    format!("{REASON}: the profile {model} has {expected}, and the PCI bus lists none")
}

fn lacks_gpus(bench: &Bench<'_>) -> bool {
    expected(bench) > 0 && bench.facts.gpus.is_empty()
}

/// Returns the number of GPUs in the profile.
fn expected(bench: &Bench<'_>) -> u32 {
    let gpus = bench.plan.profile.gpus.as_ref();
    gpus.map_or(0, |gpus| gpus.count)
}
