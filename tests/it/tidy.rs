//! Rules of the house that clippy cannot say. Rules that are only prose decay.

use std::path::{Path, PathBuf};

const ROOMS: [&str; 11] = [
    "core",
    "api",
    "server",
    "agent",
    "node",
    "cli",
    "lab",
    "terraform",
    "tests",
    "fuzz",
    "bench",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ lies in the workspace")
        .to_path_buf()
}

/// Every Rust file of a folder with its text, without its inline tests.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("a source file is text");
                let production = text
                    .split("#[cfg(test)]\nmod ")
                    .next()
                    .unwrap_or_default()
                    .to_owned();
                found.push((path, production));
            }
        }
    }
    assert!(!found.is_empty(), "{} holds no sources", folder.display());
    found
}

fn offenders(room: &str, wrong: impl Fn(&Path, &str) -> bool) -> Vec<String> {
    let sources = sources(&root().join(room).join("src"));
    let offending = sources.iter().filter(|(path, text)| wrong(path, text));
    offending
        .map(|(path, _)| path.display().to_string())
        .collect()
}

#[test]
fn no_file_is_longer_than_500_lines_without_its_tests() {
    for room in ROOMS {
        let long = offenders(room, |_, text| text.lines().count() > 500);
        assert!(long.is_empty(), "split by noun: {long:?}");
    }
}

#[test]
fn arrows_run_down() {
    let allowed: [(&str, &[&str]); 8] = [
        ("core", &[]),
        ("api", &["core"]),
        ("server", &["core", "api"]),
        ("agent", &["core"]),
        ("node", &["core"]),
        ("cli", &["core", "api", "server", "agent", "node"]),
        ("lab", &["core", "api"]),
        ("terraform", &["core", "api"]),
    ];
    for (room, below) in allowed {
        let manifest = std::fs::read_to_string(root().join(room).join("Cargo.toml"))
            .expect("a room has a manifest");
        // Tests may have machines of the lab.
        let depends = manifest
            .split("[dev-dependencies]")
            .next()
            .unwrap_or_default();
        let ours = depends
            .lines()
            .filter_map(|line| line.strip_prefix("muster-"));
        for line in ours {
            let name: String = line
                .chars()
                .take_while(|c| c.is_ascii_alphanumeric())
                .collect();
            assert!(
                below.contains(&name.as_str()),
                "{room} must not depend on {name}"
            );
        }
    }
}

#[test]
fn queries_are_checked_and_live_in_db() {
    let strays = offenders("server", |path, text| {
        text.contains("sqlx::query") && !path.components().any(|part| part.as_os_str() == "db")
    });
    assert!(strays.is_empty(), "SQL outside of db/: {strays:?}");
    let unchecked = [
        "sqlx::query(",
        "sqlx::query_as(",
        "sqlx::query_scalar(",
        "sqlx::query_as::<",
        "sqlx::query_scalar::<",
    ];
    let unchecked = offenders("server", |path, text| {
        unchecked.iter().any(|call| text.contains(call)) && !path.ends_with("db/filter.rs")
    });
    assert!(unchecked.is_empty(), "unchecked SQL: {unchecked:?}");
}

#[test]
fn only_advance_writes_a_nodes_state() {
    let writers = offenders("server", |path, text| {
        text.match_indices("UPDATE nodes").any(|(at, _)| {
            let statement: String = text[at..].chars().take_while(|c| *c != '"').collect();
            statement.contains("SET state")
                || statement.contains(", state =")
                || statement.contains("\n                state =")
        }) && !path.ends_with("db/lifecycle.rs")
    });
    assert!(
        writers.is_empty(),
        "state written outside of db::lifecycle::advance: {writers:?}"
    );
}

#[test]
fn modules_have_one_layout_and_a_line_of_documentation() {
    for room in ROOMS {
        let beside = offenders(room, |path, _| path.with_extension("").is_dir());
        assert!(beside.is_empty(), "use mod.rs: {beside:?}");
        let silent = offenders(room, |path, text| {
            !path.ends_with("build.rs") && !text.starts_with("//!")
        });
        assert!(
            silent.is_empty(),
            "a file says in its first line what it is for: {silent:?}"
        );
    }
}

#[test]
fn names_of_no_meaning_are_not_used() {
    let empty = ["utils", "common", "helpers", "types", "misc"];
    for room in ROOMS {
        let vague = offenders(room, |path, _| {
            path.file_stem()
                .or(path.parent().and_then(Path::file_name))
                .is_some_and(|stem| empty.iter().any(|word| stem == *word))
        });
        assert!(vague.is_empty(), "{vague:?}");
    }
}

#[test]
fn the_clock_and_tasks_are_values() {
    for room in ["core", "server"] {
        let readers = offenders(room, |path, text| {
            (text.contains("Timestamp::now()") || text.contains("SystemTime::now()"))
                && !path.ends_with("clock.rs")
        });
        assert!(
            readers.is_empty(),
            "take the time from the Clock: {readers:?}"
        );
    }
}

#[test]
fn every_test_that_the_faults_name_exists() {
    let table =
        std::fs::read_to_string(root().join("docs/faults.md")).expect("the table of faults");
    let mut names: Vec<&str> = Vec::new();
    for row in table
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| #"))
    {
        let tests = row
            .trim_end_matches(['|', ' '])
            .rsplit('|')
            .next()
            .unwrap_or_default();
        let named: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "no test: {row}");
        names.extend(named);
    }
    assert!(names.len() > 40, "the table cannot be read: {names:?}");
    let mut text = String::new();
    for folder in [
        "tests/it",
        "core/src",
        "server/src",
        "agent/src",
        "node/src",
        "node/tests",
        "lab/src",
    ] {
        let mut folders = vec![root().join(folder)];
        while let Some(folder) = folders.pop() {
            for path in std::fs::read_dir(&folder)
                .expect("a folder of sources")
                .flatten()
                .map(|entry| entry.path())
            {
                match path.extension().is_some_and(|extension| extension == "rs") {
                    true => text
                        .push_str(&std::fs::read_to_string(&path).expect("a source file is text")),
                    false if path.is_dir() => folders.push(path),
                    false => {}
                }
            }
        }
    }
    let missing: Vec<&&str> = names
        .iter()
        .filter(|name| !text.contains(&format!("fn {name}(")))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/faults.md names what is not there: {missing:?}"
    );
}
