//! Differences between two stacks, and the effect on a node moving from the first to the second.
//! Secrets are never shown: file content appears as a digest with the names of values, and a secret
//! appears by name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::language::Expectations;
use super::rules::{book, glob};
use super::{FileItem, LockedRepository, Part, ServiceItem, StackLock, StackSpec};
use crate::effects::Effect;
use crate::firmware::UpdateClass;
use crate::values::Digest;

/// Effect needed on a node for a change to apply, from least to most disruptive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The change applies at once.
    None,
    /// A unit is restarted.
    ServiceRestart,
    /// The GPU driver is reloaded. Every use of a GPU must stop first.
    DriverReload,
    Reboot,
    /// The image changes.
    Reinstall,
}

impl Class {
    /// Returns the class's name for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ServiceRestart => "service restart",
            Self::DriverReload => "driver reload",
            Self::Reboot => "reboot",
            Self::Reinstall => "reinstall",
        }
    }
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Name of the item, as in converge: `package slurmd`, `file /etc/nccl.conf`,
    /// `kernel argument iommu=pt`.
    pub item: String,
    pub before: Option<String>,
    pub after: Option<String>,
    pub class: Class,
}

/// One item of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackItem {
    /// Name of the item, as in [`Difference`].
    pub item: String,
    pub value: String,
    /// Effect on a node of a change of this item.
    pub class: Class,
}

/// The comparison of two stacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackDiff {
    pub before: String,
    pub after: String,
    pub before_lock: Option<Digest>,
    pub after_lock: Option<Digest>,
    pub differences: Vec<Difference>,
    /// The most disruptive class of any difference.
    pub class: Class,
    /// The effect on a node moving from the first to the second stack, in the terms of plans.
    pub effect: Effect,
}

/// Compares two stacks.
pub fn diff(before: &StackSpec, after: &StackSpec) -> StackDiff {
    let differences = list_differences(before, after);
    let named = |stack: &StackSpec| format!("{} over {}", stack.version, stack.image);
    let lock = |stack: &StackSpec| stack.lock.as_ref().map(super::StackLock::digest);
    StackDiff {
        before: named(before),
        after: named(after),
        before_lock: lock(before),
        after_lock: lock(after),
        class: dearest(&differences),
        effect: effect_of(before, after),
        differences,
    }
}

/// Returns the effect of moving a node from one stack to another, given by the most disruptive
/// class. A driver reload counts as a reboot, because converge unloads no module under active
/// devices.
pub fn effect_of(before: &StackSpec, after: &StackSpec) -> Effect {
    // Selector, `beside`, expectations and package sources do not change a node, so they are
    // ignored.
    let words = |stack: &StackSpec| StackSpec {
        lock: stack.lock.as_ref().map(|lock| StackLock {
            repositories: Vec::new(),
            ..lock.clone()
        }),
        version: String::new(),
        bundle: None,
        selector: None,
        beside: BTreeMap::new(),
        known_bad: Vec::new(),
        expects: Expectations::default(),
        ..stack.clone()
    };
    match dearest(&list_differences(before, after)) {
        Class::Reinstall => Effect::Reinstall,
        Class::Reboot | Class::DriverReload => Effect::Reboot,
        Class::ServiceRestart => Effect::InPlace,
        Class::None if words(before) != words(after) => Effect::InPlace,
        Class::None => Effect::None,
    }
}

fn dearest(differences: &[Difference]) -> Class {
    differences
        .iter()
        .map(|difference| difference.class)
        .max()
        .unwrap_or(Class::None)
}

