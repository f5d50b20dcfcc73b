//! Verdicts from a pair's gate results, for each direction and for both.

use jiff::Timestamp;

use crate::fabric::{Pair, both_ways, one_way};
use crate::gates::{Evidence, Gate, GateResult, Judged, Stage, Suite, Verdict};

fn gate(id: &str, more: &str) -> Gate {
    let text = format!(
        "id = \"{id}\"\ntitle = \"t\"\nstage = \"pair\"\ntimeout_s = 1\nparser = \"iperf3\"\ncriteria = []\nfinding = \"f\"\n{more}"
    );
    toml::from_str(&text).unwrap()
}

fn result(gate: &str, verdict: Verdict) -> GateResult {
    GateResult {
        gate: gate.into(),
        title: "t".into(),
        stage: Stage::Pair,
        required: true,
        shadow: false,
        verdict,
        reason: String::new(),
        measured: Vec::new(),
        started_at: Timestamp::UNIX_EPOCH,
        duration_ms: 0,
        former: Vec::new(),
        finding: String::new(),
        waived: None,
        evidence: Evidence::default(),
    }
}

fn said(results: &[(&str, Verdict)]) -> Verdict {
    let gates = vec![
        gate("must", ""),
        gate("may", "required = false\n"),
        gate("new", "shadow = true\n"),
    ];
    let suite = Suite {
        name: "s".into(),
        version: "1".into(),
        gates,
    };
    let results: Vec<GateResult> = results
        .iter()
        .map(|(gate, verdict)| result(gate, *verdict))
        .collect();
    let wanted: Vec<String> = results.iter().map(|result| result.gate.clone()).collect();
    one_way(
        &Judged {
            suite: &suite,
            profile: None,
            wanted: &wanted,
            now: Timestamp::UNIX_EPOCH,
        },
        &results,
    )
}

#[test]
fn a_pass_needs_something_measured() {
    use Verdict::{Error, Fail, Pass, Skipped};
    assert_eq!(said(&[("must", Pass), ("may", Skipped)]), Pass);
    assert_eq!(said(&[("must", Pass), ("may", Fail)]), Fail);
    assert_eq!(said(&[("must", Error), ("may", Pass)]), Error);
    assert_eq!(
        said(&[("may", Skipped)]),
        Error,
        "nothing blocks, and nothing was measured"
    );
    assert_eq!(
        said(&[("may", Skipped), ("new", Pass)]),
        Error,
        "a shadow proves nothing"
    );
    assert_eq!(said(&[("must", Pass), ("new", Fail)]), Pass);
    assert_eq!(said(&[]), Error);
}

#[test]
fn one_slow_way_is_a_slow_pair() {
    use Verdict::{Error, Fail, Pass, Skipped};
    let both = |ways| both_ways(Pair::of(0, 1), ways).verdict;
    assert_eq!(both([Pass, Pass]), Pass);
    assert_eq!([both([Pass, Fail]), both([Fail, Error])], [Fail, Fail]);
    assert_eq!([both([Pass, Error]), both([Skipped, Pass])], [Error, Error]);
}
