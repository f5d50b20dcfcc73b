//! Lists of operations.

use muster_api::operations::OperationState;

use super::sight::{OF_NODE, Place};
use super::sort::{NEWEST_FIRST, OLDEST_FIRST};
use super::whitelist::{Field, keyword_field, unknown};
use super::{List, Term, WHOLE};
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
        "result",
        "blocked_by",
    ],
    from: "operations o",
    id: "o.id",
    field,
    place: PLACE,
    ..WHOLE
};

/// The place of the node, with the pool of the claim or else of the node. A run of pairs has the
/// place of its pool.
const PLACE: Place = Place {
    joins: " LEFT JOIN nodes n ON n.id = o.node_id LEFT JOIN claims h ON h.node_id = n.id AND h.state <> 'released'
             LEFT JOIN claims c ON c.id = o.claim_id LEFT JOIN pair_runs r ON r.id = o.id LEFT JOIN objects rp ON rp.id = r.pool_id
             LEFT JOIN object_refs rc ON rc.from_id = r.pool_id AND rc.pointer = '/spec/cluster'
             LEFT JOIN object_refs rs ON rs.from_id = rc.to_id AND rs.pointer = '/spec/site'",
    site: "COALESCE(n.site_id, rs.to_id)",
    pool: "COALESCE(c.pool_id, h.pool_id, r.pool_id)",
    labels: "COALESCE(n.labels, rp.labels)",
    ..OF_NODE
};

fn field(term: &Term) -> Result<Field<'_>, Error> {
    Ok(match term.field.as_str() {
        "kind" => Field::Text("o.kind"),
        "state" => keyword_field::<OperationState>(term, "o.state", "a state of operations")?,
        "node" => Field::Node {
            column: "o.node_id",
        },
        other => return Err(unknown(other, "kind, state, node")),
    })
}
