//! Stack parts: fragments added to several stacks, such as the client of a shared file system. A
//! part is merged into a stack before the stack is checked, locked and published. Published stacks
//! are complete, so parts are never resolved later.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::language::KnownBad;
use super::{Conditions, FileItem, LimitItem, ServiceItem, StackSpec};

/// A part as written by the author. Fields defining a stack (version, image, selector) are not
/// allowed in a part.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StackPart {
    pub packages: BTreeMap<String, String>,
    pub absent: Vec<String>,
    pub files: Vec<FileItem>,
    pub sysctl: BTreeMap<String, String>,
    pub modules_load: Vec<String>,
    pub modules_blacklist: Vec<String>,
    pub kernel_args: Vec<String>,
    pub limits: Vec<LimitItem>,
    pub services: Vec<ServiceItem>,
    pub when: Conditions,
    pub known_bad: Vec<KnownBad>,
}

impl StackSpec {
    /// Returns the stack with a part merged in and without a lock. Values given in both must be
    /// equal, except that an exact version replaces `*`.
    ///
    /// # Errors
    /// All conflicts between stack and part. A person must decide between the two values.
    pub fn with(mut self, part: StackPart) -> Result<Self, Vec<String>> {
        let mut conflicts = Vec::new();
        merge_packages(&mut self.packages, part.packages, &mut conflicts);
        for (key, value) in part.sysctl {
            match self.sysctl.get(&key) {
                Some(there) if *there != value => {
                    conflicts.push(describe_conflict("sysctl", &key, there, &value))
                }
                Some(_) => {}
                None => _ = self.sysctl.insert(key, value),
            }
        }
        merge_named(
            &mut self.files,
            part.files,
            |file| &file.path,
            "file",
            &mut conflicts,
        );
        let own = (&mut self.services, part.services);
        let of_gpu = (&mut self.when.gpu.services, part.when.gpu.services);
        for (all, more) in [own, of_gpu] {
            merge_named(all, more, name_service, "service", &mut conflicts);
        }
        merge_missing(&mut self.absent, part.absent);
        merge_missing(&mut self.modules_load, part.modules_load);
        merge_missing(&mut self.when.gpu.modules_load, part.when.gpu.modules_load);
        merge_missing(&mut self.modules_blacklist, part.modules_blacklist);
        merge_missing(&mut self.kernel_args, part.kernel_args);
        merge_missing(&mut self.limits, part.limits);
        merge_missing(&mut self.known_bad, part.known_bad);
        (self.lock, self.bundle) = (None, None);
        match conflicts.is_empty() {
            true => Ok(self),
            false => Err(conflicts),
        }
    }
}

fn name_service(service: &ServiceItem) -> &String {
    &service.name
}

fn describe_conflict(kind: &str, name: &str, there: &str, here: &str) -> String {
    format!("{kind} {name} is {there} in what it is added to, and {here} in the part")
}

fn merge_packages(
    all: &mut BTreeMap<String, String>,
    more: impl IntoIterator<Item = (String, String)>,
    conflicts: &mut Vec<String>,
) {
    for (name, version) in more {
        match all.get_mut(&name) {
            Some(there) if *there == "*" => *there = version,
            Some(there) if version != "*" && *there != version => {
                conflicts.push(describe_conflict("package", &name, there, &version));
            }
            Some(_) => {}
            None => _ = all.insert(name, version),
        }
    }
}

/// Adds items with new names. Two items with the same name must be equal.
fn merge_named<T: PartialEq>(
    all: &mut Vec<T>,
    more: Vec<T>,
    name: impl Fn(&T) -> &String,
    kind: &str,
    conflicts: &mut Vec<String>,
) {
    for one in more {
        match all.iter().find(|there| name(there) == name(&one)) {
            Some(there) if *there == one => {}
            Some(_) => conflicts.push(format!("{kind} {} is not the same in both", name(&one))),
            None => all.push(one),
        }
    }
}

