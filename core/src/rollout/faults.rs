//! Errors in a policy itself, without a fleet. Each fault has the place in the policy, a code and a
//! correction.

use std::collections::BTreeSet;

use super::amount::Amount;
use super::policy::{
    Budgets, Canary, DrainPolicy, FailureBudget, HaltWhen, OrderKey, RolloutPolicy, Waves,
};
use super::regression::Regression;

const DAY_S: u32 = 24 * 3600;
const MOST_NOTICES: usize = 8;
const MOST_SIGNALS: usize = 20;
/// Longest name of another object, in characters.
const LONGEST_NAME: usize = 200;

/// An error in a policy or in maintenance windows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The place in the document, with slashes: `canary/count`.
    pub pointer: String,
    /// The code for programs: `out_of_range`, `ambiguous`, `duplicate`, `unknown` or
    /// `unit_too_large`.
    pub code: &'static str,
    /// The correction for people.
    pub detail: String,
}

impl Fault {
    pub(super) fn new(
        pointer: impl Into<String>,
        code: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            pointer: pointer.into(),
            code,
            detail: detail.into(),
        }
    }
}

impl RolloutPolicy {
    /// Returns every error in the policy. Empty for a valid policy.
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        if let Some(canary) = &self.canary {
            check_canary(canary, &mut faults);
        }
        check_waves(&self.waves, &mut faults);
        check_order(&self.order, &mut faults);
        check_drain(self.drain, self.drain_lead_s, &mut faults);
        check_budgets(self.budgets, &mut faults);
        check_failures(self.failure_budget, &mut faults);
        if !(600..=30 * DAY_S).contains(&self.stall_after_s) {
            let detail = "600 to 2592000 seconds.";
            faults.push(Fault::new("stall_after_s", "out_of_range", detail));
        }
        check_signals(&self.halt_when, &mut faults);
        if let Some(name) = &self.after {
            check_name("after".to_owned(), name, &mut faults);
        }
        check_notices(&self.notice_before_s, self.max_deferral_s, &mut faults);
        faults
    }
}

fn check_signals(signals: &[HaltWhen], faults: &mut Vec<Fault>) {
    if signals.len() > MOST_SIGNALS {
        let detail = format!("At most {MOST_SIGNALS} signals.");
        faults.push(Fault::new("halt_when", "out_of_range", detail));
    }
    let mut known = BTreeSet::new();
    for (at, signal) in signals.iter().enumerate() {
        if let HaltWhen::Regression(limit) = signal
            && !known.insert((&limit.gate, &limit.metric))
        {
            let pointer = format!("halt_when/{at}/regression");
            let detail = "Write one limit for each metric.";
            faults.push(Fault::new(pointer, "duplicate", detail));
        }
        let names = match signal {
            HaltWhen::Alert(name) => vec![("alert", name)],
            HaltWhen::Monitor(name) => vec![("monitor", name)],
            HaltWhen::Regression(limit) => {
                check_regression(at, limit, faults);
                vec![
                    ("regression/gate", &limit.gate),
                    ("regression/metric", &limit.metric),
                ]
            }
        };
        for (member, name) in names {
            check_name(format!("halt_when/{at}/{member}"), name, faults);
        }
    }
}

fn check_name(pointer: String, name: &str, faults: &mut Vec<Fault>) {
    if name.is_empty() || name.chars().count() > LONGEST_NAME {
        let detail = format!("1 to {LONGEST_NAME} characters.");
        faults.push(Fault::new(pointer, "out_of_range", detail));
    }
}

fn check_regression(at: usize, limit: &Regression, faults: &mut Vec<Fault>) {
    if !(1..=1000).contains(&limit.percent) {
        let pointer = format!("halt_when/{at}/regression/percent");
        faults.push(Fault::new(pointer, "out_of_range", "1 to 1000 percent."));
    }
    if limit.nodes == 0 {
        let pointer = format!("halt_when/{at}/regression/nodes");
        faults.push(Fault::new(pointer, "out_of_range", "At least 1 node."));
    }
}

fn check_canary(canary: &Canary, faults: &mut Vec<Fault>) {
    if canary.count.is_some() != canary.nodes.is_empty() {
        let detail = "Write either count or nodes.";
        faults.push(Fault::new("canary", "ambiguous", detail));
    }
    if canary.count == Some(0) {
        let detail = "At least 1 node. For a rollout without a canary write null.";
        faults.push(Fault::new("canary/count", "out_of_range", detail));
    }
    let names: BTreeSet<&String> = canary.nodes.iter().collect();
    if names.len() < canary.nodes.len() {
        faults.push(Fault::new(
            "canary/nodes",
            "duplicate",
            "Name each node once.",
        ));
    }
    if canary.soak_s > 14 * DAY_S {
        let detail = "At most 1209600 seconds.";
        faults.push(Fault::new("canary/soak_s", "out_of_range", detail));
    }
}

