//! Compares firmware and BIOS settings with the stack. A node cannot query its own BMC, so the
//! server sends the BMC's values with the plan and the parser counts differences. A value not
//! reported by the BMC is unknown and never passes.

use muster_core::firmware::Compared;

use super::{Bench, Reading};

/// Returns the reason when none of the required values is known, so the gate cannot measure. Typical
/// causes are a BMC without an inventory, IPMI, and a machine without a known product.
pub(super) fn unheard(bench: &Bench<'_>) -> Option<String> {
    let wanted = bench
        .plan
        .firmware
        .as_ref()
        .filter(|wanted| !wanted.is_empty())?;
    let silent = wanted.iter().all(|one| one.found.is_none());
    silent.then(|| format!("no required value is known: {}", told(wanted.iter())))
}

pub(super) fn measure(bench: &Bench<'_>) -> Result<Reading, String> {
    let wanted = bench
        .plan
        .firmware
        .as_ref()
        .ok_or("no stack was given to compare with")?;
    let differing: Vec<&Compared> = wanted.iter().filter(|one| one.differs()).collect();
    let unknown: Vec<&Compared> = wanted.iter().filter(|one| one.found.is_none()).collect();
    // Differences are reported even when other values are unknown.
    if differing.is_empty() && !unknown.is_empty() {
        return Err(told(unknown.into_iter()));
    }
    let mut reading = Reading::default();
    reading.count("firmware.checked", wanted.len() - unknown.len());
    reading.count("firmware.differing", differing.len());
    reading.notes = differing
        .into_iter()
        .chain(unknown)
        .map(ToString::to_string)
        .collect();
    Ok(reading)
}

/// Joins the first five comparisons, because a node may have hundreds.
fn told<'a>(compared: impl Iterator<Item = &'a Compared>) -> String {
    compared
        .take(5)
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}
