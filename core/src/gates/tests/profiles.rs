//! Unsupported thresholds are rejected, and older profiles still load.

use super::profile;
use crate::facts::Facts;
use crate::gates::*;
use crate::profiles::{Ceiling, GatePolicy, HardwareProfile, Threshold, Word};

fn threshold() -> Threshold {
    Threshold {
        value: 380.0,
        unit: "Gb/s".into(),
        statistic: None,
        conditions: None,
        provenance: "pinned".into(),
        source: "a. person, 24 nodes".into(),
        ceiling: Some("nic".into()),
    }
}

fn sound() -> HardwareProfile {
    let mut profile = profile();
    let nic = Ceiling {
        value: 400.0,
        unit: "Gb/s".into(),
        source: "NDR".into(),
    };
    let name = Word {
        value: "NVIDIA H100".into(),
        provenance: "seed".into(),
        source: "nvidia-smi".into(),
    };
    profile.thresholds = [("rdma.bandwidth".into(), threshold())].into();
    profile.ceilings = [("nic".into(), nic)].into();
    profile.words = [("gpu.name".into(), name)].into();
    profile
}

#[test]
fn the_linter_names_what_is_wrong_with_a_threshold() {
    assert_eq!(lint_profile(&sound()), []);
    type Break = (&'static str, fn(&mut Threshold));
    let breaks: [Break; 9] = [
        ("401 Gb/s is beyond the ceiling nic: 400 Gb/s", |it| {
            it.value = 401.0
        }),
        // The mistake caught here: 380 GB/s is 3040 Gb/s.
        ("380 GB/s is beyond the ceiling nic", |it| {
            it.unit = "GB/s".into()
        }),
        ("GPUs cannot be compared with Gb/s", |it| {
            it.unit = "GPUs".into()
        }),
        ("no ceiling fibre", |it| it.ceiling = Some("fibre".into())),
        ("no provenance", |it| it.provenance.clear()),
        ("not one of seed, measured, pinned", |it| {
            it.provenance = "guess".into()
        }),
        ("no source", |it| it.source.clear()),
        ("no unit", |it| it.unit.clear()),
        ("is not a threshold", |it| it.value = f64::NAN),
    ];
    for (problem, break_it) in breaks {
        let mut profile = sound();
        break_it(profile.thresholds.get_mut("rdma.bandwidth").unwrap());
        let found = lint_profile(&profile);
        assert!(
            found
                .iter()
                .any(|(part, text)| *part == "thresholds" && text.contains(problem)),
            "{problem}: {found:?}"
        );
    }
    let mut profile = sound();
    profile.words.get_mut("gpu.name").unwrap().value.clear();
    profile.ceilings.get_mut("nic").unwrap().source.clear();
    profile.gates.insert(
        "a".into(),
        GatePolicy {
            mode: Mode::Shadow,
            because: String::new(),
        },
    );
    let parts: Vec<&str> = lint_profile(&profile)
        .iter()
        .map(|(part, _)| *part)
        .collect();
    assert_eq!(parts, ["ceilings", "words", "gates"]);
}

#[test]
fn a_profile_of_before_still_loads() {
    let threshold: Threshold = serde_json::from_str(r#"{ "value": 9.4, "unit": "Gb/s" }"#).unwrap();
    assert_eq!(
        (threshold.provenance.as_str(), threshold.ceiling),
        ("", None)
    );
    let text = serde_json::to_string(&sound()).unwrap();
    assert_eq!(
        serde_json::from_str::<HardwareProfile>(&text).unwrap(),
        sound()
    );
    // Fields unknown to older agents are sent only if used.
    let plain = serde_json::to_value(profile()).unwrap();
    assert!(
        ["words", "ceilings", "gates"]
            .iter()
            .all(|word| plain.get(word).is_none()),
        "{plain}"
    );
}

#[test]
fn a_suite_is_held_against_the_profile_it_runs_with() {
    let limit = |name: &str| Limit::Text(format!("profile:{name}"));
    let criterion = Criterion {
        metric: "rdma.bandwidth".into(),
        of: Some("65536 B".into()),
        best: None,
        op: Op::AtLeast,
        limit: limit("rdma.bandwidth"),
        unit: "Gb/s".into(),
    };
    let gate = Gate {
        parser: "perftest".into(),
        criteria: vec![criterion],
        ..super::write_gate()
    };
    let suite = |gate: Gate| Suite {
        name: "s".into(),
        version: "1".into(),
        gates: vec![gate],
    };
    assert_eq!(
        lint_with(&suite(gate.clone()), &sound()),
        Vec::<String>::new()
    );
    let mut bare = sound();
    bare.thresholds.clear();
    assert!(lint_with(&suite(gate.clone()), &bare)[0].contains("no threshold rdma.bandwidth"));
    let mut best = gate.clone();
    (best.criteria[0].of, best.criteria[0].best) = (None, Some("profile:ib.rails".into()));
    assert!(lint_with(&suite(best), &sound())[0].contains("no threshold ib.rails for the count"));
    let optional = Gate {
        required: false,
        ..gate.clone()
    };
    assert_eq!(
        lint_with(&suite(optional.clone()), &bare),
        Vec::<String>::new(),
        "it is skipped, and says so"
    );
    let mut mixed = sound();
    mixed.thresholds.get_mut("rdma.bandwidth").unwrap().unit = "GB/s".into();
    assert!(lint_with(&suite(optional), &mixed)[0].contains("is in GB/s, the criterion in Gb/s"));
    let mut zero = sound();
    zero.thresholds.get_mut("rdma.bandwidth").unwrap().value = 0.0;
    assert!(lint_with(&suite(gate.clone()), &zero)[0].contains("every value is >= 0"));
    let mut links = gate.clone();
    let criterion = &mut links.criteria[0];
    (criterion.metric, criterion.of, criterion.unit) =
        ("nvlink.links_active".into(), None, "links".into());
    links.parser = "nvidia-smi-nvlink".into();
    zero.thresholds.get_mut("rdma.bandwidth").unwrap().unit = "links".into();
    assert!(
        lint_with(&suite(links), &zero)[0].contains("every value is >= 0"),
        "no rate, and no less a slip"
    );
    let mut ports = gate.clone();
    let criterion = &mut ports.criteria[0];
    (criterion.metric, criterion.of, criterion.unit) =
        ("ib.ports_active".into(), None, "ports".into());
    ports.parser = "ibstat".into();
    zero.thresholds.get_mut("rdma.bandwidth").unwrap().unit = "ports".into();
    assert_eq!(
        lint_with(&suite(ports), &zero),
        Vec::<String>::new(),
        "a node may need no port"
    );
    let mut strict = sound();
    strict.gates.insert(
        gate.id.clone(),
        GatePolicy {
            mode: Mode::Required,
            because: "new".into(),
        },
    );
    let experimental = Gate {
        parser: "perftest-json".into(),
        shadow: true,
        ..gate
    };
    assert!(lint_with(&suite(experimental.clone()), &strict)[0].contains("is experimental"));
    // The gate does not run either if suite and profile were never compared before.
    let (facts, variables) = (
        crate::facts::Facts::default(),
        std::collections::BTreeMap::new(),
    );
    let reference = Reference {
        profile: &strict,
        facts: &facts,
        stack: None,
        variables: &variables,
    };
    assert!(
        unmeasurable(&experimental, &reference).is_some_and(|why| why.contains("is experimental"))
    );
}

#[test]
fn things_are_counted_by_whole_numbers() {
    let (facts, variables) = (Facts::default(), [].into());
    let counted = Gate {
        required: false,
        count: Some("profile:rails".into()),
        ..super::write_gate()
    };
    for value in [0.9, 8.5, -1.0, 1e12, f64::NAN] {
        let mut profile = sound();
        profile.thresholds.insert(
            "rails".into(),
            Threshold {
                value,
                unit: "ports".into(),
                ..threshold()
            },
        );
        let reference = Reference {
            profile: &profile,
            facts: &facts,
            stack: None,
            variables: &variables,
        };
        // A malformed count is an error, not an absent entity.
        assert_eq!(
            unmeasurable(&counted, &reference).filter(|why| why.contains("rails")),
            None,
            "{value}"
        );
        let assessment = assess(&counted, &[], &reference);
        assert!(
            assessment.verdict == Verdict::Error
                && assessment.reason.contains("which is not a count"),
            "{assessment:?}"
        );
        let suite = Suite {
            name: "s".into(),
            version: "1".into(),
            gates: vec![counted.clone()],
        };
        let told = lint_with(&suite, &profile);
        assert!(
            told.iter()
                .any(|text| text.contains("which is not a count")),
            "{told:?}"
        );
    }
}
