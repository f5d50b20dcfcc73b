//! Compatibility: what goes with what, as data with sources ([`book`]), held against a stack before anything is touched. A wrong tuple is refused
//! at publish, and again when a node's plan is made. What cannot be judged is never fine: it says what it lacks, and each rule says whether that
//! refuses.

mod book; // The rules as they are written down
mod checks; // The kinds of check, a file each
mod evaluate; // All findings about a stack
mod hardware; // What it says of firmware and BIOS
mod known_bad; // Combinations that a stack declares as bad
mod node; // A stack for one node
mod observed; // Firmware and expectations against the facts of a node
pub mod outline; // What a stack says that no node would take
mod packages; // What a stack puts on a node, by component
pub mod page; // The rules as a table for people
mod selector; // A stack's selector against image and node
#[cfg(test)]
mod tests;
mod version; // Versions, without epoch and revision

use serde::{Deserialize, Serialize};

pub use self::book::{Rule, Rulebook, book};
pub use self::evaluate::{findings, refusal};
pub use self::node::findings_of_node;
pub use self::observed::expectations;
pub use self::packages::{Subject, families};
pub use self::version::glob;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Worth knowing; nothing is wrong.
    Note,
    /// A fact is missing: neither right nor wrong is known.
    Unknown,
    /// It cannot work, or nothing tells that it can where that is asked for. Not published, not installed.
    Refused,
}

/// What a rule says of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Finding {
    /// `R3`, or what it is about where no rule of the book says it: `selector`, `known_bad`, `firmware`, `expects`, `outline`.
    pub rule: String,
    pub level: Level,
    /// Says both versions, and what would do.
    pub sentence: String,
    /// Where the fact stands.
    pub source: String,
    /// The word in the stack that it is about: a package, a path, a setting.
    pub about: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.rule, self.sentence)?;
        match self.source.is_empty() {
            true => Ok(()),
            false => write!(f, " ({})", self.source),
        }
    }
}
