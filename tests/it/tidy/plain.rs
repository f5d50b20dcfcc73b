//! Plain comments: nouns instead of pronouns. CONTRIBUTING has the rule, this file measures.
//!
//! A file is plain with at most 5 pronouns in 100 words of its comments, and at most 4 words such as
//! `what` or `nobody` in 1,000. `not_plain.txt` lists the files that are not plain yet, with a digest
//! of their text: the list only shrinks, and a change of a listed file makes the file plain.
//! `UPDATE_PLAIN=1` removes the files that became plain.

use std::collections::BTreeMap;

use muster_core::values::Digest;

use super::ROOMS;
use super::source::{Source, root, sources};

const PRONOUNS_IN_100: usize = 5;
const VAGUE_IN_1000: usize = 4;

const VAGUE: [&str; 8] = [
    "what", "who", "whoever", "whatever", "nobody", "somebody", "anybody", "nothing",
];
/// Pronouns beside the vague ones.
const PRONOUNS: [&str; 24] = [
    "it",
    "its",
    "itself",
    "they",
    "them",
    "their",
    "theirs",
    "themselves",
    "he",
    "she",
    "this",
    "that",
    "these",
    "those",
    "whom",
    "whose",
    "one",
    "ones",
    "everybody",
    "something",
    "anything",
    "everything",
    "one's",
    "it's",
];
const LIST: &str = "tests/it/tidy/not_plain.txt";

/// The words of a comment's line, without code in backticks.
fn words(comment: &str) -> impl Iterator<Item = String> + '_ {
    let prose = comment.split('`').step_by(2);
    prose.flat_map(|part| {
        part.split(|c: char| !c.is_ascii_alphabetic() && c != '\'')
            .filter(|word| !word.is_empty())
            .map(str::to_ascii_lowercase)
    })
}

/// The comment of a line: the whole line, or the end of a line of code.
fn comment(line: &str) -> Option<&str> {
    let line = line.trim_start();
    if let Some(rest) = line.strip_prefix("//") {
        return Some(rest.trim_start_matches(['/', '!']));
    }
    let at = line.find(" // ")?;
    let code = line[..at].trim_end();
    code.ends_with([';', '{', '}', ',', ')'])
        .then(|| &line[at + 4..])
}

/// How far the comments of a file are from plain; `None` where they are plain.
fn offence(source: &Source) -> Option<String> {
    let production = source.text.split("#[cfg(test)]").next()?;
    let words: Vec<String> = production
        .lines()
        .filter_map(comment)
        .flat_map(words)
        .collect();
    let count = |list: &[&str]| {
        words
            .iter()
            .filter(|word| list.contains(&word.as_str()))
            .count()
    };
    let vague = count(&VAGUE);
    let pronouns = vague + count(&PRONOUNS);
    let (most, most_vague) = (
        words.len() * PRONOUNS_IN_100 / 100,
        words.len() * VAGUE_IN_1000 / 1000,
    );
    (pronouns > most || vague > most_vague).then(|| {
        format!("{pronouns} pronouns, at most {most}; {vague} vague words, at most {most_vague}")
    })
}

/// The start of a digest: enough to notice a change.
fn mark(text: &str) -> String {
    Digest::of(text.as_bytes()).to_string()[7..19].to_owned()
}

/// The files that are not plain yet: path and mark.
fn listed() -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(root().join(LIST)).expect("the list is there");
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(path, mark)| (path.to_owned(), mark.to_owned()))
        .collect()
}

#[test]
fn comments_are_plain_and_the_list_only_shrinks() {
    let listed = listed();
    let found: BTreeMap<String, (String, String)> = ROOMS
        .iter()
        .flat_map(|room| sources(room))
        .filter(|source| !source.is_test() && !source.path.starts_with("fuzz/"))
        .filter_map(|source| {
            offence(&source).map(|why| (source.path.clone(), (mark(&source.text), why)))
        })
        .collect();
    if std::env::var_os("UPDATE_PLAIN").is_some() {
        let kept = listed.iter().filter(|(path, _)| found.contains_key(*path));
        let text: String = kept
            .map(|(path, mark)| format!("{path} {mark}\n"))
            .collect();
        std::fs::write(root().join(LIST), text).expect("the list can be written");
        return;
    }
    let changed: Vec<String> = found
        .iter()
        .filter(|(path, (mark, _))| listed.get(*path) != Some(mark))
        .map(|(path, (_, why))| format!("{path}: {why}"))
        .collect();
    assert!(
        changed.is_empty(),
        "write these comments plainly (CONTRIBUTING, Writing): {changed:#?}"
    );
    let plain: Vec<&String> = listed
        .keys()
        .filter(|path| !found.contains_key(*path))
        .collect();
    assert!(
        plain.is_empty(),
        "plain now: UPDATE_PLAIN=1 removes them from {LIST}: {plain:#?}"
    );
}

#[test]
fn pronouns_are_found_and_code_is_left_out() {
    let source = |text: &str| Source {
        path: "server/src/db/jobs.rs".into(),
        text: text.into(),
    };
    let plain =
        "/// Locks the row of the node, and returns `what` the `it` column holds.\nfn f() {}\n";
    assert_eq!(offence(&source(plain)), None);
    for planted in [
        "/// Tells whoever asked what it is.\nfn f() {}\n",
        "//! Nothing of theirs is lost.\n",
        "mod looks; // What it sees\n",
    ] {
        assert!(offence(&source(planted)).is_some(), "{planted}");
    }
    let tests_only = "fn f() {}\n#[cfg(test)]\nmod tests {\n    // What it is.\n}\n";
    assert_eq!(offence(&source(tests_only)), None);
}
