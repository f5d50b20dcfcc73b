//! A node in service that is measured, against others of its pool or by a sweep that loads it: held back from the scheduler's jobs first, and given back
//! afterwards whatever came of it.

use jiff::Timestamp;

use super::decision::Decision;
use super::faults;
use super::hold::{begin, wait};
use super::snapshot::{Pairing, Snapshot};
use super::steps::Step;

pub(super) fn decide(node: &Snapshot, now: Timestamp, wanted: &Pairing) -> Decision {
    match wanted {
        Pairing::Hold => begin(node, now, Step::Hold, now),
        Pairing::Measure => begin(node, now, Step::Pair, now),
        Pairing::Waits(what) => wait(now, what, "go on with its pool's pairs"),
        Pairing::Faulty(cause) => match measuring(node) {
            Some(step) => Decision::Cancel(step),
            None => match faults::taken_out(node, now, cause.clone()) {
                // The fleet's bounds, or its protection: it serves on, and a person reads what was found.
                Decision::Granted(_) => begin(node, now, Step::Admit, now),
                taken @ (Decision::Wait(_)
                | Decision::Advance(_)
                | Decision::Start(_)
                | Decision::Retry(..)
                | Decision::Cancel(_)
                | Decision::Refused(_)) => taken,
            },
        },
        Pairing::GiveBack(at) => match measuring(node) {
            Some(step) => Decision::Cancel(step),
            None => begin(node, now, Step::Admit, *at),
        },
        Pairing::Back => Decision::Granted("it takes jobs again after its pool's pairs".into()),
    }
}

/// What of the run is still under way on it.
fn measuring(node: &Snapshot) -> Option<Step> {
    node.active()
        .map(|view| view.step)
        .filter(|step| matches!(step, Step::Hold | Step::Pair))
}