fn list_differences(before: &StackSpec, after: &StackSpec) -> Vec<Difference> {
    let mut differences = Vec::new();
    if before.image != after.image {
        let (old, new) = (Some(before.image.clone()), Some(after.image.clone()));
        differences.push(Difference {
            item: "image".into(),
            before: old,
            after: new,
            class: Class::Reinstall,
        });
    }
    let (mut old, mut new) = (list_items(before), list_items(after));
    // Locks without recorded package sources cannot be compared by source.
    if let (Some(was), Some(is)) = (list_origins(before), list_origins(after)) {
        old.extend(was);
        new.extend(is);
    }
    for name in old
        .keys()
        .chain(new.keys().filter(|name| !old.contains_key(*name)))
    {
        let (was, is) = (old.get(name), new.get(name));
        if was != is {
            let class = class_of(name, [before, after]);
            differences.push(Difference {
                item: name.clone(),
                before: was.cloned(),
                after: is.cloned(),
                class,
            });
        }
    }
    differences.sort_by(|a, b| b.class.cmp(&a.class).then_with(|| a.item.cmp(&b.item)));
    differences
}

/// Mark of items for nodes with a GPU, behind the name.
const OF_GPU: &str = " where there is a GPU";

/// The items of a stack, by their names in converge.
#[derive(Default)]
struct Items(BTreeMap<String, String>);

impl Items {
    fn put(&mut self, kind: &str, name: &str, value: String) {
        self.0.insert(format!("{kind} {name}"), value);
    }

    fn put_packages(&mut self, stack: &StackSpec) {
        for (name, version) in &stack.packages {
            self.put("package", name, version.clone());
        }
        // A lock also lists dependencies, because they also change nodes.
        for package in stack.lock.iter().flat_map(|lock| &lock.packages) {
            self.put("package", &package.name, package.version.clone());
        }
        for repository in stack.lock.iter().flat_map(|lock| &lock.repositories) {
            let date = repository.date.as_deref().unwrap_or("without a date");
            let release = &repository.release.hex()[..12];
            let snapshot = format!("{date}, {release}");
            self.put("repository", &repository.name(), snapshot);
        }
    }

    fn put_demands(&mut self, stack: &StackSpec) {
        for name in &stack.absent {
            self.put("package", name, "absent".into());
        }
        for (name, version) in &stack.beside {
            self.put("beside", name, version.clone());
        }
    }

    fn put_settings(&mut self, stack: &StackSpec) {
        for file in &stack.all_files() {
            self.put("file", &file.path, file_words(file));
        }
        for (key, value) in &stack.sysctl {
            self.put("sysctl", key, value.clone());
        }
        self.put_modules(&stack.modules_load, "");
        self.put_modules(&stack.when.gpu.modules_load, OF_GPU);
        for name in &stack.modules_blacklist {
            self.put("blacklisted module", name, "not loaded".into());
        }
        for argument in &stack.kernel_args {
            self.put("kernel argument", argument, argument.clone());
        }
        for limit in &stack.limits {
            let name = format!("{} {} {}", limit.domain, limit.kind, limit.item);
            self.put("limit", &name, limit.value.clone());
        }
        self.put_services(&stack.services, "");
        self.put_services(&stack.when.gpu.services, OF_GPU);
    }

    fn put_modules(&mut self, modules: &[String], condition: &str) {
        for name in modules {
            self.put("module", &format!("{name}{condition}"), "loaded".into());
        }
    }

    fn put_services(&mut self, services: &[ServiceItem], condition: &str) {
        for service in services {
            let enabled = if service.enabled {
                "enabled"
            } else {
                "disabled"
            };
            let running = if service.running {
                "active"
            } else {
                "inactive"
            };
            let state = format!("{enabled}, {running}");
            self.put("service", &format!("{}{condition}", service.name), state);
        }
    }

    fn put_firmware(&mut self, stack: &StackSpec) {
        for item in &stack.firmware {
            let of = of_product(item.product.as_deref());
            let image = item
                .image
                .map(|image| format!(", by {}", &image.hex()[..12]))
                .unwrap_or_default();
            let name = format!("{}{of}", item.component);
            self.put("firmware", &name, format!("{}{image}", item.version));
        }
        let own = stack
            .firmware
            .iter()
            .map(|item| (&item.product, &item.attributes));
        let bios = stack
            .bios
            .iter()
            .map(|item| (&item.product, &item.attributes));
        for (product, attributes) in own.chain(bios) {
            let of = of_product(product.as_deref());
            for (name, value) in attributes {
                self.put("bios", &format!("{name}{of}"), value.to_string());
            }
        }
    }
}

