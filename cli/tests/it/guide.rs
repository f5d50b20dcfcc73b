//! Runs every example of docs/api.md with a real curl, in the guide's order, against a new server.
//! Compares the output with the block below the example.

use std::process::Command;

use muster_api::access::{Role, VERBS, has as has_verb};
use serde_json::Value;

use crate::muster::{Server, file, run};

/// A typed command, and the language and text of the answer block below.
#[derive(Debug)]
struct Example {
    typed: String,
    kind: String,
    answer: String,
}

fn examples(guide: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let mut rest = guide;
    while let Some((_, opened)) = rest.split_once("\n```") {
        let (kind, body) = opened.split_once('\n').expect("a block has a body");
        let (text, after) = body.split_once("\n```").expect("a block ends");
        rest = after;
        match (kind, examples.last_mut()) {
            ("sh", last) => {
                assert!(
                    last.is_none_or(|last| !last.kind.is_empty()),
                    "no answer is shown to what goes before {text}"
                );
                examples.push(Example {
                    typed: text.into(),
                    kind: String::new(),
                    answer: String::new(),
                });
            }
            ("json" | "http" | "text", Some(last)) if last.kind.is_empty() => {
                (last.kind, last.answer) = (kind.into(), text.into());
            }
            _ => panic!("a block of {kind:?} that answers nothing: {text}"),
        }
    }
    examples
}

/// Returns whether a text matches the shown text. `…` matches any text.
fn like(shown: &str, text: &str) -> bool {
    let mut parts = shown.split('…');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let mut parts = parts.peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() && !shown.ends_with('…') {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.is_empty() || shown.ends_with('…')
}

/// Returns whether an answer contains the shown members. An object may have more members. A list
/// must have the shown length.
fn has(answer: &Value, shown: &Value) -> bool {
    match (answer, shown) {
        (Value::Object(answer), Value::Object(shown)) => shown
            .iter()
            .all(|(name, shown)| answer.get(name).is_some_and(|answer| has(answer, shown))),
        (Value::Array(answer), Value::Array(shown)) => {
            answer.len() == shown.len()
                && answer
                    .iter()
                    .zip(shown)
                    .all(|(answer, shown)| has(answer, shown))
        }
        (Value::String(answer), Value::String(shown)) => like(shown, answer),
        (answer, shown) => answer == shown,
    }
}

fn fits(example: &Example, said: &str) -> bool {
    if example.kind == "json" {
        let shown = serde_json::from_str(&example.answer)
            .unwrap_or_else(|error| panic!("{error}: {}", example.answer));
        return serde_json::from_str(said).is_ok_and(|answer| has(&answer, &shown));
    }
    let lines: Vec<&str> = said.lines().map(str::trim_end).collect();
    example
        .answer
        .lines()
        .all(|shown| lines.iter().any(|line| like(shown, line)))
}

#[test]
fn every_example_of_the_guide_works() {
    let examples = examples(&file("docs/api.md"));
    assert!(examples.len() > 30, "the guide cannot be read");
    let server = Server::start();
    let home = server.dir.path();
    std::fs::copy(home.join("data/token"), home.join("admin.token")).unwrap();
    // The guide uses an administrator's token and an operator's token.
    let create = ["token", "create", "guide", "--role", "operator"];
    let operator = server.muster(&create).expect(0).out;
    std::fs::write(home.join("muster.token"), operator.trim()).unwrap();
    // A single shell runs all examples: later examples use variables of earlier examples.
    let mut script = String::from("set -u\n");
    for (at, example) in examples.iter().enumerate() {
        script.push_str(&format!(
            "{{ {}\n}} > answer.{at} 2> error.{at} || echo \"ended with $?\" >> error.{at}\n",
            example.typed
        ));
    }
    let mut bash = Command::new("bash");
    bash.arg("-s")
        .current_dir(home)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap());
    bash.env("HOME", home).env("MUSTER_SERVER", &server.url);
    run(&mut bash, &script).expect(0);
    for (at, example) in examples.iter().enumerate() {
        let read = |name: &str| std::fs::read_to_string(home.join(format!("{name}.{at}"))).unwrap();
        let (said, error) = (read("answer"), read("error"));
        assert!(error.is_empty(), "{}\n{error}{said}", example.typed);
        assert!(
            fits(example, &said),
            "{}\nanswers {said}\nand the guide says {}",
            example.typed,
            example.answer
        );
    }
}

/// Returns the kinds in a role's row of the table of roles.
fn kinds_of(guide: &str, role: Role) -> Vec<&str> {
    let begin = format!("| `{}` | ", role.as_str());
    let mut rows = guide.lines().filter_map(|line| line.strip_prefix(&begin));
    let row = rows.next().expect("a row of the role");
    row.trim_end_matches(" |").split(", ").collect()
}

#[test]
fn the_guide_of_terraform_names_the_roles_that_write_each_kind() {
    let guide = file("docs/terraform.md");
    let lists = |role, kinds: &str| {
        let mut listed = kinds_of(&guide, role).into_iter();
        listed.any(|item| item == kinds || item.starts_with(&format!("{kinds} with")))
    };
    let verbs = VERBS.map(|(verb, _)| verb);
    let writes = verbs
        .into_iter()
        .filter_map(|verb| Some((verb, verb.strip_suffix(".write")?)));
    for (verb, kind) in writes {
        let kinds = format!("{}s", kind.replace('_', " "));
        let lesser = [Role::Operator, Role::ReleaseOwner];
        for role in lesser {
            assert_eq!(
                lists(role, &kinds),
                has_verb(role, verb),
                "{role:?} {kinds}"
            );
        }
        let alone = !lesser.into_iter().any(|role| has_verb(role, verb));
        assert_eq!(lists(Role::Admin, &kinds), alone, "{kinds}");
    }
}

#[test]
fn an_answer_that_differs_is_seen() {
    let shown = serde_json::json!({ "items": [{ "name": "r…" }], "count": 1 });
    let answer = |name: &str, count: u32| serde_json::json!({ "items": [{ "name": name, "id": "x" }], "count": count });
    assert!(has(&answer("r1", 1), &shown));
    assert!(!has(&answer("x1", 1), &shown));
    assert!(!has(&answer("r1", 2), &shown));
    assert!(!has(
        &serde_json::json!({ "items": [], "count": 1 }),
        &shown
    ));
    assert!(like("a…c…e", "abcde") && like("a…", "abc") && like("…c", "abc") && like("abc", "abc"));
    assert!(
        !like("a…x", "abc") && !like("ab", "abc") && !like("abc", "ab") && !like("a…c…e", "abde")
    );
    let example = Example {
        typed: String::new(),
        kind: "http".into(),
        answer: "etag: \"2\"".into(),
    };
    assert!(fits(&example, "HTTP/1.1 200 OK\r\netag: \"2\"\r\n") && !fits(&example, "etag: \"3\""));
}
