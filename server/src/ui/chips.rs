//! Shape, colour and word of states and verdicts: never colour alone.

use muster_api::rollouts::RolloutState;
use muster_core::lifecycle::state::State;
use muster_core::rollout::Mark;
use muster_core::stacks::rules::{Level, Support};

/// A word with a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chip {
    pub word: String,
    /// Class of the colour: `ok`, `move`, `idle`, `warn`, `bad` or `off`.
    pub tone: &'static str,
    /// The path of a 12 by 12 picture.
    pub shape: &'static str,
    /// For cells too small for a word.
    pub letter: &'static str,
}

const DISC: &str = "M6 1a5 5 0 1 0 0 10A5 5 0 1 0 6 1z";
const RING: &str = "M6 1a5 5 0 1 0 0 10A5 5 0 1 0 6 1zm0 2a3 3 0 1 1 0 6a3 3 0 1 1 0-6z";
const HALF: &str = "M6 1a5 5 0 1 0 0 10A5 5 0 1 0 6 1zm0 2v6a3 3 0 1 1 0-6z";
const PLAY: &str = "M2.5 1l8.5 5l-8.5 5z";
const DOWN: &str = "M1 2.5h10l-5 8z";
const DIAMOND: &str = "M6 .5l5.5 5.5l-5.5 5.5L.5 6z";
const SQUARE: &str = "M1.5 1.5h9v9h-9z";
const CROSS: &str = "M2.6 1L6 4.4L9.4 1L11 2.6L7.6 6L11 9.4L9.4 11L6 7.6L2.6 11L1 9.4L4.4 6L1 2.6z";
/// With a bar across, because a small plain octagon looks like a disc.
const OCTAGON: &str = "M3.6.4h4.8l3.2 3.2v4.8l-3.2 3.2H3.6L.4 8.4V3.6zM2.8 4.9v2.2h6.4V4.9z";
const DASH: &str = "M1.5 4.8h9v2.4h-9z";

/// Returns the chip for a node's state.
pub(super) fn state(state: State) -> Chip {
    let (tone, shape, letter) = match state {
        State::Discovered => ("off", RING, "?"),
        State::Inspecting => ("move", HALF, "I"),
        State::Available => ("idle", RING, "A"),
        State::Imaging => ("move", PLAY, "G"),
        State::Installing => ("move", PLAY, "N"),
        State::Validating => ("move", PLAY, "V"),
        State::Admitting => ("move", PLAY, "J"),
        State::InService => ("ok", DISC, "S"),
        State::Draining => ("warn", DOWN, "D"),
        State::Repairing => ("warn", DIAMOND, "R"),
        State::Quarantined => ("bad", OCTAGON, "Q"),
        State::Failed => ("bad", CROSS, "F"),
        State::Wiping => ("move", DIAMOND, "W"),
        State::Maintenance => ("warn", SQUARE, "M"),
        State::Retired => ("off", DASH, "–"),
    };
    Chip {
        word: state.as_str().replace('_', " "),
        tone,
        shape,
        letter,
    }
}

/// Returns the chip for a state read from a document. An unknown word is shown as sent.
pub(super) fn state_word(text: &str) -> Chip {
    text.parse().map_or_else(
        |_| Chip {
            word: text.replace('_', " "),
            tone: "off",
            shape: DASH,
            letter: "!",
        },
        state,
    )
}

/// Returns the chip for a node's mark in a rollout.
pub(super) fn mark(mark: Mark) -> Chip {
    let (tone, shape, letter) = match mark {
        Mark::NotBegun => ("off", RING, "N"),
        Mark::Waiting => ("warn", SQUARE, "W"),
        Mark::Changing => ("move", PLAY, "C"),
        Mark::Validating => ("move", HALF, "V"),
        Mark::Done => ("ok", DISC, "D"),
        Mark::Skipped => ("idle", DASH, "S"),
        Mark::Failed => ("bad", CROSS, "F"),
    };
    Chip {
        word: mark.as_str().replace('_', " "),
        tone,
        shape,
        letter,
    }
}

/// Returns the chip for the state of a rollout.
pub(super) fn rollout(state: RolloutState) -> Chip {
    let (tone, shape) = match state {
        RolloutState::Planned => ("idle", RING),
        RolloutState::Running => ("move", PLAY),
        RolloutState::Halted => ("bad", OCTAGON),
        RolloutState::Done => ("ok", DISC),
        RolloutState::Superseded | RolloutState::Expired => ("off", DASH),
    };
    Chip {
        word: state.as_str().to_owned(),
        tone,
        shape,
        letter: "",
    }
}

/// Returns the chip for the support of a driver branch.
pub(super) fn support(support: &Support) -> Chip {
    let (tone, shape) = match support {
        Support::Ended(_) => ("bad", CROSS),
        Support::EndsSoon(_) => ("warn", DIAMOND),
        Support::Until(_) => ("ok", DISC),
        Support::Unknown => ("off", DASH),
    };
    Chip {
        word: support.describe(),
        tone,
        shape,
        letter: "",
    }
}

/// Returns the chip for the newest known security fix of a driver branch.
pub(super) fn fix(has_fix: Option<bool>) -> Chip {
    let (word, tone, shape) = match has_fix {
        Some(true) => ("has the known fix", "ok", DISC),
        Some(false) => ("known fix is missing", "bad", CROSS),
        None => ("fix unknown", "off", DASH),
    };
    Chip {
        word: word.to_owned(),
        tone,
        shape,
        letter: "",
    }
}

/// Returns the chip for the level of a finding about a stack.
pub(super) fn level(level: Level) -> Chip {
    let (word, tone, shape) = match level {
        Level::Refused => ("refused", "bad", CROSS),
        Level::Unknown => ("unknown", "warn", DIAMOND),
        Level::Note => ("note", "idle", RING),
    };
    Chip {
        word: word.to_owned(),
        tone,
        shape,
        letter: "",
    }
}

/// Returns the chip for the state of an operation, a job or a gate.
pub(super) fn outcome(text: &str) -> Chip {
    let (word, tone, shape) = match text {
        "succeeded" | "done" | "recovered" | "pass" | "bound" | "connected" | "active"
        | "delivered" => (text, "ok", DISC),
        "good" | "complete" | "free" => (text, "ok", DISC),
        "failed" | "fail" | "spent" | "blamed" => (text, "bad", CROSS),
        "leased" => ("running", "move", PLAY),
        "running" | "claiming" => (text, "move", PLAY),
        "releasing" => (text, "move", DIAMOND),
        "waived" | "asked" | "held" | "surplus" => (text, "warn", SQUARE),
        "error" | "unknown" | "late" | "failing" | "overdue" | "short" | "full" => {
            (text, "warn", DIAMOND)
        }
        "too_few" => ("too few idle", "warn", DIAMOND),
        "left_out" => ("left out", "off", DASH),
        "kept_out" => ("kept out", "bad", OCTAGON),
        "held_back" => ("held back", "bad", OCTAGON),
        "away" | "stopped" | "refused" => (text, "bad", OCTAGON),
        _ => (text, "off", DASH),
    };
    Chip {
        word: word.to_owned(),
        tone,
        shape,
        letter: "",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_state_has_a_letter_of_its_own() {
        let letters: BTreeSet<&str> = State::ALL.iter().map(|one| state(*one).letter).collect();
        assert_eq!(letters.len(), State::ALL.len());
        assert!(!letters.contains("!"));
        let letters: BTreeSet<&str> = Mark::ALL.iter().map(|one| mark(*one).letter).collect();
        assert_eq!(letters.len(), Mark::ALL.len());
    }
}
