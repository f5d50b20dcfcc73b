//! Arrows inside a crate. An arrow leads from a module to a used module. The rooms of a crate, the
//! top-level modules, have one order, and the files form no circle. A path belongs to the file
//! declaring the item, also through a re-export. An arrow from a folder's `mod.rs` to a file of the
//! folder is not counted, because the `mod.rs` re-exports the items of the folder.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Source, is_word, lex, sources, word_offsets};

/// The path of a module or an item as segments, without `crate`.
type Path = Vec<String>;
/// The modules used by each module.
type Arrows = BTreeMap<Path, BTreeSet<Path>>;

/// The rooms of each crate in order: a room may use only later rooms.
const ORDERS: [(&str, &[&str]); 5] = [
    (
        "server",
        &[
            "router",
            "ui",
            "http",
            "tasks",
            "intents",
            "engine",
            "auth",
            "app",
            "streams",
            "keys",
            "oidc",
            "outbound",
            "promql",
            "webhooks",
            "audit",
            "retention",
            "document",
            "db",
            "access",
            "sealed",
            "request_id",
            "error",
        ],
    ),
    (
        "core",
        &[
            "fabric",
            "permits",
            "signatures",
            "remains",
            "parts",
            "lifecycle",
            "rollout",
            "recovery",
            "wire",
            "clusters",
            "gates",
            "profiles",
            "revisions",
            "network",
            "stacks",
            "claims",
            "effects",
            "firmware",
            "images",
            "cabling",
            "facts",
            "consoles",
            "clock",
            "out_of_band",
            "redact",
            "audit",
            "ids",
            "values",
        ],
    ),
    (
        "node",
        &[
            "cli",
            "exec",
            "record",
            "health",
            "gates",
            "converge",
            "machine",
            "disk",
            "live",
            "permit",
            "inventory",
            "job",
            "tool",
            "terminal",
            "files",
            "paths",
            "failure",
        ],
    ),
    (
        "agent",
        &[
            "consoles", "work", "ssh", "cluster", "boot", "contact", "bmc", "watch", "pinned",
            "blobs", "private",
        ],
    ),
    (
        "lab",
        &[
            "demo",
            "fleet",
            "simulated",
            "switch",
            "slurm",
            "run_dir",
            "parts",
            "nfs",
            "supervisor",
            "rack",
            "control",
            "slot",
            "bmc",
            "machine",
            "netns",
            "ip",
            "plan",
            "files",
            "error",
            "arguments",
        ],
    ),
];

/// Arrows against the order, with the reason. The list may only shrink.
const UPWARD: [(&str, &str, &str, &str); 7] = [
    ("core", "claims", "lifecycle", "the words of states"),
    (
        "core",
        "effects",
        "lifecycle",
        "the words of states and actions",
    ),
    (
        "core",
        "recovery",
        "lifecycle",
        "the words of states and steps",
    ),
    (
        "core",
        "profiles",
        "gates",
        "a profile sets the mode of a gate",
    ),
    (
        "core",
        "firmware",
        "stacks",
        "patterns of versions, which the rule book also matches",
    ),
    (
        "node",
        "tool",
        "job",
        "a tool ends with the deadline of its job",
    ),
    (
        "agent",
        "work",
        "consoles",
        "the work loop starts the recording",
    ),
];

/// Crates in which the files must form no circle.
const WITHOUT_CIRCLES: [&str; 8] = [
    "core",
    "api",
    "server",
    "agent",
    "node",
    "cli",
    "lab",
    "terraform",
];

/// A file as read by the resolver.
#[derive(Debug, Default)]
struct File {
    /// Names in scope with the paths: imports and child modules.
    names: BTreeMap<String, Path>,
    /// Paths used by the file, relative to the module of the file.
    used: Vec<Path>,
}

/// The production files of a crate by module.
type Files = BTreeMap<Path, File>;

