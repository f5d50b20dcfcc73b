//! What comes with Muster is sound, fits together, covers the field's checks, and says where each number is from.

use std::collections::{BTreeMap, BTreeSet};

use crate::gates::*;
use crate::profiles::HardwareProfile;

fn suites() -> Vec<(&'static str, Suite)> {
    SUITES
        .iter()
        .map(|file| (file.name, toml::from_str(file.text).unwrap_or_else(|error| panic!("{}: {error}", file.name))))
        .collect()
}

fn profiles() -> Vec<(&'static str, HardwareProfile)> {
    PROFILES
        .iter()
        .map(|file| (file.name, toml::from_str(file.text).unwrap_or_else(|error| panic!("{}: {error}", file.name))))
        .collect()
}

#[test]
fn every_shipped_suite_and_profile_is_sound() {
    for (name, suite) in suites() {
        assert_eq!((name, lint(&suite)), (suite.name.as_str(), Vec::<String>::new()));
    }
    for (name, profile) in profiles() {
        assert_eq!((name, lint_profile(&profile)), (profile.model.as_str(), Vec::new()));
    }
}

/// Which suites nodes of a model run.
fn fits(suite: &str, profile: &HardwareProfile) -> bool {
    let model = profile.gpus.as_ref().map_or("", |gpus| gpus.model.as_str());
    match suite {
        "admit-cpu" => model.is_empty(),
        "pairs" | "storage" => true,
        "fabric" => !model.is_empty(),
        "admit-amd" | "smoke-amd" => model.starts_with("MI"),
        _ => !model.is_empty() && !model.starts_with("MI"),
    }
}

#[test]
fn every_required_gate_finds_its_thresholds_in_every_profile_that_it_is_for() {
    let mut held = 0;
    for (name, suite) in suites() {
        for (model, profile) in profiles().iter().filter(|(_, profile)| fits(name, profile)) {
            assert_eq!(lint_with(&suite, profile), Vec::<String>::new(), "{name} on {model}");
            held += 1;
        }
    }
    // Four suites on five models of NVIDIA, two on one of AMD, the fabric on all six, pairs and storage on all seven, and one without GPUs.
    assert_eq!(held, 4 * 5 + 2 + 6 + 7 + 7 + 1);
}

#[test]
fn a_policy_of_a_profile_names_a_gate_that_there_is() {
    let ids: BTreeSet<String> = suites().into_iter().flat_map(|(_, suite)| suite.gates).map(|gate| gate.id).collect();
    for (name, profile) in profiles() {
        let strays: Vec<&String> = profile.gates.keys().filter(|id| !ids.contains(*id)).collect();
        assert!(strays.is_empty(), "{name}: {strays:?}");
    }
}

#[test]
fn a_gate_is_the_same_in_every_suite_but_for_what_it_counts_for() {
    let mut known: BTreeMap<String, (&str, Gate)> = BTreeMap::new();
    for (name, suite) in suites() {
        for gate in suite.gates {
            // Emulated machines have a shorter way.
            if name == "admit-cpu" {
                continue;
            }
            let bare = Gate { required: true, shadow: false, after_reboot: false, ..gate };
            let (first, same) = known.entry(bare.id.clone()).or_insert_with(|| (name, bare.clone()));
            assert_eq!(*same, bare, "{} in {first} and {name}", bare.id);
        }
    }
    assert!(known.len() > 40, "{}", known.len());
}

#[test]
fn every_check_is_covered_or_says_why_not() {
    let mut covered: BTreeSet<String> = BTreeSet::new();
    for (_, suite) in suites() {
        covered.extend(suite.gates.into_iter().flat_map(|gate| gate.checks));
    }
    for check in CHECKS {
        assert_eq!(covered.contains(check.id), check.not_shipped.is_empty(), "{}: {}", check.id, check.title);
    }
    let ids: Vec<String> =
        (1..=17).map(|n| format!("A{n}")).chain(["B1".into()]).chain((1..=5).map(|n| format!("C{n}"))).collect();
    let more = (1..=5).map(|n| format!("D{n}")).chain((1..=5).map(|n| format!("E{n}")));
    let wanted: Vec<String> = ids.into_iter().chain(more).collect();
    assert_eq!(CHECKS.iter().map(|check| check.id).collect::<Vec<_>>(), wanted);
}

#[test]
fn every_data_rate_of_a_gpu_model_has_a_ceiling() {
    for (name, profile) in profiles().iter().filter(|(_, profile)| profile.gpus.is_some()) {
        for (threshold, at) in &profile.thresholds {
            let rate = matches!(dimension(&at.unit), Some((Dimension::DataRate, _)));
            let bare = rate && at.ceiling.is_none() && threshold != "nvlink.link_speed";
            assert!(!bare, "{name}: {threshold} in {} has no ceiling", at.unit);
        }
    }
}

#[test]
fn smoke_asks_for_no_drain_and_loads_nothing() {
    for (name, suite) in suites().into_iter().filter(|(name, _)| name.starts_with("smoke")) {
        for gate in suite.gates {
            assert!(gate.needs.is_empty() && gate.effects.is_empty(), "{name}: {}", gate.id);
            assert!(gate.window_s.is_none(), "{name}: {}: nobody waits for a window before a job", gate.id);
        }
    }
}

#[test]
fn throttling_is_looked_at_while_the_gpus_are_loaded() {
    let with = |wanted: &str| suites().into_iter().find(|(name, _)| *name == wanted).expect("a suite").1;
    for name in ["admit", "deep", "sweep"] {
        let suite = with(name);
        let gate = suite.gates.iter().find(|gate| gate.id == "gpu.throttle").expect("C4");
        let during = gate.during.as_ref().expect("under load");
        let loads =
            suite.gates.iter().filter(|gate| during.gates.contains(&gate.id) && gate.mode(None) == Mode::Required);
        assert!(loads.count() > 0, "{name}: a load that no site leaves out");
        // Named by nothing that runs before it, it would have been looked at by itself.
        let mut alone = suite.clone();
        alone.gates.retain(|gate| !during.gates.contains(&gate.id));
        assert!(lint(&alone).iter().any(|problem| problem.starts_with("gpu.throttle: no gate before it")), "{name}");
    }
    let mut wrong = with("sweep");
    let gate = wrong.gates.iter_mut().find(|gate| gate.id == "gpu.throttle").expect("C4");
    (gate.retries, gate.during.as_mut().expect("under load").every_s) = (1, 0);
    assert_eq!(lint(&wrong).len(), 2, "{:?}", lint(&wrong));
}
