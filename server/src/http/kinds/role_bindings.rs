//! Role bindings: additional roles of people, each with a scope.

use muster_api::access::RoleBindingSpec;

use crate::document::fault;
use crate::error::Fault;
use crate::http::declared::{Declared, Reference};
use crate::intents::references::Table;

impl Declared for RoleBindingSpec {
    const REFERENCES: Table = &[
        ("/spec/scope/site", "site"),
        ("/spec/scope/rack", "rack"),
        ("/spec/scope/pool", "pool"),
    ];

    fn references(&self) -> Vec<Reference<'_>> {
        let scope = [
            ("site", &self.scope.site),
            ("rack", &self.scope.rack),
            ("pool", &self.scope.pool),
        ];
        let named = scope
            .into_iter()
            .filter_map(|(kind, name)| Some((kind, name.as_deref()?)));
        named
            .map(|(kind, name)| Reference::new(format!("/spec/scope/{kind}"), kind, name))
            .collect()
    }

    fn faults(&self) -> Vec<Fault> {
        let name = self
            .subject
            .strip_prefix("user:")
            .or_else(|| self.subject.strip_prefix("group:"));
        match name.is_some_and(|name| {
            (1..=250).contains(&name.len()) && !name.chars().any(char::is_control)
        }) {
            true => Vec::new(),
            false => vec![fault("/spec/subject", "invalid", "user:NAME or group:NAME")],
        }
    }
}
