//! Checks of a stack's firmware and BIOS items: malformed items, items without a source, and
//! changes since the lock.

use std::collections::BTreeMap;

use super::Level;
use crate::firmware::{BiosValue, UpdateClass, is_secret};
use crate::stacks::StackSpec;
use crate::stacks::language::FirmwareItem;
use crate::stacks::wanted::is_of_products;

/// Reports errors in the firmware and BIOS settings of a stack.
pub(super) fn check(stack: &StackSpec, report: &mut impl FnMut(Level, &str, String)) {
    for item in &stack.firmware {
        check_firmware(item, report);
    }
    check_versions(stack, report);
    for item in &stack.bios {
        let about = item.attributes.keys().next().map_or("bios", String::as_str);
        if item.attributes.is_empty() {
            let sentence = "bios: no attribute is named".to_owned();
            report(Level::Refused, about, sentence);
        }
        if item.source.is_empty() {
            let sentence = format!("bios {about}: say where the settings are from (`source`)");
            report(Level::Refused, about, sentence);
        }
    }
    check_attributes(stack, report);
    check_lock(stack, report);
}

fn check_firmware(item: &FirmwareItem, report: &mut impl FnMut(Level, &str, String)) {
    let line = |text: &str| (1..=200).contains(&text.len()) && !text.chars().any(char::is_control);
    let FirmwareItem {
        component,
        version,
        image,
        class,
        source,
        attributes,
        ..
    } = item;
    if !line(component) || !line(version) {
        let both = "a component and a version are one line each";
        report(Level::Refused, component, format!("firmware: {both}"));
    }
    if *class == UpdateClass::None && image.is_none() {
        let sentence =
            format!("firmware {component}: `class` says how its image is applied, and it has none");
        report(Level::Note, component, sentence);
    }
    if image.is_some() && source.is_empty() {
        let why = "say where the version and its image are from (`source`)";
        let sentence = format!("firmware {component} is to be written: {why}");
        report(Level::Refused, component, sentence);
    }
    if !attributes.is_empty() && component != "bios" {
        let sentence =
            format!("firmware {component} has BIOS attributes: they belong into [[bios]]");
        report(Level::Refused, component, sentence);
    }
}

/// Reports components wanted in two versions for the same products.
fn check_versions(stack: &StackSpec, report: &mut impl FnMut(Level, &str, String)) {
    let mut known: BTreeMap<(Option<&str>, &str), &str> = BTreeMap::new();
    for item in &stack.firmware {
        let FirmwareItem {
            component, version, ..
        } = item;
        let products = products_of(item.product.as_deref());
        let other = known.insert((products, component), version);
        if other.is_some_and(|other| other != version) {
            let sentence = format!("firmware {component} is wanted in two versions");
            report(Level::Refused, component, sentence);
        }
    }
}

/// Returns the pattern of an item for certain products. `*` means every product.
fn products_of(product: Option<&str>) -> Option<&str> {
    product.filter(|only| is_of_products(Some(only)))
}

/// Reports BIOS attributes that are malformed, secret, or set to two values for one product.
fn check_attributes(stack: &StackSpec, report: &mut impl FnMut(Level, &str, String)) {
    let own = stack
        .firmware
        .iter()
        .map(|item| (&item.product, &item.attributes));
    let bios = stack
        .bios
        .iter()
        .map(|item| (&item.product, &item.attributes));
    let mut known: BTreeMap<(Option<&str>, &str), &BiosValue> = BTreeMap::new();
    for (product, attributes) in own.chain(bios) {
        for (name, value) in attributes {
            let plain = name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
                && name.len() <= 200;
            if !plain || name.is_empty() || !value.to_string().chars().all(|c| !c.is_control()) {
                let sentence = format!("bios {name:?}: an attribute and its value are plain words");
                report(Level::Refused, name, sentence);
            }
            if is_secret(name) {
                let why = "a password is no setting of a stack, which everybody may read";
                report(Level::Refused, name, format!("bios {name}: {why}"));
            }
            let other = known.insert((products_of(product.as_deref()), name.as_str()), value);
            if other.is_some_and(|other| other != value) {
                let sentence = format!("bios {name} is wanted in two ways");
                report(Level::Refused, name, sentence);
            }
        }
    }
}

