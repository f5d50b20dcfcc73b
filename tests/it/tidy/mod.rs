//! Checks rules of the house without a clippy lint. A rule is a function over a file. A test plants
//! an offender for the rule.

mod arrows; // Arrows between rooms and files of a crate
mod names; // Names without meaning
mod plain; // Comments with nouns
mod prepared; // Files of .sqlx, compared with the migrated schema
mod source; // Files, code and literals
mod sql; // Unchecked queries, and writers of a node's state
mod time; // Clocks and tasks

use self::source::{Source, root, sources};

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

/// The most lines of a production file. A longer file is split by noun.
const PRODUCTION_LINES: usize = 500;
/// The most lines of a test file. A scenario reads in a single piece, and a subject has a single
/// file.
const TEST_LINES: usize = 950;

/// Files with queries unchecked by the compiler, and the reasons.
const UNCHECKED: [(&str, &str); 9] = [
    (
        "server/src/db/filter/mod.rs",
        "builds lists from a whitelist of columns and operators, with binds",
    ),
    (
        "server/src/db/filter/condition.rs",
        "writes the conditions of such a list",
    ),
    (
        "server/src/db/filter/events.rs",
        "builds the list of events by the same whitelist",
    ),
    (
        "server/src/db/filter/sight.rs",
        "adds the reader's scopes to every list",
    ),
    (
        "cli/src/programs/doctor/clocks.rs",
        "reads the clock of a database that may have no schema",
    ),
    (
        "cli/src/programs/doctor/database.rs",
        "reads settings and connections of a database that may have no schema",
    ),
    (
        "cli/src/programs/doctor/schema.rs",
        "reads the migrations of a database that may have another schema",
    ),
    (
        "cli/src/programs/postgres.rs",
        "creates the database, in the server's maintenance database",
    ),
    (
        "bench/src/bin/list-pages.rs",
        "times statements that the benchmark writes",
    ),
];

/// Returns the offending files of the rooms, as `path: reason`.
fn offenders(rooms: &[&str], offence: impl Fn(&Source) -> Option<String>) -> Vec<String> {
    let sources = rooms.iter().flat_map(|room| sources(room));
    sources
        .filter_map(|source| offence(&source).map(|why| format!("{}: {why}", source.path)))
        .collect()
}

/// Returns the length of a file beyond the ceiling, with the ceiling.
fn lines_too_many(source: &Source) -> Option<String> {
    let (ceiling, text) = match source.is_test() {
        true => (TEST_LINES, source.text.clone()),
        false => (PRODUCTION_LINES, source.production()),
    };
    let lines = text.lines().count();
    (lines > ceiling).then(|| format!("{lines} lines, at most {ceiling}"))
}

#[test]
fn no_file_is_longer_than_its_ceiling() {
    let long = offenders(&ROOMS, lines_too_many);
    assert!(long.is_empty(), "split by noun: {long:#?}");
}

#[test]
fn a_file_beyond_its_ceiling_is_found() {
    for (path, lines, is_long) in [
        ("server/src/db/jobs.rs", PRODUCTION_LINES, false),
        ("server/src/db/jobs.rs", PRODUCTION_LINES + 1, true),
        ("server/src/db/tests.rs", TEST_LINES, false),
        ("tests/it/jobs.rs", TEST_LINES + 1, true),
    ] {
        let text = "fn f() {}\n".repeat(lines);
        let path = path.to_owned();
        let source = Source { path, text };
        assert_eq!(lines_too_many(&source).is_some(), is_long, "{source:?}");
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
        let beyond = list_beyond(&manifest, below);
        assert!(beyond.is_empty(), "{room} must not depend on {beyond:?}");
    }
    let planted = "[dependencies]\nmuster-core.workspace = true\n[build-dependencies]\n\"muster-lab\" = {}\n\
                   terraform-provider-muster = { path = \"x\" }\n[dev-dependencies]\nmuster-agent = {}";
    let wanted = ["lab", "terraform-provider-muster"];
    assert_eq!(list_beyond(planted, &["core"]), wanted);
}

