//! Verdicts on measured, missing and wrong values, and suites rejected by the linter.

#![expect(clippy::too_many_lines, reason = "a scenario reads in one piece")]

use proptest::prelude::*;

mod budget; // Size of a run
mod judging; // Effect of verdicts on admission
mod pairs; // Pair gates whose ends could miss each other
mod profiles; // Rejected thresholds
mod programs; // Programs that a gate may start
mod shipped; // Suites and profiles shipped with Muster
mod tools; // Packages providing the tools of gates

use std::collections::BTreeMap;

use super::*;
use crate::facts::{Disk, DiskTransport, Facts};
use crate::profiles::{HardwareProfile, Threshold};

fn profile() -> HardwareProfile {
    let toml = r#"
        model = "test"
        sockets = 1
        cores_per_socket = 2
        memory_mib = 1000
        schedulable_memory_mib = 900
        power_max_w = 300
        root_disk = {}
        [thresholds]
        "disk.write" = { value = 50.0, unit = "MB/s" }
    "#;
    toml::from_str(toml).expect("a profile")
}

fn criterion(metric: &str, op: Op, limit: Limit, unit: &str) -> Criterion {
    Criterion {
        metric: metric.into(),
        of: None,
        best: None,
        op,
        limit,
        unit: unit.into(),
    }
}

fn gate(criteria: Vec<Criterion>) -> Gate {
    let toml = "id = \"disk.fio\"\ntitle = \"Disk\"\nstage = \"node\"\nargv = [\"fio\"]\ntimeout_s = 60\nparser = \"fio\"\ncriteria = []\n\
                finding = \"slow disk\"\nneeds = [\"drained\"]\neffects = [\"writes_disk\"]\n";
    Gate {
        criteria,
        ..toml::from_str(toml).expect("a gate")
    }
}

fn write_gate() -> Gate {
    gate(vec![
        criterion(
            "fio.write_bandwidth",
            Op::AtLeast,
            Limit::Text("profile:disk.write".into()),
            "MB/s",
        ),
        criterion("fio.error", Op::Equal, Limit::Number(0.0), "errno"),
    ])
}

fn sample(metric: &'static str, entity: &str, value: f64) -> Sample {
    Sample {
        metric,
        entity: entity.into(),
        value: Limit::Number(value),
    }
}

fn verdict_over(gate: &Gate, samples: &[Sample], facts: &Facts) -> Assessment {
    let (profile, variables) = (profile(), BTreeMap::new());
    assess(
        gate,
        samples,
        &Reference {
            profile: &profile,
            facts,
            stack: None,
            variables: &variables,
        },
    )
}

fn verdict(gate: &Gate, samples: &[Sample]) -> Verdict {
    verdict_over(gate, samples, &Facts::default()).verdict
}

#[test]
fn only_a_full_measurement_within_limits_passes() {
    let good = [
        sample("fio.write_bandwidth", "", 60.0),
        sample("fio.error", "", 0.0),
    ];
    assert_eq!(verdict(&write_gate(), &good), Verdict::Pass);
    let slow = [
        sample("fio.write_bandwidth", "", 49.9),
        sample("fio.error", "", 0.0),
    ];
    assert_eq!(verdict(&write_gate(), &slow), Verdict::Fail);
    assert_eq!(
        verdict(&write_gate(), &good[..1]),
        Verdict::Error,
        "a metric is missing"
    );
    assert_eq!(
        verdict(&write_gate(), &[]),
        Verdict::Error,
        "nothing was measured"
    );
    let twice = [good[0].clone(), good[0].clone(), good[1].clone()];
    assert_eq!(
        verdict(&write_gate(), &twice),
        Verdict::Error,
        "one entity measured twice"
    );
    for odd in [f64::NAN, f64::INFINITY, -1.0] {
        let samples = [
            sample("fio.write_bandwidth", "", odd),
            sample("fio.error", "", 0.0),
        ];
        assert_eq!(verdict(&write_gate(), &samples), Verdict::Error, "{odd}");
    }
}

