//! The blocker of an idle operation, and the links to its results. Both are derived from stored
//! rows at each read; no extra column stores either.

use muster_api::operations::{BlockedBy, Operation, OperationResult, ResultLink, Step};
use muster_core::lifecycle::wait::WaitReason;

use crate::db::operations::{AroundRow, RunRow};

/// The reason for an operation without progress; `None` while an agent works on a step.
pub(crate) fn blocked_by(steps: &[Step], around: &AroundRow) -> Option<BlockedBy> {
    let detail = around.waiting_for.clone()?;
    let open = steps
        .iter()
        .rev()
        .find(|step| matches!(step.state.as_str(), "leased" | "queued"));
    if open.is_some_and(|step| step.state == "leased") {
        return None;
    }
    let reason = around.waiting_reason.as_deref().and_then(WaitReason::parse);
    let by = match reason {
        Some(WaitReason::Caution) => "caution",
        _ if open.is_some() => "agent",
        None => "muster",
        Some(reason) => name_blocker(reason),
    };
    let path = |kind: &str, name: &Option<String>, end: &str| {
        name.as_ref().map(|name| format!("/v1/{kind}/{name}{end}"))
    };
    let link = match by {
        "agent" => path("sites", &around.site, "/agents"),
        "caution" => Some("/v1/caution".to_owned()),
        "disruption_budget" => path("pools", &around.pool, "/disruption"),
        "rack_power" => path("racks", &around.rack, ""),
        "undo_window" => path("claims", &around.claim, ""),
        _ => None,
    };
    Some(BlockedBy {
        by: by.to_owned(),
        reason: around.waiting_reason.clone(),
        detail,
        since: around.waiting_since.map(|at| at.to_jiff()),
        link,
    })
}

/// The word of [`BlockedBy::by`] for a reason, where no job is open.
fn name_blocker(reason: WaitReason) -> &'static str {
    match reason {
        WaitReason::Agent | WaitReason::Observation | WaitReason::Step | WaitReason::StepStops => {
            "agent"
        }
        WaitReason::Caution => "caution",
        WaitReason::Protection => "protection",
        WaitReason::RackPower => "rack_power",
        WaitReason::Slot => "disruption_budget",
        WaitReason::UndoWindow => "undo_window",
        WaitReason::MusterError
        | WaitReason::Pair
        | WaitReason::RecoveryTurn
        | WaitReason::SweepTurn
        | WaitReason::Unit => "muster",
        WaitReason::AtRest
        | WaitReason::Claim
        | WaitReason::Maintenance
        | WaitReason::Person
        | WaitReason::Scheduler => "person",
    }
}

/// Links to the results of an operation.
pub(crate) fn link_results(
    operation: &Operation,
    around: Option<&AroundRow>,
    runs: &[RunRow],
) -> OperationResult {
    let link = |of: &str, link: String, told: Option<String>| ResultLink {
        of: of.into(),
        link,
        told,
    };
    let mut links = Vec::new();
    if let Some(claim) = around.and_then(|around| around.claim.as_ref()) {
        links.push(link("claim", format!("/v1/claims/{claim}"), None));
    }
    if let Some(target) = &operation.target {
        links.push(link("node", target.link.clone(), None));
        let did = |wanted: &[&str]| {
            operation
                .steps
                .iter()
                .any(|step| step.state == "succeeded" && wanted.contains(&step.step.as_str()))
        };
        if did(&["inventory"]) {
            links.push(link("facts", format!("{}/facts", target.link), None));
        }
        if did(&["converge", "recheck", "drift"]) {
            links.push(link("drift", format!("{}/drift", target.link), None));
        }
        let run = |run: &RunRow| {
            let told = format!("{}: {}", run.suite, run.verdict);
            link("gate_run", format!("{}/gate-runs", target.link), Some(told))
        };
        links.extend(runs.iter().map(run));
    }
    if !operation.steps.is_empty() {
        links.push(link("log", format!("{}/log", operation.link), None));
    }
    OperationResult { links }
}
