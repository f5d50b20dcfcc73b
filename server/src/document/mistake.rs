//! The error of a reader, as a code beside the sentence.

use std::fmt;

use serde::de::{Error, Expected, Unexpected};

/// The first mistake in a document.
#[derive(Debug)]
pub(super) struct Mistake {
    pub(super) kind: MistakeKind,
    /// A sentence for a person.
    pub(super) detail: String,
}

/// The kind of a [`Mistake`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MistakeKind {
    UnknownField,
    /// The name of the missing field.
    MissingField(&'static str),
    Value,
}

impl Mistake {
    fn new(kind: MistakeKind, detail: &impl fmt::Display) -> Self {
        let detail = detail.to_string();
        Self { kind, detail }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Mistake {}

impl From<serde_json::Error> for Mistake {
    fn from(error: serde_json::Error) -> Self {
        Self::new(MistakeKind::Value, &error)
    }
}

/// With the sentences of `serde_json`.
impl Error for Mistake {
    /// A struct with both `flatten` and `deny_unknown_fields` reports an unknown field here.
    fn custom<T: fmt::Display>(detail: T) -> Self {
        Self::new(MistakeKind::Value, &detail)
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        serde_json::Error::invalid_type(unexpected, expected).into()
    }

    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        serde_json::Error::invalid_value(unexpected, expected).into()
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let error = serde_json::Error::unknown_field(field, expected);
        Self::new(MistakeKind::UnknownField, &error)
    }

    fn missing_field(field: &'static str) -> Self {
        let error = serde_json::Error::missing_field(field);
        Self::new(MistakeKind::MissingField(field), &error)
    }
}
