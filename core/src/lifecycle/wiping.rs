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
        let reason = format!("unsanitised: {}", failure.message);
        return Decision::Advance(Move::to(State::Quarantined).because(reason).with(Effect::EndClaim));
    }
    follow(node, now, &[Step::BootLive, Step::Wipe], || {
        Decision::Advance(Move::to(State::Inspecting).with(Effect::ForgetInstalled).with(Effect::EndClaim))
    })
}