fn check_waves(waves: &Waves, faults: &mut Vec<Fault>) {
    match waves {
        Waves::Sizes(sizes) => {
            for (index, size) in sizes.iter().enumerate() {
                check_amount(*size, format!("waves/sizes/{index}"), faults);
            }
        }
        Waves::Exponential { initial, factor } => {
            check_amount(*initial, "waves/exponential/initial", faults);
            if !(2..=10).contains(factor) {
                let pointer = "waves/exponential/factor";
                faults.push(Fault::new(pointer, "out_of_range", "2 to 10."));
            }
        }
    }
}

fn check_order(order: &[OrderKey], faults: &mut Vec<Fault>) {
    for (index, key) in order.iter().enumerate() {
        let pointer = format!("order/{index}");
        if order[..index].contains(key) {
            faults.push(Fault::new(&pointer, "duplicate", "Write each key once."));
        }
        if matches!(key, OrderKey::Label(label) if label.is_empty()) {
            faults.push(Fault::new(&pointer, "out_of_range", "Name a label."));
        }
    }
}

fn check_drain(drain: DrainPolicy, lead_s: u32, faults: &mut Vec<Fault>) {
    if lead_s > DAY_S {
        let detail = "At most 86400 seconds: a closed node is idle for up to this time.";
        faults.push(Fault::new("drain_lead_s", "out_of_range", detail));
    }
    match drain {
        DrainPolicy::Wait => {}
        DrainPolicy::Deadline { after_s, then: _ } => {
            if !(60..=30 * DAY_S).contains(&after_s) {
                let pointer = "drain/deadline/after_s";
                faults.push(Fault::new(
                    pointer,
                    "out_of_range",
                    "60 to 2592000 seconds.",
                ));
            }
        }
    }
}

fn check_notices(before: &[u32], deferral_s: u32, faults: &mut Vec<Fault>) {
    if before.len() > MOST_NOTICES {
        let detail = "At most 8 notices.";
        faults.push(Fault::new("notice_before_s", "out_of_range", detail));
    }
    for (index, seconds) in before.iter().enumerate() {
        let pointer = format!("notice_before_s/{index}");
        if !(300..=14 * DAY_S).contains(seconds) {
            let detail = "300 to 1209600 seconds.";
            faults.push(Fault::new(&pointer, "out_of_range", detail));
        }
        if before[..index].contains(seconds) {
            faults.push(Fault::new(&pointer, "duplicate", "Write each time once."));
        }
    }
    if deferral_s > 30 * DAY_S {
        let detail = "At most 2592000 seconds.";
        faults.push(Fault::new("max_deferral_s", "out_of_range", detail));
    }
}

fn check_budgets(budgets: Budgets, faults: &mut Vec<Fault>) {
    check_amount(budgets.max_waiting, "budgets/max_waiting", faults);
    check_amount(budgets.max_changing, "budgets/max_changing", faults);
    check_amount(budgets.max_validating, "budgets/max_validating", faults);
}

fn check_failures(budget: FailureBudget, faults: &mut Vec<Fault>) {
    if budget.count.is_none() && budget.percent.is_none() {
        let detail = "Write count, percent or both.";
        faults.push(Fault::new("failure_budget", "ambiguous", detail));
    }
    if budget
        .percent
        .is_some_and(|percent| !(1..=100).contains(&percent))
    {
        let detail = "1 to 100. To stop at the first failure write a count of 0.";
        faults.push(Fault::new("failure_budget/percent", "out_of_range", detail));
    }
}

