//! Role bindings: additional roles of people, each with a scope.

use muster_api::access::RoleBindingSpec;
use sqlx::PgConnection;

use crate::app::App;
use crate::auth::seals::write;
use crate::db;
use crate::db::objects::ObjectRow;
use crate::document::fault;
use crate::error::{Error, Fault};
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

    /// Seals the binding: rights come from bindings with a valid seal alone.
    async fn written(app: &App, conn: &mut PgConnection, row: &ObjectRow) -> Result<(), Error> {
        write::seal_binding(conn, &app.keys.master, row.id).await
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

    /// A person of an identity provider gets the name with the first sign-in, and some providers
    /// let people choose names. An earlier binding would belong to the first person with the name.
    async fn allow_beside(
        conn: &mut PgConnection,
        before: Option<&ObjectRow>,
        row: &ObjectRow,
    ) -> Result<(), Error> {
        let is_new = before.is_none_or(|before| before.spec["subject"] != row.spec["subject"]);
        let subject = row.spec["subject"].as_str().unwrap_or_default();
        let name = subject
            .strip_prefix("user:")
            .filter(|name| is_new && name.contains('@'));
        let Some(name) = name else {
            return Ok(());
        };
        match db::users::find_id(conn, name).await? {
            Some(_) => Ok(()),
            None => Err(Error::unprocessable(
                "/spec/subject",
                "unknown_person",
                format!(
                    "{name} has not signed in so far. Bind a group, which needs no sign-in, or bind the person after the first sign-in, in a second apply."
                ),
            )),
        }
    }
}
