//! Outcomes of orders, from the agent.

use super::{gate_result, golden, inventory};
use crate::stacks::{ConvergeReport, ItemOutcome, ItemReport};
use crate::values::Digest;
use crate::wire::calls::ReportOutcome;
use crate::wire::failure::{Failure, FailureCode};
use crate::wire::result::{JobResult, Outcome};

#[test]
fn outcomes() {
    let outcome = |outcome| ReportOutcome {
        epoch: 1,
        attempt: 2,
        outcome,
    };
    let failure = Failure {
        code: FailureCode::Timeout,
        message: "no answer in 15 s".into(),
        retryable: true,
    };
    golden("outcome-failed", &outcome(Outcome::Failed { failure }));
    let results = vec![gate_result()];
    let gated = JobResult::Gated {
        results,
        fingerprint: Digest::of(b"hardware"),
    };
    golden(
        "outcome-gated",
        &outcome(Outcome::Succeeded { result: gated }),
    );
    let item = ItemReport {
        item: "package munge".into(),
        outcome: ItemOutcome::Changed,
        before: None,
        after: Some("0.5.15-2".into()),
    };
    let report = ConvergeReport {
        lock: Digest::of(b"lock"),
        items: vec![item],
        reboot_for: vec![],
    };
    let (host_key, boot_id) = ("ssh-ed25519 AAAA".to_owned(), "b".to_owned());
    let address = "10.77.0.11".parse().unwrap();
    let live = |inventory| JobResult::Live {
        host_key: host_key.clone(),
        boot_id: boot_id.clone(),
        address,
        bmc_certificate: None,
        inventory,
    };
    golden(
        "outcome-live",
        &outcome(Outcome::Succeeded { result: live(None) }),
    );
    let seen = Some(Box::new(inventory()));
    golden(
        "outcome-live-inventory",
        &outcome(Outcome::Succeeded { result: live(seen) }),
    );
    let changed = vec!["bios SriovGlobalEnable is Enabled, it was Disabled".into()];
    let set = JobResult::Firmware {
        inventory: Box::new(inventory()),
        changed,
    };
    golden(
        "outcome-firmware",
        &outcome(Outcome::Succeeded { result: set }),
    );
    golden(
        "outcome-converged",
        &outcome(Outcome::Succeeded {
            result: JobResult::Converged(report),
        }),
    );
}