fn check_amount(amount: Amount, pointer: impl Into<String>, faults: &mut Vec<Fault>) {
    if amount == Amount::Count(0) {
        faults.push(Fault::new(pointer, "out_of_range", "At least 1 node."));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effects::Effect;
    use crate::rollout::policy::Allow;

    fn read(text: &str) -> RolloutPolicy {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn defaults_and_every_written_form_are_valid() {
        assert_eq!(read("{}"), RolloutPolicy::default());
        let whole = read(
            r#"{"canary": {"nodes": ["n1", "n2"]}, "waves": {"sizes": [1, "10%"]},
                "order": ["rack", {"label": "zone"}, "idle_first", "job_end"],
                "drain": {"deadline": {"after_s": 3600, "then": "requeue"}},
                "budgets": {"max_changing": 4}, "failure_budget": {"count": 0},
                "allow": "reinstall", "train": true, "visit_by": "2027-01-01T00:00:00Z",
                "notice_before_s": [86400, 3600], "max_deferral_s": 604800}"#,
        );
        let exponential = read(
            r#"{"canary": null, "waves": {"exponential": {"initial": 1, "factor": 2}}, "drain": "wait"}"#,
        );
        for policy in [RolloutPolicy::default(), whole, exponential] {
            assert_eq!(policy.faults(), [], "{policy:?}");
            let again = serde_json::to_string(&policy).unwrap();
            assert_eq!(read(&again), policy);
        }
    }

    #[test]
    fn each_fault_has_a_pointer_and_a_code() {
        let table = [
            (r#"{"canary": {}}"#, "canary", "ambiguous"),
            (
                r#"{"canary": {"count": 1, "nodes": ["n1"]}}"#,
                "canary",
                "ambiguous",
            ),
            (
                r#"{"canary": {"count": 0}}"#,
                "canary/count",
                "out_of_range",
            ),
            (
                r#"{"canary": {"nodes": ["n1", "n1"]}}"#,
                "canary/nodes",
                "duplicate",
            ),
            (
                r#"{"canary": {"count": 1, "soak_s": 1209601}}"#,
                "canary/soak_s",
                "out_of_range",
            ),
            (
                r#"{"waves": {"sizes": [1, 0]}}"#,
                "waves/sizes/1",
                "out_of_range",
            ),
            (
                r#"{"waves": {"exponential": {"initial": 0, "factor": 2}}}"#,
                "waves/exponential/initial",
                "out_of_range",
            ),
            (
                r#"{"waves": {"exponential": {"initial": 1, "factor": 1}}}"#,
                "waves/exponential/factor",
                "out_of_range",
            ),
            (r#"{"order": ["rack", "rack"]}"#, "order/1", "duplicate"),
            (r#"{"order": [{"label": ""}]}"#, "order/0", "out_of_range"),
            (
                r#"{"drain": {"deadline": {"after_s": 59, "then": "ask"}}}"#,
                "drain/deadline/after_s",
                "out_of_range",
            ),
            (r#"{"drain_lead_s": 86401}"#, "drain_lead_s", "out_of_range"),
            (
                r#"{"budgets": {"max_waiting": 0}}"#,
                "budgets/max_waiting",
                "out_of_range",
            ),
            (r#"{"failure_budget": {}}"#, "failure_budget", "ambiguous"),
            (
                r#"{"failure_budget": {"percent": 0}}"#,
                "failure_budget/percent",
                "out_of_range",
            ),
            (r#"{"stall_after_s": 1}"#, "stall_after_s", "out_of_range"),
            (
                r#"{"halt_when": [{"alert": "A"}, {"monitor": ""}]}"#,
                "halt_when/1/monitor",
                "out_of_range",
            ),
        ];
        check_table(&table);
    }

    #[test]
    fn notices_and_deferrals_have_ranges() {
        let table = [
            (
                r#"{"notice_before_s": [300, 301, 302, 303, 304, 305, 306, 307, 308]}"#,
                "notice_before_s",
                "out_of_range",
            ),
            (
                r#"{"notice_before_s": [3600, 299]}"#,
                "notice_before_s/1",
                "out_of_range",
            ),
            (
                r#"{"notice_before_s": [3600, 3600]}"#,
                "notice_before_s/1",
                "duplicate",
            ),
            (
                r#"{"max_deferral_s": 2592001}"#,
                "max_deferral_s",
                "out_of_range",
            ),
        ];
        check_table(&table);
    }

    /// Checks that each policy has a single fault, with a pointer and a code.
    fn check_table(table: &[(&str, &str, &str)]) {
        for (text, pointer, code) in table {
            let faults = read(text).faults();
            let found: Vec<_> = faults
                .iter()
                .map(|f| (f.pointer.as_str(), f.code))
                .collect();
            assert_eq!(found, [(*pointer, *code)], "{text}");
        }
    }

    #[test]
    fn unknown_members_are_rejected() {
        for text in [
            r#"{"safety_limit": 50}"#,
            r#"{"canary": {"count": 1, "percent": 2}}"#,
            r#"{"drain": {"deadline": {"after_s": 60, "then": "kill"}}}"#,
            r#"{"drain": {"deadline": {"after_s": 60, "then": "ask", "force": true}}}"#,
            r#"{"allow": "wipe"}"#,
        ] {
            assert!(
                serde_json::from_str::<RolloutPolicy>(text).is_err(),
                "{text}"
            );
        }
    }

    #[test]
    fn an_allowed_effect_covers_the_cheaper_effects_and_no_wipe() {
        for allow in Allow::ALL {
            assert!(
                allow.permits(Effect::None) && allow.permits(Effect::InPlace),
                "{allow}"
            );
            assert!(!allow.permits(Effect::Wipe), "{allow}");
        }
        assert!(
            !Allow::Reboot.permits(Effect::Reinstall) && !Allow::InPlace.permits(Effect::Reboot)
        );
        assert!(
            Allow::Reinstall.permits(Effect::Reinstall) && Allow::Reboot.permits(Effect::Reboot)
        );
    }
}
