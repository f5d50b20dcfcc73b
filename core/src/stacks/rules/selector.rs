//! The stack's selector against the image and the node.

use super::book::Rulebook;
use super::packages::{Packages, families};
use super::{Finding, Level};
use crate::facts::Facts;
use crate::images::ImageManifest;
use crate::stacks::language::Selector;

/// Checks the selector. `needs_gpu`: the stack has no items for nodes with a GPU alone, so all of the
/// stack's nodes need a GPU of the family.
pub(super) fn check_selector(
    book: &Rulebook,
    packages: &Packages<'_>,
    needs_gpu: bool,
) -> Vec<Finding> {
    let subject = packages.subject;
    let Some(selector) = &subject.stack.selector else {
        return Vec::new();
    };
    let mut found = Vec::new();
    if let Some(image) = subject.image {
        found.extend(check_image(selector, image));
    }
    let system = [&selector.os, &selector.os_version]
        .into_iter()
        .flatten()
        .cloned()
        .collect::<Vec<_>>()
        .join(" ");
    if packages.strange() && !system.is_empty() {
        let sentence = format!("the stack is for {system}, and somebody else installed the node");
        found.push(build_finding(Level::Unknown, sentence));
    }
    if let (Some(gpu), Some(facts)) = (&selector.gpu, subject.facts) {
        found.extend(check_gpus(book, gpu, facts, needs_gpu));
    }
    found
}

fn build_finding(level: Level, sentence: String) -> Finding {
    Finding {
        rule: "selector".into(),
        level,
        sentence,
        source: String::new(),
        about: "selector".into(),
    }
}

fn check_image(selector: &Selector, image: &ImageManifest) -> Vec<Finding> {
    let is_os = |wanted: &str| image.os == wanted;
    let is_arch = |wanted: &str| image.arch == wanted;
    let is_release = |wanted: &str| {
        image.os_version == wanted || image.os_version.starts_with(&format!("{wanted}."))
    };
    let refuse = |wanted: &str, is: &str| {
        let sentence = format!(
            "the stack is for {wanted}, the image {:?} is {is}",
            image.name
        );
        build_finding(Level::Refused, sentence)
    };
    let os = selector.os.as_deref().filter(|wanted| !is_os(wanted));
    let release = selector.os_version.as_deref();
    let release = release.filter(|wanted| !is_release(wanted));
    let arch = selector.arch.as_deref().filter(|wanted| !is_arch(wanted));
    let findings = [
        os.map(|wanted| refuse(wanted, &image.os)),
        release.map(|wanted| refuse(wanted, &image.os_version)),
        arch.map(|wanted| refuse(wanted, &image.arch)),
    ];
    findings.into_iter().flatten().collect()
}

fn check_gpus(book: &Rulebook, gpu: &String, facts: &Facts, needs_gpu: bool) -> Vec<Finding> {
    let mut found = Vec::new();
    let families = families(book, facts);
    if families.is_empty() && needs_gpu {
        let sentence = format!("the stack is for {gpu} GPUs, and the node has none");
        found.push(build_finding(Level::Refused, sentence));
    }
    if let Some(other) = families.iter().flatten().find(|family| *family != gpu) {
        let sentence = format!("the stack is for {gpu} GPUs, and the node has {other}");
        found.push(build_finding(Level::Refused, sentence));
    }
    if families.iter().any(Option::is_none) {
        let sentence = format!(
            "a GPU of the node is of a family that is not written down; the stack is for {gpu}"
        );
        found.push(build_finding(Level::Unknown, sentence));
    }
    found
}
