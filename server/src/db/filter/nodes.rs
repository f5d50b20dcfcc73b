//! Lists of nodes.

use muster_core::lifecycle::state::State;

use super::sight::OF_NODE;
use super::sort::{NAME_DOWN, NAME_UP, NEWEST_FIRST, OLDEST_FIRST};
use super::whitelist::{Field, keyword_field, unknown};
use super::{List, Term, Twin, WHOLE};
use crate::error::Error;

/// All nodes.
pub const NODES: List = List {
    name: "nodes",
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
    from: "nodes n",
    id: "n.id",
    by_name: "n.name",
    field,
    place: OF_NODE,
    twin: Some(Twin {
        by_name_from: "nodes k JOIN nodes n ON n.id = k.id",
        // Joined by name instead of id. A join by id would read both sides in order of id and fetch
        // the rows of one side from the table.
        by_id_from: "nodes k JOIN nodes n ON n.name = k.name",
        id: "k.id",
        by_name: "k.name",
        columns: &[
            ("n.site_id", "k.site_id"),
            ("n.rack_id", "k.rack_id"),
            ("n.profile_id", "k.profile_id"),
        ],
    }),
    ..WHOLE
};

fn field(term: &Term) -> Result<Field<'_>, Error> {
    Ok(match term.field.as_str() {
        "name" => Field::Text("n.name"),
        "state" => keyword_field::<State>(term, "n.state", "a state")?,
        "serial" => Field::Text("n.serial"),
        "protected" => Field::Text("n.protected::text"),
        "drifted" => Field::Text("(COALESCE(n.drift_items, 0) > 0)::text"),
        "out_in_scheduler" => {
            Field::Text("(EXISTS (SELECT FROM scheduler_outs o WHERE o.node_id = n.id))::text")
        }
        "overdue" => Field::Text("COALESCE(n.overdue_since = n.deadline_at, false)::text"),
        "pool" => Field::HeldOf {
            among: "SELECT FROM claims c WHERE c.node_id = n.id AND c.state <> 'released'",
            column: "c.pool_id",
            kind: "pool",
        },
        "claim" => Field::Held {
            among: "SELECT FROM claims c WHERE c.node_id = n.id AND c.state <> 'released'",
            name: "c.name",
        },
        "site" => Field::Object {
            column: "n.site_id",
            kind: "site",
        },
        "rack" => Field::Object {
            column: "n.rack_id",
            kind: "rack",
        },
        "profile" => Field::Object {
            column: "n.profile_id",
            kind: "hardware_profile",
        },
        other => match other.strip_prefix("label.") {
            Some(label) => Field::Label {
                column: "n.labels",
                label,
            },
            None => {
                let known = "name, state, serial, protected, drifted, out_in_scheduler, overdue, pool, claim, site, rack, profile, label.NAME";
                return Err(unknown(other, known));
            }
        },
    })
}
