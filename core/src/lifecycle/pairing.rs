//! A node in service under measurement, with other nodes of its pool or by a sweep with load. The
//! scheduler starts no jobs before the measurement, and uses the node again afterwards for every
//! result.

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
        Pairing::Waits(what) => wait(now, what, "continue the pool's pair run"),
        Pairing::Faulty(cause) => match find_pair_step(node) {
            Some(step) => Decision::Cancel(step),
            None => match faults::taken_out(node, now, cause.clone()) {
                // Bounds or protection keep the node in service, and a person reads the finding.
                Decision::Granted(_) => begin(node, now, Step::Admit, now),
                taken @ (Decision::Wait(_)
                | Decision::Advance(_)
                | Decision::Start(_)
                | Decision::Retry(..)
                | Decision::Cancel(_)
                | Decision::Refused(_)) => taken,
            },
        },
        Pairing::GiveBack(at) => match find_pair_step(node) {
            Some(step) => Decision::Cancel(step),
            None => begin(node, now, Step::Admit, *at),
        },
        Pairing::Back => Decision::Granted("the node takes jobs again after the pair run".into()),
    }
}

/// Returns the run's step still under way on the node.
fn find_pair_step(node: &Snapshot) -> Option<Step> {
    node.active()
        .map(|view| view.step)
        .filter(|step| matches!(step, Step::Hold | Step::Pair))
}