/// Adds missing items.
fn merge_missing<T: PartialEq>(all: &mut Vec<T>, more: Vec<T>) {
    for one in more {
        if !all.contains(&one) {
            all.push(one);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STACK: &str = r#"
        version = "1"
        image = "i"
        modules_load = ["lnet"]
        [packages]
        tool = "1.0-1"
        open = "*"
        [sysctl]
        "vm.swappiness" = "10"
        [[files]]
        path = "/etc/a"
        mode = "0644"
        content = [{ text = "a\n" }]
        [[services]]
        name = "chrony"
        enabled = true
        running = true
    "#;

    fn added(part: &str) -> Result<StackSpec, Vec<String>> {
        let stack: StackSpec = toml::from_str(STACK).expect("a stack");
        stack.with(toml::from_str(part).expect("a part"))
    }

    #[test]
    fn a_part_adds_what_is_not_there_and_pins_what_was_open() {
        let part = r#"
            modules_load = ["lnet", "lustre"]
            packages = { open = "2.0", tool = "*", new = "*" }
            sysctl = { "vm.swappiness" = "10", "vm.nr_hugepages" = "64" }
            [[files]]
            path = "/etc/a"
            mode = "0644"
            content = [{ text = "a\n" }]
            [[files]]
            path = "/etc/b"
            mode = "0644"
            content = []
            [[services]]
            name = "shared.mount"
            enabled = true
            running = true
        "#;
        let whole = added(part).expect("they fit");
        assert_eq!(whole.modules_load, ["lnet", "lustre"]);
        let versions: Vec<(&str, &str)> = whole
            .packages
            .iter()
            .map(|(name, version)| (name.as_str(), version.as_str()))
            .collect();
        assert_eq!(versions, [("new", "*"), ("open", "2.0"), ("tool", "1.0-1")]);
        assert_eq!(
            whole
                .files
                .iter()
                .map(|file| file.path.as_str())
                .collect::<Vec<_>>(),
            ["/etc/a", "/etc/b"]
        );
        assert_eq!((whole.services.len(), whole.sysctl.len()), (2, 2));
        assert_eq!(
            whole.clone().with(toml::from_str(part).expect("a part")),
            Ok(whole),
            "twice is once"
        );
    }

    #[test]
    fn items_for_gpus_are_merged_among_themselves() {
        let part = r#"
            [when.gpu]
            modules_load = ["nvidia"]
            [[when.gpu.services]]
            name = "nvidia-persistenced"
            enabled = true
            running = true
        "#;
        let whole = added(part).expect("they fit");
        assert_eq!(whole.when.gpu.modules_load, ["nvidia"]);
        assert_eq!(
            (whole.services.len(), whole.when.gpu.services.len()),
            (1, 1)
        );
        let again = toml::from_str(part).expect("a part");
        assert_eq!(
            whole.clone().with(again),
            Ok(whole.clone()),
            "twice is once"
        );
        let other = part.replace("running = true", "running = false");
        let other = toml::from_str(&other).expect("a part");
        let said = whole.with(other).expect_err("they do not fit");
        assert!(said[0].contains("service nvidia-persistenced"), "{said:?}");
    }

    #[test]
    fn what_two_say_differently_is_told_and_nothing_is_chosen() {
        let part = r#"
            packages = { tool = "1.0-2" }
            sysctl = { "vm.swappiness" = "60" }
            [[files]]
            path = "/etc/a"
            mode = "0600"
            content = [{ text = "a\n" }]
            [[services]]
            name = "chrony"
            enabled = false
            running = false
        "#;
        let said = added(part).expect_err("they do not fit");
        for word in [
            "tool is 1.0-1",
            "1.0-2",
            "vm.swappiness is 10",
            "file /etc/a",
            "service chrony",
        ] {
            assert!(
                said.iter().any(|told| told.contains(word)),
                "{word}: {said:?}"
            );
        }
        assert_eq!(said.len(), 4, "{said:?}");
    }

    #[test]
    fn a_part_is_no_stack_and_a_lock_does_not_outlive_one() {
        let said = toml::from_str::<StackPart>("image = \"i\"")
            .expect_err("an image is a stack's")
            .to_string();
        assert!(said.contains("unknown field `image`"), "{said}");
        let mut stack: StackSpec = toml::from_str(STACK).expect("a stack");
        stack.bundle = Some(crate::values::Digest::of(b"bundle"));
        assert_eq!(
            stack.with(StackPart::default()).expect("it fits").bundle,
            None
        );
    }
}
