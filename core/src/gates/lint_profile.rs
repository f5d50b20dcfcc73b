//! The linter for hardware profiles. Rejects thresholds an operator cannot defend: each threshold
//! needs a unit and a source, and must lie within the physical limit of the hardware.

use super::units::convert;
use crate::profiles::HardwareProfile;

/// Allowed sources of a threshold.
const PROVENANCES: [&str; 3] = ["seed", "measured", "pinned"];

/// Returns every reason to reject the profile, as pairs of the section (`thresholds`, `words`,
/// `ceilings`, `gates`) and the problem found there; empty if the profile is valid.
pub fn lint_profile(profile: &HardwareProfile) -> Vec<(&'static str, String)> {
    let mut problems = Vec::new();
    for (name, ceiling) in &profile.ceilings {
        let mut problem = |text: &str| problems.push(("ceilings", format!("{name}: {text}")));
        if !ceiling.value.is_finite() || ceiling.value <= 0.0 {
            problem("a ceiling must exceed 0");
        }
        if ceiling.unit.is_empty() {
            problem("no unit");
        }
        if ceiling.source.is_empty() {
            problem("no source: name the specification");
        }
    }
    for name in profile.thresholds.keys() {
        problems.extend(
            lint_threshold(profile, name)
                .into_iter()
                .map(|text| ("thresholds", format!("{name}: {text}"))),
        );
    }
    for (name, word) in &profile.words {
        if word.value.is_empty() {
            problems.push(("words", format!("{name}: the word is empty")));
        }
        let said = lint_origin(&word.provenance, &word.source);
        problems.extend(
            said.into_iter()
                .map(|text| ("words", format!("{name}: {text}"))),
        );
    }
    for (gate, policy) in &profile.gates {
        if policy.because.is_empty() {
            problems.push(("gates", format!("{gate}: because is empty")));
        }
    }
    problems
}

fn lint_threshold(profile: &HardwareProfile, name: &str) -> Vec<String> {
    let Some(threshold) = profile.thresholds.get(name) else {
        return Vec::new();
    };
    let (value, unit) = (threshold.value, &threshold.unit);
    let mut problems = lint_origin(&threshold.provenance, &threshold.source);
    if !value.is_finite() || value < 0.0 {
        problems.push(format!("{value} is not a threshold"));
    }
    if unit.is_empty() {
        problems.push("no unit".into());
    }
    if let Some(of) = &threshold.ceiling {
        match profile.ceilings.get(of) {
            None => problems.push(format!("the profile has no ceiling {of}")),
            Some(ceiling) => match convert(value, unit, &ceiling.unit) {
                None => problems.push(format!(
                    "{unit} cannot be compared with {}, the unit of the ceiling {of}",
                    ceiling.unit
                )),
                Some(value) if value > ceiling.value => problems.push(format!(
                    "{} {unit} is beyond the ceiling {of}: {} {}",
                    threshold.value, ceiling.value, ceiling.unit
                )),
                Some(_) => {}
            },
        }
    }
    problems
}

fn lint_origin(provenance: &str, source: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if !PROVENANCES.contains(&provenance) {
        problems.push(match provenance {
            "" => format!("no provenance: use one of {}", PROVENANCES.join(", ")),
            other => format!(
                "provenance {other:?} is not one of {}",
                PROVENANCES.join(", ")
            ),
        });
    }
    if source.is_empty() {
        problems.push(
            "no source: name the document, the nodes, or the person who pinned the value".into(),
        );
    }
    problems
}
