//! The effect of verdicts on admission: modes, waivers and their expiry, and missing results.

use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::{profile, write_gate};
use crate::gates::*;
use crate::profiles::GatePolicy;

const VERDICTS: [Verdict; 4] = [
    Verdict::Pass,
    Verdict::Fail,
    Verdict::Error,
    Verdict::Skipped,
];

fn now() -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap()
}

fn named(id: &str) -> Gate {
    Gate {
        id: id.into(),
        ..write_gate()
    }
}

fn result(id: &str, verdict: Verdict) -> GateResult {
    GateResult {
        gate: id.into(),
        title: id.into(),
        stage: Stage::Node,
        required: true,
        shadow: false,
        verdict,
        reason: String::new(),
        measured: Vec::new(),
        started_at: now(),
        duration_ms: 0,
        former: Vec::new(),
        finding: String::new(),
        waived: None,
        evidence: Evidence::default(),
    }
}

fn waived(id: &str, verdict: Verdict, until: Timestamp) -> GateResult {
    let waiver = Waived {
        waiver: Uuid::nil(),
        requested_by: "a".into(),
        agreed_by: "b".into(),
        reason: "a spare is on its way".into(),
        until,
    };
    GateResult {
        waived: Some(waiver),
        ..result(id, verdict)
    }
}

fn said(gates: Vec<Gate>, results: &[GateResult]) -> SuiteVerdict {
    let suite = Suite {
        name: "s".into(),
        version: "1".into(),
        gates,
    };
    judge(
        &Judged {
            suite: &suite,
            profile: None,
            wanted: &[],
            now: now(),
        },
        results,
    )
}

#[test]
fn each_mode_lets_pass_what_it_says_and_no_more() {
    use SuiteVerdict::{Fail, Pass, Unknown};
    let required = named("a");
    let optional = Gate {
        required: false,
        ..named("a")
    };
    let shadow = Gate {
        shadow: true,
        ..named("a")
    };
    for (gate, counted) in [
        (required, [Pass, Fail, Unknown, Unknown]),
        (optional, [Pass, Fail, Unknown, Pass]),
        (shadow.clone(), [Pass, Pass, Pass, Pass]),
    ] {
        for (verdict, wanted) in VERDICTS.into_iter().zip(counted) {
            assert_eq!(
                said(vec![gate.clone()], &[result("a", verdict)]),
                wanted,
                "{:?} {verdict:?}",
                gate.mode(None)
            );
        }
        let missing = if gate.shadow { Pass } else { Unknown };
        assert_eq!(said(vec![gate], &[]), missing, "no result is no pass");
    }
    // A failure outweighs a missing answer, in either order.
    let two = [result("a", Verdict::Error), result("b", Verdict::Fail)];
    assert_eq!(said(vec![named("a"), named("b")], &two), Fail);
}

#[test]
fn a_waiver_counts_for_its_own_gate_until_its_end() {
    let later = now() + SignedDuration::from_secs(1);
    for verdict in [Verdict::Fail, Verdict::Error, Verdict::Skipped] {
        assert_eq!(
            said(vec![named("a")], &[waived("a", verdict, later)]),
            SuiteVerdict::Pass,
            "{verdict:?}"
        );
        assert_ne!(
            said(vec![named("a")], &[waived("a", verdict, now())]),
            SuiteVerdict::Pass,
            "{verdict:?}: over"
        );
    }
    let both = [
        waived("a", Verdict::Fail, later),
        result("b", Verdict::Fail),
    ];
    assert_eq!(
        said(vec![named("a"), named("b")], &both),
        SuiteVerdict::Fail,
        "another gate is not waived"
    );
}

#[test]
fn a_profile_says_what_a_gate_counts_for_on_its_model() {
    let mut profile = profile();
    let policy = |mode| GatePolicy {
        mode,
        because: "no such part".into(),
    };
    let suite = Suite {
        name: "s".into(),
        version: "1".into(),
        gates: vec![named("a"), named("b")],
    };
    let results = [result("a", Verdict::Skipped), result("b", Verdict::Pass)];
    let said = |profile: &_| {
        judge(
            &Judged {
                suite: &suite,
                profile: Some(profile),
                wanted: &[],
                now: now(),
            },
            &results,
        )
    };
    assert_eq!(said(&profile), SuiteVerdict::Unknown);
    profile.gates.insert("a".into(), policy(Mode::Optional));
    assert_eq!(said(&profile), SuiteVerdict::Pass);
    profile.gates.insert("a".into(), policy(Mode::Shadow));
    assert_eq!(said(&profile), SuiteVerdict::Pass);
    // A profile can also be stricter than the suite.
    let lenient = Suite {
        gates: vec![Gate {
            shadow: true,
            ..named("a")
        }],
        ..suite.clone()
    };
    profile.gates.insert("a".into(), policy(Mode::Required));
    let judged = Judged {
        suite: &lenient,
        profile: Some(&profile),
        wanted: &[],
        now: now(),
    };
    assert_eq!(judge(&judged, &results), SuiteVerdict::Unknown);
}

#[test]
fn only_what_was_wanted_is_judged() {
    let suite = Suite {
        name: "s".into(),
        version: "1".into(),
        gates: vec![named("a"), named("b")],
    };
    let judged = |wanted: &[String]| {
        judge(
            &Judged {
                suite: &suite,
                profile: None,
                wanted,
                now: now(),
            },
            &[result("b", Verdict::Pass)],
        )
    };
    assert_eq!(judged(&["b".into()]), SuiteVerdict::Pass);
    assert_eq!(judged(&[]), SuiteVerdict::Unknown);
}

#[test]
fn evidence_that_was_changed_is_seen() {
    let evidence = Evidence {
        stdout: "0 errors".into(),
        ..Evidence::default()
    };
    assert!(!evidence.is_whole(), "it was never sealed");
    let sealed = evidence.sealed();
    assert!(sealed.is_whole() && sealed.clone().sealed() == sealed);
    let changed = Evidence {
        stdout: "9 errors".into(),
        ..sealed
    };
    assert!(!changed.is_whole());
}
