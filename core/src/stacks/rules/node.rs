//! Findings about a stack on one node. A stack without findings in general may be wrong for the
//! node's hardware, and unobserved facts are unknown.

use super::book::book;
use super::packages::{Packages, Subject};
use super::{Finding, Level, findings};
use crate::stacks::StackSpec;

/// Returns the [`findings`] for a stack about to be installed on a node, plus a finding for a node
/// that was never inspected. The image is `None` for a system installed without Muster, because the
/// packages of such a system are unknown.
pub fn findings_of_node(subject: Subject<'_>) -> Vec<Finding> {
    let mut found = findings(subject);
    if subject.facts.is_none() && depends_on_hardware(subject.stack) {
        let (rule, about) = ("selector".to_owned(), "selector".to_owned());
        let sentence =
            "the node was never inspected: it is unknown whether its hardware fits the stack"
                .to_owned();
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

/// Returns whether the stack depends on the hardware.
fn depends_on_hardware(stack: &StackSpec) -> bool {
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
