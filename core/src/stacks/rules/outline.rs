//! Errors in a stack itself: content rejected by every node, or values missing on every node.
//! Reported at publish, before any node is installed.

use std::collections::BTreeSet;

use super::book::book;
use super::{Finding, Level, hardware, kernels};
use crate::stacks::check::{Words, is_package, is_version};
use crate::stacks::language::is_value;
use crate::stacks::{FileItem, Part, StackSpec};

/// Returns the errors in a stack by itself, without image or node.
pub fn findings(stack: &StackSpec) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut report = |level, about: &str, sentence: String| {
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
        report(Level::Refused, about, problem);
    }
    check_packages(stack, &mut report);
    for file in &files {
        check_values(file, &mut report);
    }
    check_contradictions(stack, &mut report);
    kernels::check(stack, &mut report);
    hardware::check(stack, &mut report);
    found
}

fn check_packages(stack: &StackSpec, report: &mut impl FnMut(Level, &str, String)) {
    for (name, version) in &stack.packages {
        if !is_package(name) || !(version == "*" || is_version(version)) {
            let sentence = format!("package {name:?} {version:?} is not allowed");
            report(Level::Refused, name, sentence);
        } else if version == "*" && stack.lock.is_none() {
            let sentence = format!(
                "{name} has no exact version; `muster stack lock --update` takes the newest"
            );
            report(Level::Note, name, sentence);
        }
        if stack.absent.contains(name) {
            let sentence = format!("{name} is both wanted and absent");
            report(Level::Refused, name, sentence);
        }
    }
}

/// Reports values in a file missing on every node.
fn check_values(file: &FileItem, report: &mut impl FnMut(Level, &str, String)) {
    for part in &file.content {
        if let Part::Value(name) = part
            && !is_value(name)
        {
            let sentence = format!(
                "file {:?} names {name:?}, which is no value of a node",
                file.path
            );
            report(Level::Refused, name, sentence);
        }
    }
}

/// Reports contradicting settings and unknown names.
fn check_contradictions(stack: &StackSpec, report: &mut impl FnMut(Level, &str, String)) {
    let blacklist: BTreeSet<&String> = stack.modules_blacklist.iter().collect();
    for module in stack
        .modules_load
        .iter()
        .filter(|module| blacklist.contains(module))
    {
        report(
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
        report(
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
        report(
            Level::Refused,
            gpu,
            format!("selector.gpu {gpu:?} is no family of the rule book"),
        );
    }
    if let Some(runtime) = &stack.container_runtime
        && !(is_package(&runtime.default_runtime) && runtime.default_runtime.len() < 64)
    {
        let name = &runtime.default_runtime;
        report(
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
