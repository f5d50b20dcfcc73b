//! Which kernel a node boots.

use serde_json::{Value, json};

use super::{Level, Subject, findings, locked, refused, stack};
use crate::stacks::StackSpec;

/// The complete stack with further kernels, and with the headers of each.
fn with_kernels(releases: &[&str]) -> StackSpec {
    let mut packages = json!({});
    for release in releases {
        for kind in ["linux-image", "linux-headers"] {
            packages[format!("{kind}-{release}")] = json!("6.1.153-1");
        }
    }
    stack(&packages, &json!({}))
}

/// Returns the notes about the stack itself.
fn notes(stack: &StackSpec) -> Vec<String> {
    let subject = Subject {
        stack,
        image: None,
        facts: None,
    };
    let notes = findings(subject)
        .into_iter()
        .filter(|finding| finding.rule == "outline" && finding.level == Level::Note);
    notes.map(|finding| finding.sentence).collect()
}

#[test]
fn two_flavours_of_one_kernel_are_refused() {
    let named = with_kernels(&["6.1.0-40-cloud-amd64"]);
    // A dependency brings the second flavour.
    let mut brought = locked(&named);
    brought
        .packages
        .remove("linux-image-6.1.0-40-cloud-amd64")
        .expect("the second flavour");
    for stack in [named.clone(), locked(&named), brought] {
        let found = refused(&stack);
        let [(rule, sentence)] = found.as_slice() else {
            panic!("{found:#?}");
        };
        assert_eq!(rule, "outline");
        for word in [
            "linux-image-6.1.0-40-amd64 and linux-image-6.1.0-40-cloud-amd64 are flavours",
            "write one, such as linux-image-6.1.0-40-amd64",
        ] {
            assert!(sentence.contains(word), "{sentence}");
        }
        assert_eq!(notes(&stack), Vec::<String>::new());
    }
}

#[test]
fn of_two_versions_the_booted_one_is_told() {
    // Numbers are compared as numbers: 9 is older than 40.
    let two = with_kernels(&["6.1.0-9-amd64"]);
    assert_eq!(refused(&two), []);
    let told = "nodes boot linux-image-6.1.0-40-amd64, the newest kernel of the stack; \
                in reserve: linux-image-6.1.0-9-amd64";
    assert_eq!(notes(&two), [told]);
    assert_eq!(notes(&with_kernels(&[])), Vec::<String>::new());
}

#[test]
fn a_metapackage_beside_a_named_kernel_is_a_note_unless_newer() {
    for meta in ["linux-image-amd64", "linux-image-cloud-amd64"] {
        let words = format!(
            "write linux-image-6.1.0-40-amd64 alone to stay at this kernel, or {meta} alone"
        );
        let both = stack(&json!({ meta: "6.1.153-1" }), &json!({}));
        assert_eq!(refused(&both), []);
        let told = notes(&both);
        let is_told = told.len() == 1 && told[0].contains(&words);
        assert!(is_told, "{told:#?}");
        // The metapackage brings the named kernel.
        let same = locked(&both);
        assert_eq!(refused(&same), []);
        assert_eq!(notes(&same), Vec::<String>::new());
        // The metapackage brings a newer kernel.
        let newer = "linux-image-6.1.0-41-amd64";
        let brought = json!({
            meta: "6.1.155-1", newer: "6.1.155-1", "linux-headers-6.1.0-41-amd64": "6.1.155-1",
        });
        let mut moved = locked(&stack(&brought, &json!({})));
        moved.packages.remove(newer).expect("the newer kernel");
        let found = refused(&moved);
        let [(rule, sentence)] = found.as_slice() else {
            panic!("{found:#?}");
        };
        assert_eq!(rule, "outline");
        for word in [
            format!("{meta} brings {newer}, and nodes boot {newer}"),
            words,
        ] {
            assert!(sentence.contains(&word), "{sentence}");
        }
        let alone = json!({
            meta: "6.1.153-1", "linux-image-6.1.0-40-amd64": Value::Null,
        });
        assert_eq!(refused(&stack(&alone, &json!({}))), []);
    }
}
