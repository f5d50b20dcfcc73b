//! Every disk is erased and read back, in the live image; then the node is inspected in the same boot.

use jiff::Timestamp;

use super::decision::{Decision, Effect, Move, follow};
use super::snapshot::{Snapshot, StepStatus};
use super::state::State;
use super::steps::Step;

pub(super) fn decide(node: &Snapshot, now: Timestamp) -> Decision {
    if let Some(view) = node.step(Step::Wipe)
        && let StepStatus::Failed { failure, .. } = &view.status
        && (!failure.retryable || view.round >= Step::Wipe.max_rounds())
    {
        return unsanitised(&failure.message);
    }
    // The disks that are there now, as the live image sees them: one that came since the last inspection is wiped too.
    follow(node, now, &[Step::BootLive, Step::Inventory], || match nameless(node) {
        Some(why) => unsanitised(&why),
        None => follow(node, now, &[Step::Wipe], || {
            let clean = Move::to(State::Inspecting).with(Effect::ForgetInstalled).with(Effect::EndClaim);
            Decision::Advance(clean.with(Effect::Sanitised))
        }),
    })
}

/// Disks without a serial: no permit can name them, so nothing may write to them.
fn nameless(node: &Snapshot) -> Option<String> {
    let disks = node.facts.iter().flat_map(|facts| &facts.disks);
    let names: Vec<&str> = disks.filter(|disk| disk.serial.is_none()).map(|disk| disk.name.as_str()).collect();
    let why = "no permit can name it, so it cannot be wiped; take it out or set its serial";
    (!names.is_empty()).then(|| format!("disk {} has no serial: {why}", names.join(", ")))
}

fn unsanitised(why: &str) -> Decision {
    let reason = format!("unsanitised: {why}");
    Decision::Advance(Move::to(State::Quarantined).because(reason).with(Effect::EndClaim))
}