fn of_product(product: Option<&str>) -> String {
    product
        .map(|product| format!(" of {product}"))
        .unwrap_or_default()
}

fn list_items(stack: &StackSpec) -> BTreeMap<String, String> {
    let mut items = Items::default();
    items.put_packages(stack);
    items.put_demands(stack);
    items.put_settings(stack);
    items.put_firmware(stack);
    items.0
}

/// Lists the items of a stack other than installed packages and repositories, by name. The content
/// of a file appears as a digest, with the names of values and secrets.
pub fn list_settings(stack: &StackSpec) -> Vec<StackItem> {
    let mut items = Items::default();
    items.put_demands(stack);
    items.put_settings(stack);
    items.put_firmware(stack);
    let build = |(item, value): (String, String)| StackItem {
        class: class_of(&item, [stack, stack]),
        item,
        value,
    };
    items.0.into_iter().map(build).collect()
}

/// Returns the source of each package of a lock. `None` if the lock records no sources.
fn list_origins(stack: &StackSpec) -> Option<BTreeMap<String, String>> {
    let all = &stack.lock.as_ref()?.repositories;
    let of = |one: &LockedRepository| {
        one.packages
            .iter()
            .map(|name| (format!("origin {name}"), one.name()))
            .collect::<Vec<_>>()
    };
    (!all.is_empty()).then(|| all.iter().flat_map(of).collect())
}

/// Returns mode, owner and a digest of the content parts. Values and secrets appear by name.
fn file_words(file: &FileItem) -> String {
    let made = serde_json::to_vec(&file.content).expect("parts hold only strings");
    let named = file.content.iter().filter_map(|part| match part {
        Part::Text(_) => None,
        Part::Value(name) => Some(format!(" {{{name}}}")),
        Part::Secret(name) => Some(format!(" {{secret {name}}}")),
    });
    let hex = Digest::of(&made).hex();
    format!(
        "{} {}:{} {}{}",
        file.mode,
        file.owner,
        file.group,
        &hex[..12],
        named.collect::<String>()
    )
}

/// Returns the effect class of a change of this item.
pub fn class_of(item: &str, stacks: [&StackSpec; 2]) -> Class {
    let restarts = |path: &str| {
        let own = stacks.iter().flat_map(|stack| &stack.services);
        let of_gpu = stacks.iter().flat_map(|stack| &stack.when.gpu.services);
        own.chain(of_gpu)
            .flat_map(|service| &service.restart_on)
            .any(|on| on == path)
    };
    match item.split_once(' ') {
        // Item names as in converge: `kernel argument`, `blacklisted module`, `running kernel`,
        // `reboot for`, `loaded module`, `alternative`.
        Some(("kernel" | "blacklisted" | "bios" | "running" | "reboot", _)) => Class::Reboot,
        Some(("loaded" | "alternative", _)) => Class::DriverReload,
        Some(("firmware", name)) => firmware_class(name, stacks),
        Some(("service", _)) => Class::ServiceRestart,
        Some(("file", path)) if path.starts_with("/etc/modprobe.d/") => Class::DriverReload,
        Some(("file", path)) if restarts(path) => Class::ServiceRestart,
        Some(("package", name)) => package_class(name),
        _ => Class::None,
    }
}

/// Returns the class of a firmware change, for a component with or without a product. The machine
/// is restarted unless the stack declares a component that restarts by itself.
fn firmware_class(name: &str, stacks: [&StackSpec; 2]) -> Class {
    let items = stacks.into_iter().flat_map(|stack| &stack.firmware);
    let named: Vec<UpdateClass> = items
        .filter(|item| {
            name == item.component || name.starts_with(&format!("{} of ", item.component))
        })
        .map(|item| item.class)
        .collect();
    // If the two stacks declare different classes, the more disruptive class applies.
    match !named.is_empty() && named.iter().all(|class| *class == UpdateClass::None) {
        true => Class::None,
        false => Class::Reboot,
    }
}