/// Reports settings that changed since the stack was locked.
fn check_lock(stack: &StackSpec, report: &mut impl FnMut(Level, &str, String)) {
    let Some(lock) = &stack.lock else { return };
    if lock.firmware == stack.firmware && lock.bios == stack.bios {
        return;
    }
    // Locks of earlier versions contain no firmware. Such a stack stays valid: nodes are neither
    // compared nor written.
    let level = if lock.firmware.is_empty() && lock.bios.is_empty() {
        Level::Note
    } else {
        Level::Refused
    };
    let why = "firmware or BIOS settings are not those of the lock, and only those count: lock the stack again";
    report(level, "lock", why.to_owned());
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::facts::Facts;
    use crate::firmware::{BmcInventory, SeenFirmware};
    use crate::stacks::StackLock;
    use crate::stacks::rules::{Subject, findings};
    use crate::values::Digest;

    fn stack(items: &Value) -> StackSpec {
        let mut stack = json!({ "version": "1", "image": "debian-12" });
        for (member, value) in items.as_object().expect("members") {
            stack[member] = value.clone();
        }
        serde_json::from_value(stack).expect("a stack")
    }

    fn locked(stack: &StackSpec) -> StackSpec {
        let (image_digest, arch, packages) = (Digest::of(b"image"), "amd64".into(), Vec::new());
        let (firmware, bios) = (stack.firmware.clone(), stack.bios.clone());
        StackSpec {
            lock: Some(StackLock {
                image_digest,
                arch,
                packages,
                firmware,
                bios,
                repositories: Vec::new(),
            }),
            ..stack.clone()
        }
    }

    fn refused(stack: &StackSpec) -> Vec<String> {
        let found = findings(Subject {
            stack,
            image: None,
            facts: None,
        });
        let refused = found
            .into_iter()
            .filter(|finding| finding.level == Level::Refused);
        refused.map(|finding| finding.sentence).collect()
    }

    #[test]
    fn firmware_says_where_it_is_from_and_is_what_was_locked() {
        let image = Digest::of(b"image");
        let wrong = stack(&json!({
            "firmware": [
                { "component": "bmc", "version": "1.74", "image": image },
                { "component": "nic", "version": "28", "attributes": { "Turbo": true } },
                { "component": "two\nlines", "version": "1" },
                { "component": "psu", "version": "1" },
                { "component": "psu", "version": "2", "product": "*" },
                { "component": "psu", "version": "3", "product": "XE9680" },
            ],
            "bios": [
                { "attributes": { "Sriov": "Enabled" } },
                { "source": "guide", "attributes": { "Sriov": "Disabled", "a b": "x" } },
                { "source": "guide", "product": "XE9680", "attributes": { "Sriov": "Auto", "SetupPassword": "x" } },
                { "source": "guide", "attributes": {} },
            ],
        }));
        let said = refused(&wrong).join("\n");
        for word in [
            "firmware bmc is to be written: say where the version and its image are from",
            "firmware nic has BIOS attributes",
            "one line each",
            "bios Sriov: say where the settings are from",
            "bios Sriov is wanted in two ways",
            "firmware psu is wanted in two versions",
            "\"a b\"",
            "no attribute is named",
            "bios SetupPassword: a password",
        ] {
            assert!(said.contains(word), "{word} in {said}");
        }
        assert_eq!(
            said.matches("in two").count(),
            2,
            "for certain products another value is right: {said}"
        );

        let firmware = json!([{ "component": "bmc", "version": "1.74", "image": image, "source": "the maker" }]);
        let right = stack(&json!({ "firmware": firmware }));
        let whole = locked(&right);
        assert_eq!(refused(&whole), [] as [&str; 0]);
        let other = StackSpec {
            firmware: Vec::new(),
            ..whole.clone()
        };
        assert!(
            refused(&other)
                .iter()
                .any(|sentence| sentence.contains("lock the stack again")),
            "{other:?}"
        );
        // A stack locked before locks contained firmware stays valid.
        let mut former = whole.clone();
        former.lock.as_mut().expect("it has one").firmware.clear();
        assert_eq!(refused(&former), [] as [&str; 0]);
        let lock = whole.lock.expect("it has one");
        assert_ne!(
            lock.digest(),
            former.lock.expect("it has one").digest(),
            "the version that operators see"
        );
        let wanted = lock.firmware_of("any");
        assert_eq!(
            (
                wanted.firmware[0].component.as_str(),
                wanted.firmware[0].image
            ),
            ("bmc", Some(image))
        );
    }

    #[test]
    fn what_is_wanted_of_a_machine_is_what_fits_its_product() {
        let items = json!({
            "firmware": [{ "component": "bios", "version": "2.1", "product": "PowerEdge*", "attributes": { "Turbo": true } },
                         { "component": "bmc", "version": "1.0" }],
            "bios": [{ "source": "guide", "attributes": { "Sriov": "Enabled" } },
                     { "source": "guide", "product": "SYS-*", "attributes": { "NPS": 4 } }],
        });
        let lock = locked(&stack(&items)).lock.expect("it has one");
        let names = |product: &str| {
            let wanted = lock.firmware_of(product);
            let firmware: Vec<String> = wanted
                .firmware
                .into_iter()
                .map(|item| item.component)
                .collect();
            (
                firmware.join(" "),
                wanted.bios.into_keys().collect::<Vec<_>>().join(" "),
            )
        };
        assert_eq!(
            names("PowerEdge XE9680"),
            ("bios bmc".to_owned(), "Sriov Turbo".to_owned())
        );
        assert_eq!(
            names("SYS-821GE"),
            ("bmc".to_owned(), "NPS Sriov".to_owned())
        );
    }

    #[test]
    fn of_two_fitting_items_the_longer_product_pattern_wins() {
        let mut firmware = [
            json!({ "component": "bmc", "version": "1" }),
            json!({ "component": "bmc", "version": "2", "product": "PowerEdge*" }),
            json!({ "component": "bmc", "version": "3", "product": "*XE9680" }),
            json!({ "component": "bios", "version": "1", "product": "*",
                    "attributes": { "Turbo": 1, "NPS": 1, "Sriov": 1 } }),
            json!({ "component": "bios", "version": "2", "product": "PowerEdge*",
                    "attributes": { "Turbo": 2, "NPS": 2 } }),
        ];
        let mut bios = [
            json!({ "source": "guide", "product": "PowerEdge XE*", "attributes": { "NPS": 3 } }),
            json!({ "source": "guide", "attributes": { "Boot": 4 } }),
        ];
        let list = |firmware: &[Value], bios: &[Value], product: &str| {
            let items = json!({ "firmware": firmware, "bios": bios });
            let lock = locked(&stack(&items)).lock.expect("it has one");
            let wanted = lock.firmware_of(product).compare(None);
            let mut lines: Vec<String> = wanted
                .into_iter()
                .map(|one| format!("{} {}", one.item, one.wanted))
                .collect();
            lines.sort_unstable();
            lines.join(", ")
        };
        for _ in 0..2 {
            assert_eq!(
                list(&firmware, &bios, "PowerEdge XE9680"),
                "bios Boot 4, bios NPS 3, bios Sriov 1, bios Turbo 2, firmware bios 2, firmware bmc 2"
            );
            assert_eq!(
                list(&firmware, &bios, "XE9680"),
                "bios Boot 4, bios NPS 1, bios Sriov 1, bios Turbo 1, firmware bios 1, firmware bmc 3"
            );
            // The order in the stack decides nothing.
            firmware.reverse();
            bios.reverse();
        }
    }

    #[test]
    fn values_for_a_product_are_unknown_on_a_machine_without_a_known_product() {
        let stack = locked(&stack(&json!({
            "firmware": [{ "component": "bmc", "version": "1.0" },
                         { "component": "bios", "version": "2.1", "product": "PowerEdge*" },
                         { "component": "bios", "version": "3.0", "product": "SYS-*" },
                         { "component": "psu", "version": "5" },
                         { "component": "psu", "version": "6", "product": "PowerEdge*" },
                         { "component": "cpld", "version": "3", "product": "*" }],
            "bios": [{ "source": "guide", "attributes": { "NPS": 1, "Sriov": true } },
                     { "source": "guide", "product": "SYS-*", "attributes": { "NPS": 4 } }],
        })));
        let report = |id: &str, version: &str| SeenFirmware {
            id: id.to_owned(),
            name: String::new(),
            version: version.to_owned(),
        };
        let seen = BmcInventory {
            firmware: vec![
                report("bmc", "1.0"),
                report("bios", "2.1"),
                report("psu", "5"),
                report("cpld", "3"),
            ],
            bios: BTreeMap::from([
                ("NPS".to_owned(), BiosValue::Number(4)),
                ("Sriov".to_owned(), BiosValue::Flag(true)),
            ]),
            unread: Vec::new(),
        };
        let compare = |facts: Option<&Facts>| {
            let compared = stack.compare_firmware(facts, Some(&seen));
            let lines: Vec<String> = compared.iter().map(ToString::to_string).collect();
            lines
        };
        let mut facts = Facts::default();
        facts.smbios.product = Some("SYS-821GE".to_owned());
        assert_eq!(
            compare(Some(&facts)),
            [
                "firmware bmc is 1.0, wanted 1.0",
                "firmware bios is 2.1, wanted 3.0",
                "firmware psu is 5, wanted 5",
                "firmware cpld is 3, wanted 3",
                "bios NPS is 4, wanted 4",
                "bios Sriov is true, wanted true",
            ]
        );
        // The NPS of every product is not that of a SYS-*, so it is neither compared nor set.
        let of_none = [
            "firmware bmc is 1.0, wanted 1.0",
            "firmware cpld is 3, wanted 3",
            "bios Sriov is true, wanted true",
            "firmware bios for PowerEdge* is unknown, wanted 2.1",
            "firmware psu for PowerEdge* is unknown, wanted 6",
            "firmware bios for SYS-* is unknown, wanted 3.0",
            "bios NPS for SYS-* is unknown, wanted 4",
        ];
        assert_eq!(compare(None), of_none);
        let set: Vec<String> = stack.firmware_of(None).bios.into_keys().collect();
        assert_eq!(set, ["Sriov"]);
        for product in [None, Some(String::new())] {
            facts.smbios.product = product;
            assert_eq!(compare(Some(&facts)), of_none);
        }
    }
}
