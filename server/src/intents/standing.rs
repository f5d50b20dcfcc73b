//! How an operation stands beside its steps: what it waits for while nothing of it is done, and what came of it. Both are read from what is there
//! already; nothing is kept for them.

use muster_api::operations::{BlockedBy, Operation, OperationResult, ResultLink, Step};

use crate::db::operations::{AroundRow, RunRow};

/// What keeps an operation from going on; `None` while somebody is at it.
pub(crate) fn blocked_by(steps: &[Step], around: &AroundRow) -> Option<BlockedBy> {
    let of = |by: &str, detail: String, link: Option<String>| BlockedBy {
        by: by.into(),
        detail,
        since: around.waiting_since.map(|at| at.to_jiff()),
        link,
    };
    let detail = around.waiting_for.clone()?;
    let open = steps
        .iter()
        .rev()
        .find(|step| matches!(step.state.as_str(), "leased" | "queued"));
    let site = || {
        around
            .site
            .as_ref()
            .map(|site| format!("/v1/sites/{site}/agents"))
    };
    if open.is_some_and(|step| step.state == "leased") {
        return None;
    }
    let caution = around.caution && around.waiting_owner.as_deref() == Some("an administrator");
    if caution {
        return Some(of("caution", detail, Some("/v1/caution".into())));
    }
    if open.is_some() {
        return Some(of("agent", detail, site()));
    }
    let claim = around
        .claim
        .as_ref()
        .map(|claim| format!("/v1/claims/{claim}"));
    Some(match around.waiting_owner.as_deref() {
        Some("muster")
            if around.node_state.as_deref() == Some("wiping") && around.undo_until.is_some() =>
        {
            of("undo_window", detail, claim)
        }
        Some("muster") if around.power_reserved_w == 0 && around.rack.is_some() => of(
            "rack_power",
            detail,
            around.rack.as_ref().map(|rack| format!("/v1/racks/{rack}")),
        ),
        Some("muster") | None => of("muster", detail, None),
        Some("agent") => of("agent", detail, site()),
        Some("operator") if around.protected => of("protection", detail, None),
        Some(_) => of("person", detail, None),
    })
}

/// Where to read what came of an operation.
pub(crate) fn result(
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