/// Returns the effect class of a change of this package. Plans, diffs and effects use this class,
/// and nodes use the class to detect a pending reboot.
pub fn package_class(name: &str) -> Class {
    let classes = &book().classes;
    let among = |patterns: &[String]| patterns.iter().any(|pattern| glob(pattern, name));
    match name {
        // The name resembles a driver package, but every starting container loads the library
        // again, so no driver reload is needed.
        _ if name.starts_with("libnvidia-container") => Class::None,
        _ if among(&classes.reboot) => Class::Reboot,
        _ if among(&classes.driver) => Class::DriverReload,
        _ if among(&classes.service) => Class::ServiceRestart,
        _ => Class::None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stack(change: serde_json::Value) -> StackSpec {
        let mut stack = json!({ "version": "1", "image": "debian-12" });
        for (member, value) in change.as_object().expect("members") {
            stack[member] = value.clone();
        }
        serde_json::from_value(stack).expect("a stack")
    }

    #[test]
    fn settings_have_values_and_effects_without_packages_and_secrets() {
        let stack = stack(json!({
            "packages": { "slurmd": "22.05.8-4" }, "absent": ["nouveau"], "kernel_args": ["quiet"],
            "sysctl": { "vm.swappiness": "1" }, "modules_load": ["lnet"],
            "files": [{ "path": "/etc/a", "mode": "0600", "content": [{ "secret": "munge-key" }] }],
            "services": [{ "name": "a", "enabled": true, "running": true, "restart_on": ["/etc/a"] }],
        }));
        let items = list_settings(&stack);
        let found = |name: &str| {
            let one = items.iter().find(|one| one.item == name);
            one.map(|one| (one.value.as_str(), one.class))
        };
        assert_eq!(found("package slurmd"), None);
        assert_eq!(found("package nouveau"), Some(("absent", Class::None)));
        assert_eq!(
            found("service a"),
            Some(("enabled, active", Class::ServiceRestart))
        );
        assert_eq!(
            found("kernel argument quiet"),
            Some(("quiet", Class::Reboot))
        );
        assert_eq!(found("module lnet"), Some(("loaded", Class::None)));
        let file = found("file /etc/a").expect("the file");
        assert_eq!(file.1, Class::ServiceRestart);
        assert!(file.0.ends_with("{secret munge-key}"), "{}", file.0);
        assert_eq!(items.len(), 6);
    }

    #[test]
    fn what_came_went_and_moved_is_told_with_its_price() {
        let before = stack(json!({
            "packages": { "slurmd": "22.05.8-4", "runc": "1.1.5-1" }, "kernel_args": ["quiet"],
            "files": [{ "path": "/etc/a", "mode": "0644", "content": [{ "text": "one" }] }],
        }));
        let after = stack(json!({
            "version": "2", "packages": { "slurmd": "23.11.4-1", "chrony": "4.3-2" }, "sysctl": { "vm.swappiness": "1" },
            "files": [{ "path": "/etc/a", "mode": "0644", "content": [{ "secret": "munge-key" }] }],
            "services": [{ "name": "a", "enabled": true, "running": true, "restart_on": ["/etc/a"] }],
        }));
        let told = diff(&before, &after);
        let lines: Vec<String> = told
            .differences
            .iter()
            .map(|one| {
                format!(
                    "{:?} {} {:?} {:?}",
                    one.class, one.item, one.before, one.after
                )
            })
            .collect();
        assert_eq!(
            lines[0],
            r#"Reboot kernel argument quiet Some("quiet") None"#
        );
        assert!(
            lines.contains(
                &r#"ServiceRestart package slurmd Some("22.05.8-4") Some("23.11.4-1")"#.to_owned()
            ),
            "{lines:#?}"
        );
        assert!(
            lines.contains(&r#"None package chrony None Some("4.3-2")"#.to_owned()),
            "{lines:#?}"
        );
        assert!(
            lines
                .iter()
                .any(|line| line.starts_with("ServiceRestart file /etc/a")
                    && line.contains("{secret munge-key}"))
        );
        assert_eq!((told.class, told.effect), (Class::Reboot, Effect::Reboot));
        assert_eq!(diff(&before, &before).differences, []);
        assert_eq!(
            diff(&before, &stack(json!({ "image": "debian-13" }))).class,
            Class::Reinstall
        );
    }

    fn locked(name: &str) -> serde_json::Value {
        let digest = crate::values::Digest::of(b"x");
        json!({ "image_digest": digest, "arch": "amd64", "packages": [
            { "name": name, "version": "1", "arch": "amd64", "size": 1, "sha256": digest, "filename": "x.deb" }] })
    }

    #[test]
    fn a_stack_costs_what_its_dearest_difference_costs() {
        let of = |change: serde_json::Value| effect_of(&stack(json!({})), &stack(change));
        assert_eq!(of(json!({})), Effect::None);
        assert_eq!(of(json!({ "version": "2" })), Effect::None);
        assert_eq!(
            of(json!({ "firmware": [{ "component": "bios", "version": "2" }] })),
            Effect::Reboot
        );
        assert_eq!(
            of(json!({ "firmware": [{ "component": "bmc", "version": "2", "class": "none" }] })),
            Effect::InPlace
        );
        assert_eq!(
            of(json!({ "bios": [{ "attributes": { "Turbo": true } }] })),
            Effect::Reboot
        );
        assert_eq!(
            of(json!({ "sysctl": { "vm.swappiness": "1" } })),
            Effect::InPlace
        );
        assert_eq!(of(json!({ "lock": locked("chrony") })), Effect::InPlace);
        assert_eq!(
            of(json!({ "lock": locked("linux-image-6.1.0-18-amd64") })),
            Effect::Reboot
        );
        assert_eq!(
            of(json!({ "lock": locked("nvidia-driver-580") })),
            Effect::Reboot
        );
        assert_eq!(
            of(json!({ "lock": locked("nvidia-fabricmanager-580") })),
            Effect::InPlace
        );
        assert_eq!(
            of(json!({ "kernel_args": ["quiet"], "sysctl": { "a": "b" } })),
            Effect::Reboot
        );
        assert_eq!(
            of(json!({ "image": "debian-13", "kernel_args": ["quiet"] })),
            Effect::Reinstall
        );
        assert!(
            Effect::None < Effect::InPlace
                && Effect::Reboot < Effect::Reinstall
                && Effect::Reinstall < Effect::Wipe
        );
    }

    #[test]
    fn items_for_gpus_are_named_with_the_condition() {
        let after = stack(json!({
            "files": [{ "path": "/etc/a", "mode": "0644", "content": [] }],
            "when": { "gpu": {
                "modules_load": ["nvidia"],
                "services": [{ "name": "a", "enabled": true, "running": true, "restart_on": ["/etc/a"] }],
            }},
        }));
        let told = diff(&stack(json!({})), &after);
        let items = told
            .differences
            .iter()
            .map(|one| (one.item.as_str(), one.class));
        assert_eq!(
            items.collect::<Vec<_>>(),
            [
                ("file /etc/a", Class::ServiceRestart),
                ("service a where there is a GPU", Class::ServiceRestart),
                ("module nvidia where there is a GPU", Class::None),
            ]
        );
    }

    #[test]
    fn one_function_says_what_a_driver_and_a_kernel_cost() {
        let none = stack(json!({}));
        let of = |item: &str| class_of(item, [&none, &none]);
        assert_eq!(of("running kernel"), Class::Reboot);
        assert_eq!(of("reboot for package nvidia-driver-580"), Class::Reboot);
        assert_eq!(of("loaded module nvidia"), Class::DriverReload);
        assert_eq!(of("alternative nvidia"), Class::DriverReload);
        assert_eq!(of("package libnvidia-container1"), Class::None);
        let driver = |version: &str| stack(json!({ "packages": { "nvidia-open-580": version } }));
        let told = diff(&driver("580.65.06-1"), &driver("580.95.05-1"));
        assert_eq!(
            (told.class, told.effect),
            (Class::DriverReload, Effect::Reboot),
            "converge reboots for it"
        );
        let dkms = stack(json!({ "packages": { "gdrdrv-dkms": "2.5" } }));
        assert_eq!(diff(&none, &dkms).effect, Effect::Reboot);
        let bmc = |class: &str| {
            stack(json!({ "firmware": [{ "component": "bmc", "version": class, "class": class }] }))
        };
        assert_eq!(
            diff(&bmc("none"), &bmc("reboot")).effect,
            Effect::Reboot,
            "the dearer of the two"
        );
    }

    #[test]
    fn a_foreign_package_and_a_newer_snapshot_are_reported_free_of_cost() {
        let repository = |suite: &str, date: &str, packages: &[&str]| {
            json!({ "uri": "http://mirror/debian", "suite": suite, "component": "main", "date": date,
                    "release": Digest::of(date.as_bytes()), "packages": packages })
        };
        let locked = |repositories: &[serde_json::Value]| {
            stack(
                json!({ "lock": { "image_digest": Digest::of(b""), "arch": "amd64", "packages": [], "repositories": repositories } }),
            )
        };
        let before = locked(&[repository("bookworm", "Monday", &["chrony", "runc"])]);
        let after = locked(&[
            repository("bookworm", "Tuesday", &["chrony"]),
            repository("bookworm-security", "Monday", &["runc"]),
        ]);
        let told = diff(&before, &after);
        let lines: Vec<(&str, &str, &str)> = told
            .differences
            .iter()
            .map(|one| {
                (
                    one.item.as_str(),
                    one.before.as_deref().unwrap_or(""),
                    one.after.as_deref().unwrap_or(""),
                )
            })
            .collect();
        let snapshot = |date: &str| format!("{date}, {}", &Digest::of(date.as_bytes()).hex()[..12]);
        assert_eq!(
            lines,
            [
                (
                    "origin runc",
                    "http://mirror/debian bookworm main",
                    "http://mirror/debian bookworm-security main"
                ),
                (
                    "repository http://mirror/debian bookworm main",
                    &*snapshot("Monday"),
                    &*snapshot("Tuesday")
                ),
                (
                    "repository http://mirror/debian bookworm-security main",
                    "",
                    &*snapshot("Monday")
                ),
            ]
        );
        assert_eq!((told.class, told.effect), (Class::None, Effect::None));
        assert_ne!(
            told.before_lock, told.after_lock,
            "the version that operators see"
        );
        // A lock of an earlier release has no sources. Such a lock is read and named as before.
        let former = locked(&[]);
        let lock = former.lock.as_ref().expect("it has one");
        assert!(
            !serde_json::to_string(lock)
                .expect("a lock")
                .contains("repositories")
        );
        let told = diff(&former, &before);
        assert!(
            told.differences
                .iter()
                .all(|one| !one.item.starts_with("origin ")),
            "{:?}",
            told.differences
        );
    }

    #[test]
    fn firmware_and_bios_cost_a_reboot_but_for_what_restarts_by_itself() {
        let before = stack(
            json!({ "firmware": [{ "component": "bmc", "version": "1.0", "class": "none" }] }),
        );
        let after = stack(json!({
            "firmware": [{ "component": "bmc", "version": "1.1", "class": "none" }, { "component": "bios", "version": "2.1" }],
            "bios": [{ "product": "XE9680", "source": "guide", "attributes": { "SriovGlobalEnable": "Enabled", "NumaNodes": 2 } }],
        }));
        let lines: Vec<String> = diff(&before, &after)
            .differences
            .iter()
            .map(|one| {
                format!(
                    "{} {} {:?} {:?}",
                    one.class.as_str(),
                    one.item,
                    one.before,
                    one.after
                )
            })
            .collect();
        assert_eq!(
            lines,
            [
                r#"reboot bios NumaNodes of XE9680 None Some("2")"#,
                r#"reboot bios SriovGlobalEnable of XE9680 None Some("Enabled")"#,
                r#"reboot firmware bios None Some("2.1")"#,
                r#"none firmware bmc Some("1.0") Some("1.1")"#,
            ]
        );
        assert_eq!(diff(&before, &after).effect, Effect::Reboot);
    }
}