#[test]
fn units_and_references_must_fit() {
    let samples = [sample("fio.write_bandwidth", "", 60.0)];
    let with = |limit: Limit, unit: &str| {
        gate(vec![criterion(
            "fio.write_bandwidth",
            Op::AtLeast,
            limit,
            unit,
        )])
    };
    assert_eq!(
        verdict(&with(Limit::Number(50.0), "MB/s"), &samples),
        Verdict::Pass
    );
    assert_eq!(
        verdict(&with(Limit::Number(50.0), "GB/s"), &samples),
        Verdict::Error
    );
    for missing in [
        "profile:nowhere",
        "stack:packages",
        "variable:speed",
        "fast",
    ] {
        assert_eq!(
            verdict(&with(Limit::Text(missing.into()), "MB/s"), &samples),
            Verdict::Error,
            "{missing}"
        );
    }
    assert_eq!(
        verdict(&gate(vec![]), &samples),
        Verdict::Error,
        "no criteria"
    );
}

#[test]
fn every_entity_must_be_seen() {
    let disk = |serial: &str| Disk {
        serial: Some(serial.into()),
        transport: DiskTransport::Nvme,
        ..Disk::default()
    };
    let facts = Facts {
        disks: vec![disk("A"), disk("B")],
        ..Facts::default()
    };
    let mut gate = gate(vec![criterion(
        "smart.media_errors",
        Op::Equal,
        Limit::Number(0.0),
        "errors",
    )]);
    (gate.parser, gate.count, gate.each) = (
        "smartctl".into(),
        Some("facts:nvme_disks".into()),
        Some(Each::NvmeDisks),
    );
    let (a, b, bad) = (
        sample("smart.media_errors", "A", 0.0),
        sample("smart.media_errors", "B", 0.0),
        sample("smart.media_errors", "B", 3.0),
    );
    assert_eq!(
        verdict_over(&gate, &[a.clone(), b.clone()], &facts).verdict,
        Verdict::Pass
    );
    assert_eq!(
        verdict_over(&gate, std::slice::from_ref(&a), &facts).verdict,
        Verdict::Error
    );
    assert_eq!(
        verdict_over(&gate, &[a.clone(), a.clone()], &facts).verdict,
        Verdict::Error
    );
    assert_eq!(
        verdict_over(&gate, &[], &Facts::default()).verdict,
        Verdict::Error,
        "no disks at all is no pass"
    );
    let failed = verdict_over(&gate, &[a, bad], &facts);
    assert_eq!(failed.verdict, Verdict::Fail);
    assert_eq!(
        failed.reason,
        "smart.media_errors of B is 3 errors, expected == 0"
    );
}

#[test]
fn the_best_so_many_must_all_be_there_and_hold() {
    let mut gate = gate(vec![criterion(
        "ib.active_rate",
        Op::AtLeast,
        Limit::Number(400.0),
        "Gb/s",
    )]);
    (gate.parser, gate.criteria[0].best) = ("ibstat".into(), Some("2".into()));
    let ports = |rates: &[f64]| -> Vec<Sample> {
        rates
            .iter()
            .zip(["a", "b", "c", "d"])
            .map(|(rate, port)| sample("ib.active_rate", port, *rate))
            .collect()
    };
    assert_eq!(
        verdict(&gate, &ports(&[100.0, 400.0, 25.0, 400.0])),
        Verdict::Pass,
        "slower ones stand beside them"
    );
    assert_eq!(verdict(&gate, &ports(&[100.0, 400.0, 25.0])), Verdict::Fail);
    assert_eq!(
        verdict(&gate, &ports(&[400.0])),
        Verdict::Error,
        "one is missing"
    );
    assert_eq!(verdict(&gate, &[]), Verdict::Error);
    let twice = [ports(&[400.0]), ports(&[400.0, 400.0])].concat();
    assert_eq!(verdict(&gate, &twice), Verdict::Error, "the same one twice");
    assert_eq!(
        verdict(&gate, &ports(&[400.0, 400.0, f64::NAN])),
        Verdict::Error,
        "not even beside them"
    );
    let told = verdict_over(&gate, &ports(&[25.0, 100.0, 400.0]), &Facts::default());
    let rates: Vec<&Limit> = told
        .measured
        .iter()
        .map(|measured| &measured.value)
        .collect();
    assert_eq!(rates, [&Limit::Number(400.0), &Limit::Number(100.0)]);
    (gate.criteria[0].op, gate.criteria[0].limit) = (Op::AtMost, Limit::Number(30.0));
    assert_eq!(
        verdict(&gate, &ports(&[25.0, 100.0, 30.0])),
        Verdict::Pass,
        "the least are the best of a ceiling"
    );
    assert_eq!(verdict(&gate, &ports(&[25.0, 100.0, 40.0])), Verdict::Fail);
    for nowhere in ["profile:nowhere", "0", "facts:disks"] {
        gate.criteria[0].best = Some(nowhere.into());
        assert_eq!(
            verdict(&gate, &ports(&[25.0, 25.0])),
            Verdict::Error,
            "{nowhere}"
        );
        let (profile, facts, variables) = (profile(), Facts::default(), BTreeMap::new());
        let reference = Reference {
            profile: &profile,
            facts: &facts,
            stack: None,
            variables: &variables,
        };
        assert!(unmeasurable(&gate, &reference).is_some(), "{nowhere}");
    }
}

