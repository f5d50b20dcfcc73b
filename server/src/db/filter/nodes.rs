//! Lists of nodes.

use muster_core::lifecycle::state::State;
use sqlx::{Postgres, QueryBuilder};

use super::{Field, List, NAME_DOWN, NAME_UP, NEWEST_FIRST, OLDEST_FIRST, Term, unknown, word};
use crate::auth::access::Sight;
use crate::error::Error;

/// All nodes.
pub const NODES: List = List {
    name: "nodes",
    sorts: &[NAME_UP, NAME_DOWN, OLDEST_FIRST, NEWEST_FIRST],
    parts: &["id", "name", "self", "labels", "annotations", "spec", "status", "generation", "created_at", "updated_at"],
    from: "nodes n",
    only: "true",
    id: "n.id",
    by_name: "n.name",
    field,
    seen: Some(seen),
};

fn field(term: &Term) -> Result<Field<'_>, Error> {
    Ok(match term.field.as_str() {
        "name" => Field::Text("n.name"),
        "state" => word::<State>(term, "n.state", "a state")?,
        "serial" => Field::Text("n.serial"),
        "protected" => Field::Text("n.protected::text"),
        "pool" => Field::HeldOf {
            among: "SELECT FROM claims c WHERE c.node_id = n.id AND c.state <> 'released'",
            column: "c.pool_id",
            kind: "pool",
        },
        "claim" => Field::Held {
            among: "SELECT FROM claims c WHERE c.node_id = n.id AND c.state <> 'released'",
            name: "c.name",
        },
        "site" => Field::Object { column: "n.site_id", kind: "site" },
        "rack" => Field::Object { column: "n.rack_id", kind: "rack" },
        "profile" => Field::Object { column: "n.profile_id", kind: "hardware_profile" },
        other => match other.strip_prefix("label.") {
            Some(label) => Field::Label { column: "n.labels", label },
            None => {
                let known = "name, state, serial, protected, pool, claim, site, rack, profile, label.NAME";
                return Err(unknown(other, known));
            }
        },
    })
}

/// Leaves what lies in one scope of each list.
fn seen(query: &mut QueryBuilder<Postgres>, sight: &Sight) {
    for scopes in sight {
        query.push(" AND (false");
        for scope in scopes {
            query.push(" OR (n.labels @> ").push_bind(sqlx::types::Json(scope.labels.clone()));
            for (column, kind, name) in [("n.site_id", "site", &scope.site), ("n.rack_id", "rack", &scope.rack)] {
                let Some(name) = name else { continue };
                query.push(" AND ").push(column).push(" = (SELECT id FROM objects WHERE kind = ").push_bind(kind);
                query.push(" AND name = ").push_bind(name.clone()).push(")");
            }
            if let Some(pool) = &scope.pool {
                query.push(
                    " AND EXISTS (SELECT FROM claims c JOIN objects p ON p.id = c.pool_id
                                  WHERE c.node_id = n.id AND c.state <> 'released' AND p.name = ",
                );
                query.push_bind(pool.clone()).push(")");
            }
            query.push(")");
        }
        query.push(")");
    }
}
