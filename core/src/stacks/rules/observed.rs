//! Firmware and expectations of a stack against the facts that were observed on a node.

use super::packages::Subject;
use super::{Finding, Level};
use crate::facts::Facts;
use crate::stacks::StackSpec;
use crate::stacks::language::FirmwareItem;
use crate::stacks::wanted::{choose_firmware, find_product, is_for, is_of_products};

pub(super) fn check_observed(subject: Subject<'_>) -> Vec<Finding> {
    let Some(facts) = subject.facts else {
        return Vec::new();
    };
    let stack = subject.stack;
    // Locked firmware is compared with the report of the BMC, which is more complete.
    let locked = stack
        .lock
        .as_ref()
        .is_some_and(|lock| !lock.firmware.is_empty());
    let items = if locked {
        &[]
    } else {
        stack.firmware.as_slice()
    };
    let mut found: Vec<Finding> = match find_product(Some(facts)) {
        Some(product) => choose_firmware(items, |only| is_for(only, product))
            .into_iter()
            .filter_map(|item| check_firmware(item, facts))
            .collect(),
        None => choose_firmware(items, |_| true)
            .into_iter()
            .filter(|item| !is_of_products(item.product.as_deref()))
            .filter_map(|item| check_firmware(item, facts))
            .chain(items.iter().filter_map(check_product))
            .collect(),
    };
    found.extend(check_gpu_count(stack, facts));
    found
}

/// Reports an item for certain products on a machine whose product is unknown.
fn check_product(item: &FirmwareItem) -> Option<Finding> {
    let only = item.product.as_deref();
    let product = only.filter(|_| is_of_products(only))?;
    let FirmwareItem {
        component, version, ..
    } = item;
    let sentence = format!(
        "the machine's product is unknown; for {product} the {component} is wanted in version {version}"
    );
    Some(build_firmware(Level::Unknown, sentence, item))
}

fn check_firmware(item: &FirmwareItem, facts: &Facts) -> Option<Finding> {
    let FirmwareItem {
        component, version, ..
    } = item;
    let observed = (component == "bios")
        .then_some(facts.smbios.bios_version.as_deref())
        .flatten();
    let (level, sentence) = match observed {
        Some(observed) if observed == version => return None,
        Some(observed) => (
            Level::Note,
            format!("the {component} is {observed}, wanted {version}"),
        ),
        None => (
            Level::Unknown,
            format!("the {component}'s firmware was not observed, wanted {version}"),
        ),
    };
    Some(build_firmware(level, sentence, item))
}

fn build_firmware(level: Level, sentence: String, item: &FirmwareItem) -> Finding {
    Finding {
        rule: "firmware".into(),
        level,
        sentence,
        source: item.source.clone(),
        about: item.component.clone(),
    }
}

/// Notes a wrong number of GPUs. Inspection and gates judge a lost GPU, and the stack may be the
/// fix, so the level is a note.
fn check_gpu_count(stack: &StackSpec, facts: &Facts) -> Option<Finding> {
    let expected = stack.expects.gpus?;
    let sentence = format!(
        "{} GPUs are on the node's buses, the stack expects {expected}",
        facts.gpus.len()
    );
    (u32::try_from(facts.gpus.len()) != Ok(expected))
        .then(|| build_finding(Level::Note, sentence, "gpus"))
}

fn build_finding(level: Level, sentence: String, about: &str) -> Finding {
    Finding {
        rule: "expects".into(),
        level,
        sentence,
        source: String::new(),
        about: about.to_owned(),
    }
}

/// Compares the stack's expectations of the installed system with facts from `source`. Facts from a
/// live image do not describe the installed system.
pub fn expectations(stack: &StackSpec, facts: &Facts, installed: bool) -> Vec<Finding> {
    let expects = &stack.expects;
    if expects.kernel.is_none() && expects.drivers.is_empty() {
        return Vec::new();
    }
    if !installed {
        let sentence =
            "the installed system was not inspected since: `muster node inspect` does".to_owned();
        return vec![build_finding(Level::Unknown, sentence, "expects")];
    }
    let mut found = Vec::new();
    let kernel = expects.kernel.as_ref();
    if let Some(kernel) = kernel.filter(|kernel| **kernel != facts.kernel) {
        let sentence = format!("kernel {} runs, the stack expects {kernel}", facts.kernel);
        found.push(build_finding(Level::Note, sentence, kernel));
    }
    for driver in &expects.drivers {
        let mut devices = facts.pci.iter();
        if !devices.any(|device| device.driver.as_ref() == Some(driver)) {
            let sentence =
                format!("no PCI function has the driver {driver}, which the stack expects");
            found.push(build_finding(Level::Note, sentence, driver));
        }
    }
    found
}
