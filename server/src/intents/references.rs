//! References of a written document to other objects, by name. The writer needs the verb of the
//! write at each new target as well, because a document acts on its targets. A reference stored
//! before the write is not checked again: the operator of a site can edit an object tied to another
//! site by an administrator.

use std::collections::BTreeSet;

use anyhow::anyhow;
use serde_json::Value;
use sqlx::PgConnection;

use crate::access;
use crate::auth::Actor;
use crate::auth::access::Named;
use crate::db;
use crate::db::objects::ObjectRow;
use crate::document::fault;
use crate::error::{Error, Fault};

/// The references of a kind: the JSON pointer of each, and the kind of the target. `*` in a pointer
/// stands for any item or member.
pub type Table = &'static [(&'static str, &'static str)];

/// The author of a write, and the references before the write.
#[derive(Debug)]
pub(crate) struct Referrer<'write> {
    actor: &'write Actor,
    verb: String,
    table: Table,
    stored: BTreeSet<(&'static str, String)>,
}

impl<'write> Referrer<'write> {
    /// `former` is the stored spec, `None` for a new object.
    pub(crate) fn new(
        actor: &'write Actor,
        verb: impl Into<String>,
        table: Table,
        former: Option<&Value>,
    ) -> Self {
        Self {
            actor,
            verb: verb.into(),
            table,
            stored: former
                .map(|spec| list_stored(table, spec))
                .unwrap_or_default(),
        }
    }

    /// Finds and locks the target of a reference. `None` for a missing target, and for a target
    /// hidden from the actor.
    ///
    /// # Errors
    /// As [`Self::may_name`].
    pub(crate) async fn find(
        &self,
        conn: &mut PgConnection,
        pointer: &str,
        kind: &str,
        name: &str,
    ) -> Result<Option<ObjectRow>, Error> {
        let Some(target) = db::objects::find_for_reference(conn, kind, name).await? else {
            return Ok(None);
        };
        let may_name = self.may_name(conn, pointer, &target).await?;
        Ok(may_name.then_some(target))
    }

    /// Returns whether the document may refer to the target. False for a target hidden from the
    /// actor, to be reported as missing.
    ///
    /// # Errors
    /// 403 for a readable target without the verb; when the table of the kind lacks the reference,
    /// or the database fails.
    pub(crate) async fn may_name(
        &self,
        conn: &mut PgConnection,
        pointer: &str,
        target: &ObjectRow,
    ) -> Result<bool, Error> {
        let (kind, key) = (target.kind.as_str(), target.name.as_str());
        let mut rows = self.table.iter();
        if !rows.any(|(known, of)| *of == kind && fits(known, pointer)) {
            let why = anyhow!("the table of references has no {pointer} to a {kind}");
            return Err(Error::internal(why));
        }
        if !access::has_place(kind) || self.is_stored(target) {
            return Ok(true);
        }
        self.actor
            .may_refer(conn, &self.verb, Named { kind, key })
            .await
    }

    fn is_stored(&self, target: &ObjectRow) -> bool {
        let id = target.id.to_string();
        let mut stored = self.stored.iter();
        stored.any(|(kind, key)| *kind == target.kind && (*key == target.name || *key == id))
    }
}

/// The fault of a reference without a target.
pub(crate) fn missing_fault(pointer: impl Into<String>, kind: &str, name: &str) -> Fault {
    let detail = format!("There is no {kind} called {name:?}.");
    fault(pointer, "not_found", detail)
}

/// Lists the references of a stored spec, also of an unreadable spec: kind and name of each target.
fn list_stored(table: Table, spec: &Value) -> BTreeSet<(&'static str, String)> {
    let mut stored = BTreeSet::new();
    for (pointer, kind) in table {
        let mut found = vec![spec];
        // The pointer begins at the document, above the spec.
        for step in pointer.split('/').skip(2) {
            found = found
                .into_iter()
                .flat_map(|value| list_members(value, step))
                .collect();
        }
        let names = found.into_iter().filter_map(Value::as_str);
        stored.extend(names.map(|name| (*kind, name.to_owned())));
    }
    stored
}

fn list_members<'value>(value: &'value Value, step: &str) -> Vec<&'value Value> {
    if step != "*" {
        return value.get(step).into_iter().collect();
    }
    let items = value.as_array().into_iter().flatten();
    let members = value.as_object().into_iter().flat_map(|all| all.values());
    items.chain(members).collect()
}

/// Whether a pointer fits the row of a table.
fn fits(row: &str, pointer: &str) -> bool {
    let (row, pointer): (Vec<&str>, Vec<&str>) =
        (row.split('/').collect(), pointer.split('/').collect());
    let mut steps = row.iter().zip(&pointer);
    row.len() == pointer.len() && steps.all(|(known, step)| *known == "*" || known == step)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TABLE: Table = &[
        ("/spec/site", "site"),
        ("/spec/macs/*/subnet", "subnet"),
        ("/spec/vlans/*/subnet", "subnet"),
    ];

    #[test]
    fn a_pointer_fits_the_row_of_its_reference_only() {
        for (pointer, row) in [
            ("/spec/site", Some(0)),
            ("/spec/macs/0/subnet", Some(1)),
            ("/spec/vlans/a~1b/subnet", Some(2)),
            ("/spec/macs/subnet", None),
            ("/spec/macs/0/subnet/name", None),
            ("/spec", None),
        ] {
            let found = TABLE.iter().position(|(known, _)| fits(known, pointer));
            assert_eq!(found, row, "{pointer}");
        }
    }

    #[test]
    fn stored_references_are_found_in_lists_and_members() {
        let spec = json!({
            "site": "a", "macs": [{ "subnet": "b" }, {}, { "subnet": 7 }], "vlans": { "x": { "subnet": "c" } },
        });
        let row = |kind, name: &str| (kind, name.to_owned());
        let wanted = [row("site", "a"), row("subnet", "b"), row("subnet", "c")];
        assert_eq!(list_stored(TABLE, &spec), BTreeSet::from(wanted));
        for unreadable in [
            json!([]),
            json!({ "site": ["a"], "macs": "b" }),
            json!(null),
        ] {
            assert_eq!(list_stored(TABLE, &unreadable), BTreeSet::new());
        }
    }
}
