//! The filter grammar of lists, `state=in_service AND rack~"r1*" AND label.gpu=h200`, and the only place that builds SQL: from a whitelist
//! of fields and operators, with every value bound.

mod grammar;
mod nodes;

pub use self::grammar::{Op, Term, parse};
pub use self::nodes::{count_nodes, list_node_ids};

use std::collections::BTreeMap;

use crate::error::Error;

/// Which way a list runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Up,
    Down,
}

/// How many fit in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    Exact,
    /// As the database's statistics have it.
    Estimate,
    None,
}

/// The terms of a list that can only be filtered by labels.
///
/// # Errors
/// 422 for another field or operator.
pub fn labels(terms: &[Term]) -> Result<BTreeMap<String, String>, Error> {
    let label = |term: &Term| match (term.field.strip_prefix("label."), term.op) {
        (Some(name), Op::Equal) => Ok((name.to_owned(), term.value.clone())),
        _ => Err(Error::unprocessable("filter", "unknown_field", "This list is filtered by label.NAME=VALUE only.")),
    };
    terms.iter().map(label).collect()
}