#[test]
fn the_linter_names_every_way_to_pass_without_measuring() {
    let sound = |gates| Suite {
        name: "admit".into(),
        version: "1".into(),
        gates,
    };
    assert_eq!(lint(&sound(vec![write_gate()])), Vec::<String>::new());
    assert!(!lint(&sound(vec![])).is_empty());
    type Break = (&'static str, fn(&mut Gate));
    let breaks: [Break; 35] = [
        ("no timeout", |gate| gate.timeout_s = 0),
        ("exceeds a week", |gate| gate.timeout_s = u64::MAX),
        ("no criteria", |gate| gate.criteria.clear()),
        ("no unit", |gate| gate.criteria[0].unit.clear()),
        ("not GB/s", |gate| gate.criteria[0].unit = "GB/s".into()),
        ("no metric", |gate| {
            gate.criteria[0].metric = "fio.colour".into()
        }),
        ("is not a limit", |gate| {
            gate.criteria[0].limit = Limit::Number(f64::NAN)
        }),
        ("every value is >= 0", |gate| {
            gate.criteria[0].limit = Limit::Number(0.0)
        }),
        ("is not a limit for this metric", |gate| {
            gate.criteria[0].limit = Limit::Text("fast".into())
        }),
        ("unknown parser", |gate| gate.parser = "guess".into()),
        ("needs an argv", |gate| gate.argv.clear()),
        ("is no program of parser fio", |gate| {
            gate.argv = vec!["/bin/sh".into(), "-c".into()]
        }),
        ("unknown variable", |gate| gate.argv.push("${user}".into())),
        ("has no `each`", |gate| gate.argv.push("${each}".into())),
        ("count is neither", |gate| gate.count = Some("0".into())),
        ("must name the same disks or mounts", |gate| {
            (gate.each, gate.count) = (Some(Each::Mounts), Some("facts:disks".into()));
            gate.argv = vec!["fio".into(), "--filename=${each}/x".into()];
        }),
        ("no finding", |gate| gate.finding.clear()),
        ("at most 3 retries", |gate| gate.retries = 4),
        ("plain file names", |gate| {
            gate.keep = vec!["../secret".into()]
        }),
        ("variables of env", |gate| {
            drop(gate.env.insert("a=b".into(), "c".into()))
        }),
        ("arch is amd64 or arm64", |gate| {
            gate.arch = vec!["vax".into()]
        }),
        ("needs a drained node", |gate| gate.needs.clear()),
        ("needs gpus_idle", |gate| {
            (gate.effects, gate.needs) = (vec![SideEffect::GpuLoad], vec![Need::Drained]);
        }),
        ("unknown check \"A99\"", |gate| {
            gate.checks = vec!["A99".into()]
        }),
        ("of is empty", |gate| {
            gate.criteria[0].of = Some(String::new())
        }),
        ("has not read the real tool's output", |gate| {
            let bandwidth = criterion(
                "nccl.bus_bandwidth_avg",
                Op::AtLeast,
                Limit::Number(1.0),
                "GB/s",
            );
            (gate.parser, gate.criteria) = ("nccl-tests-json".into(), vec![bandwidth]);
        }),
        ("is not a limit for this metric", |gate| {
            gate.criteria[0].limit = Limit::Text("profile:".into())
        }),
        ("count is neither", |gate| {
            gate.criteria[0].best = Some("0".into())
        }),
        ("`best` needs a metric per entity", |gate| {
            let ports = criterion("ib.ports", Op::AtLeast, Limit::Number(8.0), "ports");
            (gate.parser, gate.criteria) = (
                "ibstat".into(),
                vec![Criterion {
                    best: Some("8".into()),
                    ..ports
                }],
            );
        }),
        ("`best` needs a metric per entity", |gate| {
            let rate = criterion("ib.rate", Op::Equal, Limit::Number(400.0), "Gb/s");
            (gate.parser, gate.criteria) = (
                "ibstat".into(),
                vec![Criterion {
                    best: Some("8".into()),
                    ..rate
                }],
            );
        }),
        ("a window is 1 to 3600 seconds", |gate| {
            gate.window_s = Some(0)
        }),
        ("count is neither", |gate| gate.count = Some(">=0".into())),
        ("settle_s is at most 900 seconds", |gate| {
            gate.settle_s = 901
        }),
        ("settle_s needs a gate that only reads", |gate| {
            gate.settle_s = 300;
            gate.effects = vec![SideEffect::CpuLoad];
            gate.needs = vec![Need::Drained];
        }),
        ("does not grow within the window", |gate| {
            gate.window_s = Some(60)
        }),
    ];
    for (problem, break_it) in breaks {
        let mut gate = write_gate();
        break_it(&mut gate);
        let found = lint(&sound(vec![gate]));
        assert!(
            found.iter().any(|found| found.contains(problem)),
            "{problem}: {found:?}"
        );
    }
    assert!(
        lint(&sound(vec![write_gate(), write_gate()]))
            .iter()
            .any(|found| found.contains("two gates"))
    );
    let unknown_op = r#"{"metric": "m", "op": "~", "limit": 1, "unit": "u"}"#;
    assert!(
        serde_json::from_str::<Criterion>(unknown_op).is_err(),
        "an unknown operator does not even parse"
    );
}

#[test]
fn a_fingerprint_is_blind_to_order_and_sees_an_exchanged_disk() {
    let disk = |serial: &str| Disk {
        serial: Some(serial.into()),
        ..Disk::default()
    };
    let of = |serials: [&str; 2]| {
        fingerprint(&Facts {
            disks: serials.map(disk).to_vec(),
            ..Facts::default()
        })
    };
    assert_eq!(of(["A", "B"]), of(["B", "A"]));
    assert_ne!(of(["A", "B"]), of(["A", "C"]));
}

#[test]
fn a_threshold_carries_its_unit() {
    let mut profile = profile();
    let wrong = Threshold {
        unit: "MiB/s".into(),
        ..profile.thresholds["disk.write"].clone()
    };
    profile.thresholds.insert("disk.write".into(), wrong);
    let samples = [
        sample("fio.write_bandwidth", "", 60.0),
        sample("fio.error", "", 0.0),
    ];
    let (facts, variables) = (Facts::default(), BTreeMap::new());
    let reference = Reference {
        profile: &profile,
        facts: &facts,
        stack: None,
        variables: &variables,
    };
    assert_eq!(
        assess(&write_gate(), &samples, &reference).verdict,
        Verdict::Error
    );
}

#[test]
fn experimental_parsers_cannot_be_required() {
    let mut suite = Suite {
        name: "s".into(),
        version: "1".into(),
        gates: vec![gate(vec![])],
    };
    let gate = &mut suite.gates[0];
    gate.parser = "amd-smi".into();
    gate.criteria = vec![criterion(
        "gpu.count",
        Op::Equal,
        Limit::Number(8.0),
        "GPUs",
    )];
    let told = |suite: &Suite| {
        lint(suite)
            .iter()
            .any(|problem| problem.contains("required must be false"))
    };
    assert!(told(&suite));
    suite.gates[0].required = false;
    assert!(!told(&suite));
    (suite.gates[0].required, suite.gates[0].parser) = (true, "rocm-smi".into());
    assert!(!told(&suite), "it was seen on real output");
}

proptest! {
    /// For any measured values, a pass means: both metrics once, finite, within limits.
    #[test]
    fn nothing_but_a_good_measurement_passes(
        bandwidths in prop::collection::vec(prop::num::f64::ANY, 0..3),
        errors in prop::collection::vec(prop::num::f64::ANY, 0..3),
    ) {
        let mut samples: Vec<Sample> = bandwidths.iter().map(|value| sample("fio.write_bandwidth", "", *value)).collect();
        samples.extend(errors.iter().map(|value| sample("fio.error", "", *value)));
        if verdict(&write_gate(), &samples) == Verdict::Pass {
            prop_assert!(matches!(bandwidths.as_slice(), [only] if only.is_finite() && *only >= 50.0));
            prop_assert!(matches!(errors.as_slice(), [only] if *only == 0.0));
        }
    }
}
