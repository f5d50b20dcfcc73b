//! The filter grammar: whatever is accepted means the same when it is written out again.

use muster_api::filters::{Op, Term, parse};

pub(crate) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(terms) = parse(text) else { return };
    for term in &terms {
        assert!(
            !term.field.is_empty() && !term.value.contains('"'),
            "{term:?}"
        );
        assert!(
            !term.value.contains('\0'),
            "Postgres has no text with a zero byte"
        );
    }
    let written: Vec<String> = terms.iter().map(write).collect();
    // Quotes and spaces may push a filter that just fits over the longest one.
    if let Ok(again) = parse(&written.join(" AND ")) {
        assert_eq!(again, terms, "{text:?}");
    } else {
        assert!(written.join(" AND ").len() > 2000, "{text:?}");
    }
}

fn write(term: &Term) -> String {
    let op = match term.op {
        Op::Equal => "=",
        Op::NotEqual => "!=",
        Op::Like => "~",
    };
    format!("{}{op}\"{}\"", term.field, term.value)
}
