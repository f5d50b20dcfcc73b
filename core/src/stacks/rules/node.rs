//! A stack for one node: what is fine for the stack in general may be wrong for this one's hardware, and what nobody saw is not known.

use super::book::book;
use super::packages::{Packages, Subject};
use super::{Finding, Level, findings};
use crate::stacks::StackSpec;

/// As [`findings`], of a stack that is to go onto a node; with what cannot be told where nobody has looked at the node. The image is none where
/// somebody else installed it: of that system nobody knows what it has.
pub fn findings_of_node(subject: Subject<'_>) -> Vec<Finding> {
    let mut found = findings(subject);
    if subject.facts.is_none() && asks(subject.stack) {
        let (rule, about) = ("selector".to_owned(), "selector".to_owned());
        let sentence =
            "nobody has looked at the node: whether its hardware is what the stack is for is not known".to_owned();
        found.push(Finding {
            rule,
            level: Level::Unknown,
            sentence,
            source: String::new(),
            about,
        });
    }
    found
}

/// Whether a stack is for some hardware and not for other.
fn asks(stack: &StackSpec) -> bool {
    let packages = Packages::of(
        book(),
        Subject {
            stack,
            image: None,
            facts: None,
        },
    );
    let named = stack
        .selector
        .as_ref()
        .is_some_and(|selector| selector.gpu.is_some());
    named
        || book()
            .components
            .iter()
            .any(|(word, one)| one.runs.is_some() && !packages.component(word).is_empty())
}
