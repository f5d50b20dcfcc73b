//! The whitelist: the SQL of each field of the grammar, and the values accepted for the field.

use std::str::FromStr;

use uuid::Uuid;

use super::{Op, Term};
use crate::error::Error;

/// A field of the grammar, as SQL.
pub(super) enum Field<'term> {
    /// A text expression.
    Text(&'static str),
    /// A text expression in two parts, with the time of the reading bound in the middle.
    AsOf(&'static str, &'static str),
    /// The object referred to by a column, by the object's name. `=` compares ids and uses an
    /// index.
    Object {
        column: &'static str,
        kind: &'static str,
    },
    /// The objects matching a pattern, looked up beforehand.
    Among {
        column: &'static str,
        ids: Vec<Uuid>,
    },
    /// The node referred to by a column, by name or id.
    Node { column: &'static str },
    /// The row behind a column, by id.
    Id { column: &'static str },
    /// Rows of another table, by name.
    Held {
        among: &'static str,
        name: &'static str,
    },
    /// Rows of another table, by the name of the object behind a column.
    HeldOf {
        among: &'static str,
        column: &'static str,
        kind: &'static str,
    },
    Label {
        column: &'static str,
        label: &'term str,
    },
}

/// Returns the 422 error for a field unknown to the list.
pub(super) fn unknown(field: &str, known: &str) -> Error {
    Error::unprocessable(
        "filter",
        "unknown_field",
        format!("{field:?} cannot be filtered by; {known} can"),
    )
}

/// Returns a column of keywords with a type. 422 for a keyword outside the type.
pub(super) fn keyword_field<'term, T: FromStr>(
    term: &Term,
    column: &'static str,
    noun: &str,
) -> Result<Field<'term>, Error> {
    if term.op != Op::Like && term.value.parse::<T>().is_err() {
        return Err(Error::unprocessable(
            "filter",
            "unknown_value",
            format!("{:?} is not {noun}", term.value),
        ));
    }
    Ok(Field::Text(column))
}

/// Returns a column of keywords from a list. 422 for a keyword outside the list.
pub(super) fn one_of<'term>(
    term: &Term,
    words: &[&str],
    field: Field<'term>,
) -> Result<Field<'term>, Error> {
    if term.op != Op::Like && !words.contains(&term.value.as_str()) {
        let detail = format!("{:?} is none of {}", term.value, words.join(", "));
        return Err(Error::unprocessable("filter", "unknown_value", detail));
    }
    Ok(field)
}

/// Returns a column of ids. The path of a request names the object, so a name is refused with 422.
pub(super) fn by_id<'term>(term: &Term, column: &'static str) -> Result<Field<'term>, Error> {
    match term.value.parse::<Uuid>() {
        Ok(_) => Ok(Field::Id { column }),
        Err(_) => Err(Error::unprocessable(
            "filter",
            "unknown_value",
            format!("{:?} is not an id", term.value),
        )),
    }
}
