//! Lists of claims.

use muster_core::claims::ClaimState;

use super::sight::{OF_NODE, Place};
use super::sort::{NAME_DOWN, NAME_UP, NEWEST_FIRST, OLDEST_FIRST};
use super::whitelist::{Field, one_of, unknown};
use super::{List, Op, Term, WHOLE};
use crate::error::Error;

/// Claims holding a node.
pub const CLAIMS: List = List {
    name: "claims",
    sorts: &[NAME_UP, NAME_DOWN, OLDEST_FIRST, NEWEST_FIRST],
    parts: &[
        "id",
        "name",
        "self",
        "labels",
        "annotations",
        "spec",
        "status",
        "generation",
        "created_at",
        "updated_at",
    ],
    from: "claims c",
    only: "c.state <> 'released'",
    id: "c.id",
    by_name: "c.name",
    field,
    place: PLACE,
    ..WHOLE
};

/// The place of the node, with the claim's own pool. After a release the node may belong to another
/// claim.
const PLACE: Place = Place {
    joins: " LEFT JOIN nodes n ON n.id = c.node_id",
    pool: "c.pool_id",
    ..OF_NODE
};

fn field(term: &Term) -> Result<Field<'_>, Error> {
    Ok(match term.field.as_str() {
        "name" => Field::Text("c.name"),
        "state" => {
            let states = [ClaimState::Bound, ClaimState::Releasing].map(ClaimState::as_str);
            if term.op != Op::Like && !states.contains(&term.value.as_str()) {
                let detail = format!("{:?} is not bound or releasing", term.value);
                return Err(Error::unprocessable("filter", "unknown_value", detail));
            }
            Field::Text("c.state")
        }
        "pool" => Field::Object {
            column: "c.pool_id",
            kind: "pool",
        },
        "node" => Field::Node {
            column: "c.node_id",
        },
        "replica" => one_of(term, &["true", "false"], Field::Text("c.replica::text"))?,
        other => return Err(unknown(other, "name, state, pool, node, replica")),
    })
}
