//! The filter grammar of lists: terms joined by AND. A value is unquoted or quoted.

const LONGEST: usize = 2000;
const MOST_TERMS: usize = 20;

/// The comparison operator of a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `~`: a pattern in which `*` matches any text.
    Like,
}

/// A comparison of a field with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    pub field: String,
    pub op: Op,
    pub value: String,
}

impl Term {
    /// Returns the term `field=value`.
    pub fn equal(field: &str, value: impl Into<String>) -> Self {
        Self {
            field: field.to_owned(),
            op: Op::Equal,
            value: value.into(),
        }
    }
}

/// A text outside the grammar. The message quotes the unexpected text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidFilter(String);

/// Parses a filter.
///
/// # Errors
/// [`InvalidFilter`] when the text is longer than 2000 bytes, has more than 20 terms, contains a
/// NUL byte or violates the grammar.
pub fn parse(text: &str) -> Result<Vec<Term>, InvalidFilter> {
    let wrong = InvalidFilter;
    if text.len() > LONGEST {
        return Err(wrong(format!("longer than {LONGEST} bytes")));
    }
    if text.contains('\0') {
        return Err(wrong(
            "it holds a zero byte, which no text in the database does".into(),
        ));
    }
    let mut rest = text.trim();
    let mut terms = Vec::new();
    while !rest.is_empty() {
        if terms.len() == MOST_TERMS {
            return Err(wrong(format!("more than {MOST_TERMS} terms")));
        }
        let (term, after) =
            parse_term(rest).ok_or_else(|| wrong(format!("expected FIELD=VALUE at {rest:?}")))?;
        terms.push(term);
        rest = match after.trim_start() {
            "" => "",
            after => match after.split_once(char::is_whitespace) {
                Some((and, next)) if and.eq_ignore_ascii_case("and") && !next.trim().is_empty() => {
                    next.trim_start()
                }
                _ => return Err(wrong(format!("expected AND and a term at {after:?}"))),
            },
        };
    }
    Ok(terms)
}

fn parse_term(text: &str) -> Option<(Term, &str)> {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || "._-/".contains(c)))?;
    let (field, rest) = text.split_at(end);
    let (op, rest) = [("!=", Op::NotEqual), ("=", Op::Equal), ("~", Op::Like)]
        .into_iter()
        .find_map(|(word, op)| rest.trim_start().strip_prefix(word).map(|rest| (op, rest)))?;
    let (value, rest) = parse_value(rest.trim_start())?;
    (!field.is_empty()).then_some((
        Term {
            field: field.to_owned(),
            op,
            value,
        },
        rest,
    ))
}

fn parse_value(text: &str) -> Option<(String, &str)> {
    if let Some(quoted) = text.strip_prefix('"') {
        let (value, rest) = quoted.split_once('"')?;
        return Some((value.to_owned(), rest));
    }
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let (value, rest) = text.split_at(end);
    (!value.is_empty() && !value.contains('"')).then(|| (value.to_owned(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(field: &str, op: Op, value: &str) -> Term {
        Term {
            field: field.into(),
            op,
            value: value.into(),
        }
    }

    #[test]
    fn reads_what_people_write() {
        assert_eq!(
            parse(r#"state=in_service AND rack~"r1*" and label.gpu != h200"#).unwrap(),
            [
                term("state", Op::Equal, "in_service"),
                term("rack", Op::Like, "r1*"),
                term("label.gpu", Op::NotEqual, "h200")
            ]
        );
        assert_eq!(parse("  ").unwrap(), []);
        assert_eq!(
            parse(r#"label.a="x AND y""#).unwrap(),
            [term("label.a", Op::Equal, "x AND y")]
        );
    }

    #[test]
    fn refuses_the_rest() {
        for bad in [
            "state",
            "=x",
            "state=",
            "a=b OR c=d",
            "a=b AND",
            "a=\"b",
            "a=b c=d",
            "'; drop=1",
            "a=\"b\"c",
            "a=\"\0\"",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(parse(&"a".repeat(3000)).is_err());
        assert!(parse(&vec!["a=b"; 21].join(" AND ")).is_err());
    }
}
