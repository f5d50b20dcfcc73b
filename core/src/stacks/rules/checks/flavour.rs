//! Check: the flavour of the kernel modules is allowed for the GPU family.

use super::super::book::FlavourRow;
use super::super::packages::{Packages, Present};
use super::{Outcome, Slots};

pub(super) fn check_flavour(
    packages: &Packages<'_>,
    among: &[String],
    rows: &[FlavourRow],
) -> Vec<Outcome> {
    let present: Vec<(&String, Present)> = among
        .iter()
        .filter_map(|component| {
            let package = packages.component(component).into_iter().next()?;
            Some((component, package))
        })
        .collect();
    let Some((_, package)) = present.first() else {
        return Vec::new();
    };
    let gpus = packages.gpus();
    if gpus.is_empty() {
        return vec![Outcome::Unknown(format!(
            "{package} is there, and selector.gpu does not say for which GPUs"
        ))];
    }
    let mut outcomes = Vec::new();
    for gpu in &gpus {
        let Some(row) = rows.iter().find(|row| row.gpu.contains(gpu)) else {
            let sentence = format!("nothing is written down of {gpu:?}");
            outcomes.push(Outcome::Unknown(sentence));
            continue;
        };
        let misfits = present
            .iter()
            .filter(|(component, _)| !row.allowed.contains(component));
        outcomes.extend(misfits.map(|(_, package)| wrong_flavour(package, gpu, row)));
    }
    outcomes
}

fn wrong_flavour(package: &Present, gpu: &str, row: &FlavourRow) -> Outcome {
    let allowed: Vec<&str> = row
        .allowed
        .iter()
        .map(|component| component.trim_start_matches("module_"))
        .collect();
    Outcome::Violated(Slots {
        of: package.to_string(),
        want: format!("{} kernel modules", allowed.join(" or ")),
        gpu: gpu.replace('_', " "),
        about: package.name.clone(),
        ..Slots::default()
    })
}