/// Lists a manifest's dependencies on crates of the workspace, without the allowed crates. Tests
/// may depend on any crate.
fn list_beyond(manifest: &str, allowed: &[&str]) -> Vec<String> {
    let depends = manifest.split("[dev-dependencies]").next();
    let lines = depends.unwrap_or_default().lines();
    let names = lines.filter_map(|line| {
        let line = line.trim_start_matches('"');
        let end = line.find(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_')?;
        let name = &line[..end];
        let ours = name == "muster" || name.starts_with("muster-") || name.ends_with("-muster");
        ours.then(|| name.strip_prefix("muster-").unwrap_or(name).to_owned())
    });
    names
        .filter(|name| !allowed.contains(&name.as_str()))
        .collect()
}

#[test]
fn queries_are_checked_and_live_in_db() {
    let exempt = |path: &str| UNCHECKED.iter().any(|(file, _)| *file == path);
    let production: Vec<Source> = ROOMS
        .iter()
        .flat_map(|room| sources(room))
        .filter(|source| !source.is_test())
        .collect();
    let strays: Vec<&str> = production
        .iter()
        .filter(|source| sql::has_queries(source) && !exempt(&source.path))
        .map(|source| source.path.as_str())
        .filter(|path| !path.starts_with("server/src/db/"))
        .collect();
    assert!(
        strays.is_empty(),
        "SQL outside of server/src/db: {strays:#?}"
    );
    for source in &production {
        let unchecked = sql::unchecked_queries(source);
        assert_eq!(
            exempt(&source.path),
            !unchecked.is_empty(),
            "{} and its entry in UNCHECKED differ: {unchecked:?}",
            source.path
        );
    }
    for (file, _) in UNCHECKED {
        let is_known = production.iter().any(|source| source.path == file);
        assert!(is_known, "UNCHECKED names a file that is gone: {file}");
    }
}

#[test]
fn only_advance_writes_a_nodes_state() {
    let writers = offenders(&ROOMS, |source| match source.is_test() {
        true => None,
        false => sql::writers_of_state(source)
            .into_iter()
            .reduce(|a, b| a + ", " + &b),
    });
    assert_eq!(writers, ["server/src/db/lifecycle.rs: advance"]);
}

#[test]
fn jobs_and_operations_have_one_writer_each() {
    for (table, file) in [
        ("jobs", "server/src/db/jobs.rs"),
        ("operations", "server/src/db/operations.rs"),
    ] {
        let writers = offenders(&ROOMS, |source| {
            let writes = !source.is_test() && sql::writes_table(source, table);
            writes.then(|| table.to_owned())
        });
        assert_eq!(writers, [format!("{file}: {table}")]);
    }
}

#[test]
fn modules_have_one_layout_and_a_line_of_documentation() {
    let beside = offenders(&ROOMS, |source| {
        let folder = root().join(&source.path).with_extension("");
        folder.is_dir().then(|| "use mod.rs".to_owned())
    });
    assert!(beside.is_empty(), "{beside:#?}");
    let silent = offenders(&ROOMS, |source| {
        let is_silent = !source.path.ends_with("/build.rs") && !source.text.starts_with("//!");
        is_silent.then(|| "the first line says what the file is for".to_owned())
    });
    assert!(silent.is_empty(), "{silent:#?}");
}

#[test]
fn names_of_no_meaning_are_not_used() {
    let vague = offenders(&ROOMS, |source| {
        names::is_vague(&source.path).then(|| "name the content".to_owned())
    });
    assert!(vague.is_empty(), "{vague:#?}");
    let long = offenders(&ROOMS, |source| {
        let names = names::list_long_functions(&source.text);
        (!names.is_empty()).then(|| names.join(", "))
    });
    assert!(
        long.is_empty(),
        "name the subject, then the fact: {long:#?}"
    );
}

#[test]
fn the_clock_and_tasks_are_values() {
    let rooms = ["core", "server"];
    let readers = offenders(&rooms, |source| {
        let reads = time::clock_reads(source);
        let is_offence = !source.is_test() && !reads.is_empty();
        (is_offence && source.path != "core/src/clock.rs").then(|| reads.join(", "))
    });
    assert!(
        readers.is_empty(),
        "take the time from the Clock: {readers:#?}"
    );
    let starters = offenders(&rooms, |source| {
        let starts = time::unowned_tasks(source);
        (!source.is_test() && !starts.is_empty()).then(|| starts.join(", "))
    });
    assert!(
        starters.is_empty(),
        "give the task to a JoinSet: {starters:#?}"
    );
}

/// Returns the tests in the last column of a table.
fn list_named_tests(document: &str) -> Vec<String> {
    let table = std::fs::read_to_string(root().join(document)).expect("a document with a table");
    let mut names = Vec::new();
    for row in table
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| #"))
    {
        let tests = row
            .trim_end_matches(['|', ' '])
            .rsplit('|')
            .next()
            .unwrap_or_default();
        let named = tests.split('`').skip(1).step_by(2);
        let named: Vec<String> = named.map(str::to_owned).collect();
        assert!(!named.is_empty(), "{document}: no test: {row}");
        names.extend(named);
    }
    assert!(
        names.len() > 40,
        "{document}: the table cannot be read: {names:?}"
    );
    names
}

#[test]
fn every_test_that_the_tables_name_exists() {
    let text: String = [
        "core", "api", "server", "agent", "node", "cli", "lab", "tests",
    ]
    .iter()
    .flat_map(|room| sources(room))
    .map(|source| source.text)
    .collect();
    for document in ["docs/faults.md", "docs/security-tests.md"] {
        let mut missing = list_named_tests(document);
        missing.retain(|name| !text.contains(&format!("fn {name}(")));
        assert!(
            missing.is_empty(),
            "{document} names tests that do not exist: {missing:?}"
        );
    }
}
