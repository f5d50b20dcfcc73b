//! Lists of operations.

use muster_api::operations::OperationState;

use super::{Field, List, NEWEST_FIRST, OLDEST_FIRST, Term, unknown, word};
use crate::error::Error;

/// All operations.
pub const OPERATIONS: List = List {
    name: "operations",
    sorts: &[NEWEST_FIRST, OLDEST_FIRST],
    parts: &[
        "id",
        "self",
        "kind",
        "target",
        "state",
        "done",
        "progress",
        "error",
        "steps",
        "deadline",
        "actor",
        "request_id",
        "created_at",
        "started_at",
        "finished_at",
    ],
    from: "operations o",
    only: "true",
    id: "o.id",
    by_name: "",
    field,
    seen: None,
};

fn field(term: &Term) -> Result<Field<'_>, Error> {
    Ok(match term.field.as_str() {
        "kind" => Field::Text("o.kind"),
        "state" => word::<OperationState>(term, "o.state", "a state of operations")?,
        "node" => Field::Node { column: "o.node_id" },
        other => return Err(unknown(other, "kind, state, node")),
    })
}
