//! The rule book as a table for people. docs/stacks.md contains the table, and a test compares the
//! two.

use std::fmt::Write as _;

use super::book::{Rulebook, Unknown};

/// A row for each rule.
pub fn table(book: &Rulebook) -> String {
    let mut page = format!(
        "Rules of {}.\n\n| rule | what must hold | refused with | unknown | source |\n|---|---|---|---|---|\n",
        book.version
    );
    for rule in &book.rules {
        let unknown = match rule.unknown {
            Unknown::Refuse => "refused once locked",
            Unknown::Note => "told",
        };
        let cell = |text: &str| text.replace('|', "\\|");
        let (says, source) = (cell(&rule.says), cell(&rule.source));
        let _ = writeln!(
            page,
            "| {} | {} | {says} | {unknown} | {source} |",
            rule.id,
            cell(&rule.title)
        );
    }
    page
}
