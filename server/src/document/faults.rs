//! Faults of well-formed documents.

use std::collections::BTreeMap;

use super::escape;
use crate::error::Fault;

/// Returns a single fault of a well-formed document.
pub fn fault(pointer: impl Into<String>, code: &'static str, detail: impl Into<String>) -> Fault {
    Fault {
        pointer: pointer.into(),
        code,
        detail: detail.into(),
    }
}

/// Returns the faults of labels and annotations. Both are used in filters, metrics and pages.
pub fn label_faults(
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
) -> Vec<Fault> {
    let mut faults = Vec::new();
    let key = |text: &str| {
        (1..=63).contains(&text.len())
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._-/".contains(&b))
    };
    for (map, member, longest) in [
        (labels, "labels", 63),
        (annotations, "annotations", 16 << 10),
    ] {
        if map.len() > 64 {
            faults.push(fault(format!("/{member}"), "too_many", "At most 64."));
        }
        for (name, value) in map {
            let pointer = format!("/{member}/{}", escape(name));
            if !key(name) {
                faults.push(fault(
                    pointer,
                    "invalid_label",
                    "A name is 1 to 63 of A-Z a-z 0-9 . _ - /.",
                ));
            } else if value.len() > longest || value.chars().any(char::is_control) {
                let detail =
                    format!("A value is at most {longest} bytes, without control characters.");
                faults.push(fault(pointer, "invalid_label", detail));
            }
        }
    }
    faults
}
