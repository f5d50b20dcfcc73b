//! All findings about a stack: the rule book, the stack's own declarations, and its outline.

use super::book::{Rule, When, book};
use super::checks::{Outcome, run_check, same_module};
use super::known_bad::check_known_bad;
use super::observed::check_observed;
use super::packages::{Packages, Subject};
use super::selector::check_selector;
use super::{Finding, Level, outline};

/// Returns all findings about a stack, the worst first: rules, known-bad combinations, selector,
/// observed facts, and errors in the stack itself.
pub fn findings(subject: Subject<'_>) -> Vec<Finding> {
    let needs_gpu = subject.stack.when.is_empty();
    let stack = subject.stack.with_conditional_items();
    let subject = Subject {
        stack: &stack,
        ..subject
    };
    let packages = Packages::of(book(), subject);
    let mut found = outline::findings(subject.stack);
    let rules = book().rules.iter();
    for rule in rules.filter(|rule| is_applicable(&rule.when, &packages)) {
        found.extend(
            run_check(&rule.check, &packages)
                .into_iter()
                .map(|outcome| build_finding(rule, outcome, &packages)),
        );
    }
    found.extend(check_known_bad(&packages));
    found.extend(check_selector(book(), &packages, needs_gpu));
    found.extend(check_observed(subject));
    found.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    found.dedup();
    found
}

/// Returns the reason for rejecting a stack at publish or install, in one sentence. Returns `None`
/// if all findings permit the stack.
pub fn refusal(subject: Subject<'_>) -> Option<String> {
    let refused: Vec<String> = findings(subject)
        .iter()
        .filter(|finding| finding.level == Level::Refused)
        .map(ToString::to_string)
        .collect();
    (!refused.is_empty()).then(|| refused.join("; "))
}

fn is_applicable(when: &When, packages: &Packages<'_>) -> bool {
    let stack = packages.subject.stack;
    let selector = stack.selector.as_ref();
    let fits =
        |wanted: Option<bool>, is: Option<bool>| wanted.is_none_or(|wanted| is == Some(wanted));
    let loads = |module: &String| {
        stack
            .modules_load
            .iter()
            .any(|loaded| same_module(loaded, module))
    };
    when.has
        .iter()
        .all(|word| !packages.component(word).is_empty())
        && (when.gpu.is_empty() || packages.gpus().iter().any(|gpu| when.gpu.contains(gpu)))
        && fits(
            when.nvswitch,
            selector.and_then(|selector| selector.nvswitch),
        )
        && fits(when.nvlink5, selector.and_then(|selector| selector.nvlink5))
        && fits(when.cdi, Some(stack.uses_cdi()))
        && when.modules.iter().all(loads)
}

fn build_finding(rule: &Rule, outcome: Outcome, packages: &Packages<'_>) -> Finding {
    let (level, sentence, about) = match outcome {
        Outcome::Violated(slots) => {
            let words = [
                ("{of}", &slots.of),
                ("{on}", &slots.on),
                ("{want}", &slots.want),
                ("{gpu}", &slots.gpu),
                ("{missing}", &slots.missing),
            ];
            let sentence = words
                .into_iter()
                .fold(rule.says.clone(), |text, (word, value)| {
                    text.replace(word, value)
                });
            (Level::Refused, sentence, slots.about)
        }
        // A lock and the image contain every fact needed by a rule. A system installed without
        // Muster has neither.
        Outcome::Unknown(lacks) if packages.strange() => (
            Level::Unknown,
            cannot_be_judged(rule, &lacks),
            String::new(),
        ),
        Outcome::Unknown(lacks) | Outcome::Missing(lacks) => (
            rule.unknown.level(packages.locked()),
            cannot_be_judged(rule, &lacks),
            String::new(),
        ),
    };
    Finding {
        rule: rule.id.clone(),
        level,
        sentence,
        source: rule.source.clone(),
        about,
    }
}

fn cannot_be_judged(rule: &Rule, lacks: &str) -> String {
    format!("{} cannot be judged: {lacks}", rule.title)
}
