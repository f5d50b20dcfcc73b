//! Lists of waivers.

use jiff::Timestamp;

use super::sight::NOWHERE;
use super::sort::{NEWEST_FIRST, OLDEST_FIRST};
use super::whitelist::{Field, one_of, unknown};
use super::{List, Term, WHOLE};
use crate::error::Error;

/// Returns the list of all waivers, with their state at a time. For readers of the whole fleet.
pub fn waivers_at(now: Timestamp) -> List {
    List {
        name: "waivers",
        sorts: &[NEWEST_FIRST, OLDEST_FIRST],
        parts: &[
            "id",
            "node",
            "rack",
            "pool",
            "gate",
            "reason",
            "requested_by",
            "requested_at",
            "until",
            "state",
            "approval",
            "decided_by",
            "ended_by",
            "generation",
        ],
        from: "waivers w",
        as_of: Some(now),
        id: "w.id",
        field,
        place: NOWHERE,
        ..WHOLE
    }
}

/// The nodes covered by a waiver: the node, the nodes of the rack, or the nodes claimed by the
/// pool.
const COVERED: &str =
    "SELECT FROM nodes x LEFT JOIN claims h ON h.node_id = x.id AND h.state <> 'released'
    WHERE (w.node_id = x.id OR w.rack_id = x.rack_id OR w.pool_id = h.pool_id)";

fn field(term: &Term) -> Result<Field<'_>, Error> {
    Ok(match term.field.as_str() {
        "gate" => Field::Text("w.gate"),
        "requested_by" => Field::Text("w.requested_by"),
        "node" => Field::Node {
            column: "w.node_id",
        },
        "rack" => Field::Object {
            column: "w.rack_id",
            kind: "rack",
        },
        "pool" => Field::Object {
            column: "w.pool_id",
            kind: "pool",
        },
        "covers" if term.value.parse::<uuid::Uuid>().is_ok() => Field::Held {
            among: COVERED,
            name: "x.id::text",
        },
        "covers" => Field::Held {
            among: COVERED,
            name: "x.name",
        },
        "state" => one_of(
            term,
            &["asked", "active", "denied", "over", "ended"],
            Field::AsOf(
                "CASE WHEN w.state IN ('asked', 'agreed') AND w.until <= ",
                " THEN 'over' WHEN w.state = 'agreed' THEN 'active' ELSE w.state END",
            ),
        )?,
        other => {
            return Err(unknown(
                other,
                "gate, state, node, rack, pool, covers, requested_by",
            ));
        }
    })
}
