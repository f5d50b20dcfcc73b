//! Compatibility rules: data with sources ([`book`]), checked against a stack before any change on
//! a node. A bad combination is rejected at publish, and again when a node's plan is made. A rule
//! without enough facts never passes: the finding names the missing fact, and each rule defines
//! whether a missing fact rejects the stack.

mod book; // The rule book in Rust types
mod branches; // Branches of the driver, as data
mod checks; // The kinds of check, one file each
mod evaluate; // All findings about a stack
mod hardware; // Checks of firmware and BIOS items
mod kernels; // The kernels of a stack
mod known_bad; // Combinations declared as bad by a stack
mod node; // Findings about a stack on one node
mod observed; // Firmware and expectations against the facts of a node
pub mod outline; // Errors in the stack itself, for any node
mod packages; // Packages of a stack on a node, by component
pub mod page; // The rules as a table for people
mod selector; // A stack's selector against image and node
mod sources; // Addresses of the sources of facts
mod support; // The maker's support of a driver branch on a day
#[cfg(test)]
mod tests;
mod version; // Versions, without epoch and revision

use serde::{Deserialize, Serialize};

pub use self::book::{Rule, Rulebook, book};
pub use self::branches::{
    BranchKind, BranchTable, DriverBranch, SecurityFix, StackDriver, branch_table, find_driver,
};
pub use self::evaluate::{findings, refusal};
pub use self::node::findings_of_node;
pub use self::observed::expectations;
pub use self::packages::{Subject, families};
pub use self::sources::find_link;
pub use self::support::{NEAR_DAYS, Support, judge_support};
pub use self::version::glob;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Information without an error.
    Note,
    /// A fact is missing, so the rule could neither pass nor fail.
    Unknown,
    /// The stack cannot work, or a required proof of compatibility is missing. The stack is neither
    /// published nor installed.
    Refused,
}

/// A finding of a rule about a stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Finding {
    /// Id of the rule, such as `R3`. For findings outside the rule book: `selector`, `known_bad`,
    /// `firmware`, `expects`, `outline`.
    pub rule: String,
    pub level: Level,
    /// The finding in one sentence: both versions, and a version that would work.
    pub sentence: String,
    /// Source of the fact.
    pub source: String,
    /// The word in the stack causing the finding: a package, a path, a setting.
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
