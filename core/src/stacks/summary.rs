//! A stack in a few facts: the size of the closure, the effect of the packages, and the driver.

use serde::{Deserialize, Serialize};

use super::StackSpec;
use super::diff::{Class, package_class};
use super::rules::{StackDriver, branch_table, find_driver};
use crate::values::Digest;

/// Most packages named with an effect.
const NAMED: usize = 5;

/// The facts of a stack for the choice of a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StackSummary {
    pub version: String,
    pub image: String,
    /// The packages of the lock. Absent for a stack without a lock.
    pub closure: Option<ClosureSummary>,
    /// NVIDIA's driver. Absent for a stack without this driver.
    pub driver: Option<StackDriver>,
    /// Day of the facts about driver branches, as `2026-11-30`.
    pub branches: String,
}

/// The packages of a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClosureSummary {
    pub lock: Digest,
    pub arch: String,
    pub packages: usize,
    /// Bytes of the packages, without firmware images.
    pub bytes: u64,
    /// The most disruptive effect of a change of any of the packages.
    pub class: Class,
    /// Names of the packages with this effect. Empty for the class `none`.
    pub dearest: Vec<String>,
}

impl ClosureSummary {
    /// Returns the effect with the first packages of the effect: `driver reload: libcuda1 and 5
    /// more`.
    pub fn describe_effect(&self) -> String {
        let class = self.class.as_str();
        let named: Vec<&str> = self
            .dearest
            .iter()
            .take(NAMED)
            .map(String::as_str)
            .collect();
        let more = match self.dearest.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        match named.is_empty() {
            true => class.to_owned(),
            false => format!("{class}: {}{more}", named.join(", ")),
        }
    }
}

/// Returns the facts of a stack.
pub fn summarize_stack(stack: &StackSpec) -> StackSummary {
    StackSummary {
        version: stack.version.clone(),
        image: stack.image.clone(),
        closure: summarize_closure(stack),
        driver: find_driver(stack),
        branches: branch_table().version.clone(),
    }
}

fn summarize_closure(stack: &StackSpec) -> Option<ClosureSummary> {
    let lock = stack.lock.as_ref()?;
    let classes = lock
        .packages
        .iter()
        .map(|package| package_class(&package.name));
    let class = classes.max().unwrap_or(Class::None);
    let dearest = lock
        .packages
        .iter()
        .filter(|package| class != Class::None && package_class(&package.name) == class);
    let sizes = lock.packages.iter().map(|package| package.size);
    Some(ClosureSummary {
        lock: lock.digest(),
        arch: lock.arch.clone(),
        packages: lock.packages.len(),
        bytes: sizes.fold(0, u64::saturating_add),
        class,
        dearest: dearest.map(|package| package.name.clone()).collect(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stack(lock: &serde_json::Value) -> StackSpec {
        let stack = json!({
            "version": "7", "image": "debian-13", "packages": { "libcuda1": "550.163.01-2" }, "lock": lock,
        });
        serde_json::from_value(stack).expect("a stack")
    }

    fn lock(packages: &[(&str, u64)]) -> serde_json::Value {
        let digest = Digest::of(b"");
        let packages = packages.iter().map(|(name, size)| {
            json!({ "name": name, "version": "1", "arch": "amd64", "size": size, "sha256": digest,
                    "filename": format!("{name}_1_amd64.deb") })
        });
        json!({ "image_digest": digest, "arch": "amd64", "packages": packages.collect::<Vec<_>>() })
    }

    #[test]
    fn the_closure_has_a_size_and_the_dearest_packages() {
        let names = [
            ("chrony", 5),
            ("libcuda1", 100),
            ("linux-modules-nvidia-550-6.12.118+deb13-amd64", 7),
        ];
        let whole = stack(&lock(&names));
        let summary = summarize_stack(&whole);
        let closure = summary.closure.expect("a closure");
        assert_eq!((closure.packages, closure.bytes), (3, 112));
        assert_eq!(closure.class, Class::Reboot);
        assert_eq!(closure.dearest, [names[2].0]);
        assert_eq!(Some(closure.lock), whole.lock.map(|lock| lock.digest()));
        // The lock, and not the wish, has the installed version.
        let driver = summary.driver.expect("a driver");
        assert_eq!(driver.version.as_deref(), Some("1"));
    }

    #[test]
    fn a_stack_without_a_lock_has_no_size() {
        let summary = summarize_stack(&stack(&json!(null)));
        assert_eq!((summary.version.as_str(), summary.closure), ("7", None));
        let plain = summarize_stack(&stack(&lock(&[("chrony", 5)]))).closure;
        let plain = plain.expect("a closure");
        assert_eq!(plain.describe_effect(), "none");
        assert_eq!((plain.class, plain.dearest), (Class::None, Vec::new()));
    }

    #[test]
    fn the_effect_names_the_first_packages_and_counts_the_others() {
        let names: Vec<String> = (1..=7)
            .map(|number| format!("linux-modules-{number}"))
            .collect();
        let packages: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
        let closure = summarize_stack(&stack(&lock(&packages))).closure;
        let effect = closure.expect("a closure").describe_effect();
        assert!(effect.starts_with("reboot: linux-modules-1, "), "{effect}");
        assert!(effect.ends_with("linux-modules-5 and 2 more"), "{effect}");
    }
}
