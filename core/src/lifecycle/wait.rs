//! The reason why a node waits: a word for programs to decide on, and a text for people.

use jiff::Timestamp;

macro_rules! wait_reasons {
    ($($(#[$doc:meta])* $variant:ident = $word:literal,)*) => {
        /// The reason why a node does not move. The database and the API store the word, in snake
        /// case.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum WaitReason {
            $($(#[$doc])* $variant,)*
        }

        impl WaitReason {
            /// Every reason, in the order of declaration.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }

            /// Parses a stored word. Returns `None` for a word of a newer version.
            pub fn parse(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

wait_reasons! {
    /// The site's agent has not taken the job yet.
    Agent = "agent",
    /// The node is at rest. A request starts the next work.
    AtRest = "at_rest",
    /// Caution mode: an administrator must confirm before anything changes a machine.
    Caution = "caution",
    /// The node is free, and no claim asks for it.
    Claim = "claim",
    /// The node's maintenance ends at a known time.
    Maintenance = "maintenance",
    /// Muster itself failed; the server's log has the error. The work is tried again.
    MusterError = "muster_error",
    /// The agent must observe how an interrupted step ended.
    Observation = "observation",
    /// Other nodes of the measurement are not ready.
    Pair = "pair",
    /// A person must act.
    Person = "person",
    /// The node is protected, and the next step destroys data.
    Protection = "protection",
    /// The rack's power budget has no room for this node.
    RackPower = "rack_power",
    /// Other nodes of the pool are recovered first.
    RecoveryTurn = "recovery_turn",
    /// The scheduler gives the node no jobs, and another owner decides when it does again.
    Scheduler = "scheduler",
    /// The disruption budget of the pool, or of a failure domain, has no free slot.
    Slot = "disruption_budget",
    /// A step is under way.
    Step = "step",
    /// A running step stops on request.
    StepStops = "step_stops",
    /// Other nodes of the pool are swept first.
    SweepTurn = "sweep_turn",
    /// A rollout changes the node together with other nodes, which are not all drained.
    Unit = "unit",
    /// The release can still be undone: the disks are kept until a known time.
    UndoWindow = "undo_window",
}

/// The reason why a node does not move, the owner of the next action, and the next action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    pub reason: WaitReason,
    /// The awaited condition, as a noun phrase: `SSH on n1`, `the site's agent to take the job`.
    pub condition: String,
    /// The owner of the next action: `muster`, `agent`, `operator`, or a person's name.
    pub owner: String,
    pub next_action: String,
    /// Latest time for the next check; `None` means only after a change.
    pub until: Option<Timestamp>,
}

pub fn describe_wait(reason: Option<&str>, condition: Option<&str>) -> Option<String> {
    let rests = reason == Some(WaitReason::AtRest.as_str());
    condition
        .filter(|_| !rests)
        .map(|thing| format!("waits for {thing}"))
}

/// Returns the awaited condition without its verb. Older agents write `waiting for SSH`, and older
/// versions of muster-node write `waits for process 7`.
pub fn awaited_thing(sentence: &str) -> &str {
    ["waiting for ", "waits for "]
        .iter()
        .find_map(|verb| sentence.strip_prefix(verb))
        .unwrap_or(sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_survives_its_word() {
        for reason in WaitReason::ALL {
            assert_eq!(WaitReason::parse(reason.as_str()), Some(*reason));
        }
        assert_eq!(WaitReason::parse("of a newer version"), None);
    }

    #[test]
    fn the_awaited_thing_is_named_without_a_verb() {
        for (sent, thing) in [
            ("waiting for SSH on n1", "SSH on n1"),
            (
                "waits for process 7, which holds a lock",
                "process 7, which holds a lock",
            ),
            ("the site's agent", "the site's agent"),
        ] {
            assert_eq!(awaited_thing(sent), thing);
        }
    }
}
