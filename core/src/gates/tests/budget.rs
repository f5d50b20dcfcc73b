//! The size of a run.

use jiff::Timestamp;

use super::*;

fn result(stdout: String) -> GateResult {
    let evidence = Evidence {
        stdout,
        ..Evidence::default()
    };
    GateResult {
        gate: "disk.fio".into(),
        title: "Disk".into(),
        stage: Stage::Node,
        required: true,
        shadow: false,
        verdict: Verdict::Fail,
        reason: "too slow".into(),
        finding: String::new(),
        measured: Vec::new(),
        started_at: Timestamp::UNIX_EPOCH,
        duration_ms: 1,
        former: Vec::new(),
        waived: None,
        evidence: evidence.sealed(),
    }
}

#[test]
fn a_run_within_its_size_stays_whole_and_a_larger_run_is_cut_with_a_mark() {
    let whole = vec![result("x".repeat(60 << 10)); 10];
    let mut results = whole.clone();
    cut_evidence(&mut results, RUN_BYTES);
    assert_eq!(results, whole);
    assert!(results[0].evidence.is_whole());

    let mut results = vec![result("é".repeat(30 << 10) + "the end"); 200];
    cut_evidence(&mut results, RUN_BYTES);
    let size = serde_json::to_vec(&results).unwrap().len();
    assert!(size <= RUN_BYTES, "{size}");
    let evidence = &results[0].evidence;
    assert!(evidence.stdout.starts_with("… cut here"), "{evidence:?}");
    assert!(evidence.stdout.ends_with("the end"));
    assert!(!evidence.is_whole(), "the digest is of the whole text");
    assert_eq!(results[0].verdict, Verdict::Fail);
}
