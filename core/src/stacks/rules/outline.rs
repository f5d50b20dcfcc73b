//! What a stack says that no node would take, or that could never be filled in. Heard at publish, not from a half-installed node.

use std::collections::BTreeSet;

use super::book::book;
use super::{Finding, Level, hardware};
use crate::stacks::check::{Words, is_package, is_version};
use crate::stacks::language::is_value;
use crate::stacks::{Part, StackSpec};

/// Everything of it that is wrong in itself, without image or node.
pub fn findings(stack: &StackSpec) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut tell = |level, about: &str, sentence: String| {
        let (rule, about) = ("outline".to_owned(), about.to_owned());
        found.push(Finding {
            rule,
            level,
            sentence,
            source: String::new(),
            about,
        });
    };
    let files = stack.all_files();
    let words = Words {
        packages: stack
            .lock
            .as_ref()
            .map_or(&[], |lock| lock.packages.as_slice()),
        absent: &stack.absent,
        sysctl: &stack.sysctl,
        modules_load: &stack.modules_load,
        modules_blacklist: &stack.modules_blacklist,
        kernel_args: &stack.kernel_args,
        limits: &stack.limits,
        services: &stack.services,
        files: files
            .iter()
            .map(|file| [file.path.as_str(), &file.mode, &file.owner, &file.group])
            .collect(),
    };
    for (about, problem) in words.problems() {
        tell(Level::Refused, about, problem);
    }
    for (name, version) in &stack.packages {
        if !is_package(name) || !(version == "*" || is_version(version)) {
            tell(
                Level::Refused,
                name,
                format!("package {name:?} {version:?} is not allowed"),
            );
        } else if version == "*" && stack.lock.is_none() {
            tell(
                Level::Note,
                name,
                format!(
                    "{name} has no exact version; `muster stack lock --update` takes the newest"
                ),
            );
        }
        if stack.absent.contains(name) {
            tell(
                Level::Refused,
                name,
                format!("{name} is both wanted and absent"),
            );
        }
    }
    for file in &files {
        for part in &file.content {
            if let Part::Value(name) = part
                && !is_value(name)
            {
                let sentence = format!(
                    "file {:?} names {name:?}, which is no value of a node",
                    file.path
                );
                tell(Level::Refused, name, sentence);
            }
        }
    }
    both_ways(stack, &mut tell);
    hardware::check(stack, &mut tell);
    found
}

/// Settings that contradict each other, and words that name nothing.
fn both_ways(stack: &StackSpec, tell: &mut impl FnMut(Level, &str, String)) {
    let blacklist: BTreeSet<&String> = stack.modules_blacklist.iter().collect();
    for module in stack
        .modules_load
        .iter()
        .filter(|module| blacklist.contains(module))
    {
        tell(
            Level::Refused,
            module,
            format!("module {module} is both loaded and blacklisted"),
        );
    }
    let mut seen = BTreeSet::new();
    for service in stack
        .services
        .iter()
        .filter(|service| !seen.insert(&service.name))
    {
        tell(
            Level::Refused,
            &service.name,
            format!("service {} is there twice", service.name),
        );
    }
    if let Some(gpu) = stack
        .selector
        .as_ref()
        .and_then(|selector| selector.gpu.as_ref())
        && !known_family(gpu)
    {
        tell(
            Level::Refused,
            gpu,
            format!("selector.gpu {gpu:?} is no family of the rule book"),
        );
    }
    if let Some(runtime) = &stack.container_runtime
        && !(is_package(&runtime.default_runtime) && runtime.default_runtime.len() < 64)
    {
        let name = &runtime.default_runtime;
        tell(
            Level::Refused,
            name,
            format!("container runtime {name:?} is not allowed"),
        );
    }
}

fn known_family(gpu: &str) -> bool {
    let book = book();
    let in_rules = book.rules.iter().any(|rule| match &rule.check {
        super::book::Check::Flavour { rows, .. } => rows
            .iter()
            .any(|row| row.gpu.iter().any(|known| known == gpu)),
        _ => false,
    });
    in_rules || book.gpus.iter().any(|models| models.family == gpu)
}
