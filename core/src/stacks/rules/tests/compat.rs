//! CUDA's user space over the kernel modules of an older driver: NVIDIA's cuda-compat packages.

use serde_json::{Value, json};

use super::{Level, level, locked, refused};
use crate::stacks::StackSpec;

const CASE: &str = include_str!("hopper-550-cuda-12.8-compat.toml");

fn case() -> StackSpec {
    toml::from_str(CASE).expect("a stack")
}

/// The case with another version of a package, or without the package.
fn changed(name: &str, version: Option<&str>) -> StackSpec {
    let mut stack = case();
    match version {
        Some(version) => {
            stack.packages.insert(name.to_owned(), version.to_owned());
        }
        None => {
            stack.packages.remove(name);
        }
    }
    stack
}

fn rules(stack: &StackSpec) -> Vec<String> {
    let mut rules: Vec<String> = refused(stack).into_iter().map(|(rule, _)| rule).collect();
    rules.dedup();
    rules
}

#[test]
fn a_toolkit_with_its_compatibility_package_is_not_refused() {
    assert_eq!(refused(&case()), []);
    let none: [&str; 0] = [];
    // An older toolkit runs with the same package.
    assert_eq!(rules(&changed("cuda-toolkit-12-6", Some("12.6.3-1"))), none);
    // Without the package, programs of the toolkit run, and PTX is not compiled.
    assert_eq!(rules(&changed("cuda-compat-12-8", None)), ["R2"]);
    // The package of an older release does not help.
    let older = changed("cuda-compat-12-8", Some("560.35.05-1"));
    assert_eq!(rules(&older), ["R2"]);
    // A package older than the driver takes no driver's place.
    let oldest = changed("cuda-compat-12-8", Some("535.54.03-1"));
    assert_eq!(rules(&oldest), ["R2"]);
}

#[test]
fn a_compatibility_package_over_an_unlisted_driver_is_unknown() {
    let driver = |version: &str| -> StackSpec {
        let mut stack: Value = serde_json::to_value(case()).expect("a document");
        let branch = version.split('.').next().expect("a branch");
        let packages = stack["packages"].as_object_mut().expect("packages");
        packages.remove("nvidia-fabricmanager-550");
        packages.insert(
            format!("nvidia-fabricmanager-{branch}"),
            json!(format!("{version}-1")),
        );
        packages.insert("nvidia-open".to_owned(), json!(format!("{version}-1")));
        serde_json::from_value(stack).expect("a stack")
    };
    assert_eq!(level(&driver("550.163.01"), "R2"), []);
    // A new-feature branch.
    let feature = driver("555.58.02");
    assert_eq!(level(&feature, "R2"), [Level::Unknown]);
    assert_eq!(level(&locked(&feature), "R2"), [Level::Refused]);
    // The version of the package is open.
    let open = changed("cuda-compat-12-8", Some("*"));
    assert_eq!(level(&open, "R2"), [Level::Unknown]);
}
