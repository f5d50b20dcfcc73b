//! Firmware and BIOS against the stack. The node does not hear its BMC: what that said of what is wanted comes with the plan, and is counted here. What it
//! said nothing of is unknown, which is never a pass.

use muster_core::firmware::Compared;

use super::{Bench, Reading};

/// Why nothing can be measured: the BMC said nothing of anything that is wanted, as one without an inventory does, or IPMI.
pub(super) fn unheard(bench: &Bench<'_>) -> Option<String> {
    let wanted = bench
        .plan
        .firmware
        .as_ref()
        .filter(|wanted| !wanted.is_empty())?;
    let silent = wanted.iter().all(|one| one.found.is_none());
    silent.then(|| {
        format!(
            "its BMC says nothing of firmware and BIOS: {}",
            told(wanted.iter())
        )
    })
}

pub(super) fn measure(bench: &Bench<'_>) -> Result<Reading, String> {
    let wanted = bench
        .plan
        .firmware
        .as_ref()
        .ok_or("no stack was given to compare with")?;
    let differing: Vec<&Compared> = wanted.iter().filter(|one| one.differs()).collect();
    let unknown: Vec<&Compared> = wanted.iter().filter(|one| one.found.is_none()).collect();
    // What differs is told although something else is not known.
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

/// The first of them, for there may be hundreds.
fn told<'a>(compared: impl Iterator<Item = &'a Compared>) -> String {
    compared
        .take(5)
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}
