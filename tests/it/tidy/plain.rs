//! Plain comments: nouns instead of pronouns. CONTRIBUTING has the rule, this file measures.
//!
//! A file is plain with at most 5 pronouns in 100 words of its comments, and at most 4 words such as
//! `what` or `nobody` in 1,000.

use super::ROOMS;
use super::source::{Source, sources};

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

#[test]
fn comments_are_plain() {
    let found: Vec<String> = ROOMS
        .iter()
        .flat_map(|room| sources(room))
        .filter(|source| !source.is_test() && !source.path.starts_with("fuzz/"))
        .filter_map(|source| offence(&source).map(|why| format!("{}: {why}", source.path)))
        .collect();
    assert!(
        found.is_empty(),
        "write these comments plainly (CONTRIBUTING, Writing): {found:#?}"
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