fn path(text: &str) -> Path {
    text.split("::")
        .map(|part| part.trim().to_owned())
        .collect()
}

/// Returns the module of a file: `db::nodes` for `server/src/db/nodes.rs`. `None` for a binary and
/// for tests.
fn module(source: &Source, has_library: bool) -> Option<Path> {
    let (_, inside) = source.path.split_once("/src/")?;
    let mut parts = path(&inside.strip_suffix(".rs")?.replace('/', "::"));
    let is_binary = parts[0] == "bin" || (has_library && parts == ["main"]);
    if source.is_test() || is_binary {
        return None;
    }
    match parts.last().map(String::as_str) {
        Some("mod") => _ = parts.pop(),
        Some("lib" | "main") if parts.len() == 1 => parts.clear(),
        _ => {}
    }
    Some(parts)
}

/// Returns the code without items for tests.
fn without_tests(code: &str) -> String {
    let mut kept = code.to_owned();
    while let Some(start) = kept.find("#[cfg(test)]") {
        let mut depth = 0;
        let ends = |c: char| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            depth == 0 && matches!(c, '}' | ';')
        };
        let end = kept[start..]
            .find(ends)
            .map_or(kept.len(), |at| start + at + 1);
        kept.replace_range(start..end, "");
    }
    kept
}

/// Returns the leaves of a use tree, each with the name brought into scope.
fn leaves(tree: &str) -> Vec<(Path, String)> {
    let tree = tree.trim();
    if let (Some(open), true) = (tree.find('{'), tree.ends_with('}')) {
        let prefix = tree[..open].trim().trim_end_matches("::");
        let mut depth = 0;
        let separates = |c: char| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            depth == 0 && c == ','
        };
        let inner = tree[open + 1..tree.len() - 1]
            .split(separates)
            .map(str::trim);
        return inner
            .filter(|part| !part.is_empty())
            .flat_map(|part| match (prefix, part) {
                (_, "self") => leaves(prefix),
                ("", part) => leaves(part),
                (prefix, part) => leaves(&format!("{prefix}::{part}")),
            })
            .collect();
    }
    let (whole, alias) = tree.split_once(" as ").unwrap_or((tree, ""));
    let segments = path(whole.trim_start_matches("::"));
    let name = match alias.trim() {
        "" => segments.last().cloned().unwrap_or_default(),
        alias => alias.to_owned(),
    };
    vec![(segments, name)]
}

/// Returns whether the code has the word outside a path, or as the first segment of a path.
fn heads(code: &str, word: &str) -> bool {
    let is_head = |at: &usize| !code[..*at].ends_with("::");
    word_offsets(code, word).iter().any(is_head)
}

/// Returns every path with `::` in the code.
fn paths(code: &str) -> Vec<Path> {
    let bytes = code.as_bytes();
    let is_part = |at: usize| is_word(bytes[at]) || bytes[at] == b':';
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        while at < bytes.len() && is_part(at) {
            at += 1;
        }
        let word = code[start..at].trim_end_matches(':');
        if word.contains("::") && !word.starts_with(':') {
            found.push(path(word));
        }
        at += 1;
    }
    found
}

impl File {
    fn read(source: &Source) -> Self {
        let code = without_tests(&lex(&source.production()).code);
        let mut file = Self::default();
        let mut body = String::new();
        let mut imports = Vec::new();
        let mut rest = 0;
        for at in word_offsets(&code, "use") {
            let head = code[..at].rfind('\n').map_or(0, |line| line + 1);
            let visibility = code[head..at].trim();
            let is_import = visibility.is_empty() || visibility.starts_with("pub");
            if at < rest || !is_import {
                continue;
            }
            let end = code[at..].find(';').map_or(code.len(), |end| at + end);
            body.push_str(&code[rest..head]);
            rest = (end + 1).min(code.len());
            for (path, name) in leaves(&code[at + 3..end]) {
                imports.push((visibility.starts_with("pub"), path, name));
            }
        }
        body.push_str(&code[rest..]);
        for line in body
            .lines()
            .map(str::trim)
            .filter(|line| line.ends_with(';'))
        {
            let declared = line.trim_end_matches(';').rsplit_once("mod ");
            if let Some((before, name)) = declared
                && (before.is_empty() || before.starts_with("pub"))
            {
                let child = vec!["self".to_owned(), name.trim().to_owned()];
                file.names.insert(name.trim().to_owned(), child);
            }
        }
        file.used = paths(&body);
        for (is_public, path, name) in imports {
            // A re-export counts as an arrow only if the code of the file uses the name.
            if !is_public || heads(&body, &name) {
                file.used.push(path.clone());
            }
            file.names.insert(name, path);
        }
        file
    }
}

