//! Compares the stack's units with the state in systemd. A note explains each difference.

use super::{Bench, Reading};
use crate::converge::services;

pub(super) fn measure(bench: &Bench<'_>) -> Result<Reading, String> {
    let stack = bench
        .plan
        .stack
        .as_ref()
        .ok_or("no stack was given to compare with")?;
    let wrong = services::differences(&bench.machine, stack, bench.cx)
        .map_err(|failure| failure.message)?;
    let mut reading = Reading::default();
    reading.count("services.checked", stack.services.len());
    reading.count("services.wrong", wrong.len());
    reading.notes = wrong;
    Ok(reading)
}
