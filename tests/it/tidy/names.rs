//! Names of files, folders and functions.

/// Names that say nothing about the content.
const VAGUE: [&str; 5] = ["utils", "common", "helpers", "types", "misc"];

/// Whether a file, or a folder above it, has a name that says nothing.
pub(super) fn is_vague(path: &str) -> bool {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    path.split('/').any(|part| VAGUE.contains(&part))
}

/// The longest name of a function or test, in characters.
const LONGEST: usize = 70;

/// Names of functions beyond the limit.
pub(super) fn list_long_functions(text: &str) -> Vec<&str> {
    let names = text.lines().filter_map(|line| {
        let (_, rest) = line.split_once("fn ")?;
        rest.split(['(', '<']).next()
    });
    names.filter(|name| name.len() > LONGEST).collect()
}

#[test]
fn long_names_of_functions_are_found() {
    let name = "n".repeat(LONGEST);
    let text = format!("pub async fn {name}(x: u8) {{}}\nfn {name}x<T>() {{}}\n");
    assert_eq!(list_long_functions(&text), [format!("{name}x")]);
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
