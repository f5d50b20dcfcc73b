//! The rule book and the branches of the driver as tables for people. docs/stacks.md contains the
//! tables, and a test compares both with the data.

use std::fmt::Write as _;

use super::book::{Rulebook, Unknown};
use super::branches::{BranchKind, BranchTable};

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

/// A row for each branch of the driver.
pub fn branch_rows(table: &BranchTable) -> String {
    let mut page = format!(
        "Facts of {}.\n\n| branch | kind | end of support | newest known security fix | sources |\n|---|---|---|---|---|\n",
        table.version
    );
    for branch in &table.branches {
        let kind = branch.kind.map_or("unknown", BranchKind::as_str);
        let ends = match (branch.ends.as_deref(), branch.is_ended) {
            (Some(month), _) => month,
            (None, true) => "ended, month unknown",
            (None, false) => "unknown",
        };
        let (fix, source) = match &branch.fix {
            Some(fix) => (
                format!("{}, reported {}", fix.version, fix.reported),
                format!("{}; {}", branch.source, fix.source),
            ),
            None => ("unknown".to_owned(), branch.source.clone()),
        };
        let _ = writeln!(
            page,
            "| {} | {kind} | {ends} | {fix} | {} |",
            branch.number,
            cell(&source)
        );
    }
    page
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