/// Resolves a path used by a module to the module declaring the item. `None` for other crates, and
/// for a path to a module.
fn resolve(files: &Files, from: &[String], path: &[String], depth: usize) -> Option<Path> {
    let (first, mut rest) = path.split_first()?;
    let mut at = from.to_vec();
    match first.as_str() {
        _ if depth > 12 => return None,
        "crate" => at.clear(),
        "self" => {}
        "super" => _ = at.pop()?,
        name => {
            let named = files.get(from)?.names.get(name)?;
            let whole = [named.as_slice(), rest].concat();
            return match named.first().is_some_and(|head| head == name) {
                true => None,
                false => resolve(files, from, &whole, depth + 1),
            };
        }
    }
    while let Some((name, after)) = rest.split_first() {
        rest = after;
        if name == "super" {
            at.pop()?;
            continue;
        }
        at.push(name.clone());
        if files.contains_key(&at) {
            continue;
        }
        at.pop();
        return match files.get(&at)?.names.get(name) {
            Some(named) if named.first() != Some(name) => {
                resolve(files, &at, &[named.as_slice(), after].concat(), depth + 1)
            }
            _ => Some(at),
        };
    }
    None
}

/// Returns the arrows between the files of a crate.
fn arrows(sources: &[Source]) -> Arrows {
    let has_library = sources
        .iter()
        .any(|source| source.path.ends_with("/src/lib.rs"));
    let read = |source: &Source| Some((module(source, has_library)?, File::read(source)));
    let files: Files = sources.iter().filter_map(read).collect();
    let mut arrows = Arrows::new();
    for (from, file) in &files {
        let reached = file
            .used
            .iter()
            .filter_map(|path| resolve(&files, from, path, 0));
        let others = reached.filter(|to| !to.starts_with(from));
        arrows.insert(from.clone(), others.collect());
    }
    arrows
}

/// Returns the arrows between files in circles. Files without an arrow in or without an arrow out
/// are removed until no such file is left.
fn circles(arrows: &Arrows) -> Vec<String> {
    let mut left = arrows.clone();
    loop {
        let known: BTreeSet<Path> = left.keys().cloned().collect();
        let used: BTreeSet<Path> = left.values().flatten().cloned().collect();
        let before = left.len();
        left.retain(|from, to| {
            to.retain(|to| known.contains(to));
            !to.is_empty() && used.contains(from)
        });
        if left.len() == before {
            break;
        }
    }
    let named = |from: &Path, to: &Path| format!("{} → {}", from.join("/"), to.join("/"));
    let each = left
        .iter()
        .flat_map(|(from, to)| to.iter().map(move |to| named(from, to)));
    each.collect()
}

/// Returns the arrows between rooms against the order, as `FROM TO`. An arrow from or to a room
/// missing from the order is returned as well.
fn against(order: &[&str], arrows: &Arrows) -> BTreeSet<String> {
    let place = |room: &String| order.iter().position(|known| known == room);
    let mut found = BTreeSet::new();
    for (from, targets) in arrows {
        for to in targets {
            if let (Some(one), Some(other)) = (from.first(), to.first())
                && one != other
            {
                match (place(one), place(other)) {
                    (Some(from), Some(to)) if from < to => {}
                    _ => _ = found.insert(format!("{one} {other}")),
                }
            }
        }
    }
    found
}

