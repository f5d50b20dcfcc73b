//! Names of files and folders.

/// Names that say nothing about the content.
const VAGUE: [&str; 5] = ["utils", "common", "helpers", "types", "misc"];

/// Whether a file, or a folder above it, has a name that says nothing.
pub(super) fn is_vague(path: &str) -> bool {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    path.split('/').any(|part| VAGUE.contains(&part))
}

#[test]
fn vague_names_are_found_as_files_and_as_folders() {
    for planted in [
        "server/src/utils.rs",
        "server/src/utils/mod.rs",
        "core/src/common/rows.rs",
        "tests/it/support/helpers.rs",
    ] {
        assert!(is_vague(planted), "{planted}");
    }
    for named in ["server/src/db/mod.rs", "core/src/wire/kinds_of_types.rs"] {
        assert!(!is_vague(named), "{named}");
    }
}
