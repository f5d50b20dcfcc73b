//! What tools on nodes print, into every parser of gates. Whatever a parser gives is listed in the catalogue for what it is given for, and is a number that
//! something can have measured, or a word of one line; it comes to the same twice.

use muster_core::gates::{Limit, Parser};
use muster_node::gates::{Question, Shown, Unread, read_text};

/// The first byte chooses the parser, the second the tool's exit status.
pub(crate) fn run(mut data: &[u8]) {
    let parsers: Vec<&Parser> = Parser::all().filter(|parser| !parser.builtin).collect();
    let parser = parsers[usize::from(crate::steer(&mut data)) % parsers.len()];
    let exit = i32::from(crate::steer(&mut data) % 4);
    let text = String::from_utf8_lossy(data);
    let question = Question {
        parser: parser.name.into(),
        exit,
        ..Question::default()
    };
    let Ok(parsed) = read_text(&question, &text, &text) else {
        panic!("{} reads texts", parser.name)
    };
    assert!(
        parsed.error.is_none() || parsed.samples.is_empty(),
        "{parsed:?}"
    );
    for Shown {
        metric,
        entity,
        value,
        unit,
    } in &parsed.samples
    {
        let listed = parser.metrics.iter().find(|listed| listed.name == metric);
        let listed = listed.unwrap_or_else(|| panic!("{}: {metric} is not listed", parser.name));
        assert_eq!(
            (listed.unit, listed.per.is_empty()),
            (unit.as_str(), entity.is_empty()),
            "{metric}"
        );
        match value {
            Limit::Number(number) => assert!(
                (0.0..9_007_199_254_740_992.0).contains(number),
                "{metric}: {number}"
            ),
            Limit::Text(word) => assert!(
                !word.contains('\n') && word.chars().count() <= 120,
                "{metric}: {word:?}"
            ),
        }
    }
    for Unread { metric, reason } in &parsed.unread {
        let listed = parser.metrics.iter().any(|listed| listed.name == *metric);
        assert!(listed, "{}: {metric} is not listed", parser.name);
        assert!(
            !reason.contains('\n') && reason.chars().count() <= 1000,
            "{metric}: {reason:?}"
        );
    }
    for words in parsed.faults.iter().chain(&parsed.gaps) {
        assert!(
            !words.contains('\n') && words.chars().count() <= 1000,
            "{words:?}"
        );
    }
    let again = read_text(&question, &text, &text).expect("as before");
    assert_eq!(format!("{parsed:?}"), format!("{again:?}"));
}