#[test]
fn rooms_of_a_crate_have_one_order() {
    for (name, order) in ORDERS {
        let listed: BTreeSet<String> = UPWARD
            .iter()
            .filter(|(of, ..)| *of == name)
            .map(|(_, from, to, _)| format!("{from} {to}"))
            .collect();
        let found = against(order, &arrows(&sources(&format!("{name}/src"))));
        assert_eq!(
            found, listed,
            "arrows against the order of {name}, and those in UPWARD"
        );
    }
}

#[test]
fn files_of_a_crate_form_no_circle() {
    for name in WITHOUT_CIRCLES {
        let found = circles(&arrows(&sources(&format!("{name}/src"))));
        assert_eq!(found, Vec::<String>::new(), "files of {name} in a circle");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planted(files: &[(&str, &str)]) -> Arrows {
        let source = |(path, text): &(&str, &str)| Source {
            path: format!("server/src/{path}"),
            text: (*text).to_owned(),
        };
        arrows(&files.iter().map(source).collect::<Vec<_>>())
    }

    #[test]
    fn an_arrow_up_is_found_in_every_form() {
        for offender in [
            "use crate::http::Answer;",
            "use crate::{db, http::Answer};",
            "use super::super::http::{self, Answer};",
            "fn f() { crate::http::answer() }",
            "use crate::http;\nfn f() { http::answer() }",
            "use crate::http as rest;\nfn f() -> rest::Answer {}",
            "mod rows {}\npub(crate) use crate::http::Answer;\nfn f(_: Answer) {}",
        ] {
            let found = planted(&[
                ("lib.rs", "mod db;\nmod http;"),
                ("http/mod.rs", "pub struct Answer;"),
                ("db/mod.rs", "mod nodes;"),
                ("db/nodes.rs", offender),
            ]);
            let up = against(&["http", "db"], &found);
            assert_eq!(
                up.into_iter().collect::<Vec<_>>(),
                ["db http"],
                "{offender}"
            );
        }
    }

    #[test]
    fn words_tests_and_modules_alone_are_no_arrow() {
        let found = planted(&[
            ("http/mod.rs", "use crate::db::nodes;\npub struct Answer;"),
            (
                "db/nodes.rs",
                "// crate::http::Answer\nuse http::StatusCode;\nuse crate::http as rest;\nfn f() { \"crate::http::Answer\" }\n#[cfg(test)]\nuse crate::http::Answer;\n#[cfg(test)]\nmod tests {\n    use crate::http::Answer;\n}\n",
            ),
        ]);
        assert_eq!(against(&["http", "db"], &found), BTreeSet::new());
        assert_eq!(circles(&found), Vec::<String>::new());
    }

    #[test]
    fn a_room_without_a_place_is_found() {
        let found = planted(&[("http.rs", "use crate::new::X;"), ("new.rs", "struct X;")]);
        assert!(against(&["http"], &found).contains("http new"));
    }

    #[test]
    fn a_circle_is_found_also_through_a_door() {
        let found = planted(&[
            ("a/mod.rs", "mod x;\npub use self::x::X;"),
            ("a/x.rs", "use crate::b::Y;\npub struct X;"),
            ("b.rs", "use crate::a::X;\nuse crate::c::Z;\npub struct Y;"),
            ("c.rs", "pub struct Z;"),
        ]);
        assert_eq!(circles(&found), ["a/x → b", "b → a/x"]);
    }

    #[test]
    fn a_folder_may_use_its_files_and_they_its_types() {
        let found = planted(&[
            ("a/mod.rs", "mod x;\npub struct T;\nfn f() { x::g() }"),
            ("a/x.rs", "use super::T;\npub fn g() {}"),
        ]);
        assert_eq!(circles(&found), Vec::<String>::new());
    }
}
