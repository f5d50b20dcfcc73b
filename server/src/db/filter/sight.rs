//! What a reader may see of many rows at once: those that lie in one scope of each of the reader's lists. It says in SQL what `db::access::place`
//! says of one object; `tests/it/access` holds each list against the single reads.

use muster_api::access::Scope;
use sqlx::types::Json;
use sqlx::{Postgres, QueryBuilder};

use crate::access::Sight;

/// Where a list's rows lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// What is joined to know it, and is not where the reader sees everything. A row stays one row.
    pub joins: &'static str,
    /// The ids of its site, rack and pool, and its labels.
    pub site: &'static str,
    pub rack: &'static str,
    pub pool: &'static str,
    pub labels: &'static str,
}

/// What lies nowhere: whoever may read the list everywhere reads all of it, and nobody else any.
pub(super) const NOWHERE: Place = Place {
    joins: "",
    site: "NULL::uuid",
    rack: "NULL::uuid",
    pool: "NULL::uuid",
    labels: "'{}'::jsonb",
};

/// Where the node `n` lies: it has at most one claim.
pub(super) const OF_NODE: Place = Place {
    joins: " LEFT JOIN claims h ON h.node_id = n.id AND h.state <> 'released'",
    site: "n.site_id",
    rack: "n.rack_id",
    pool: "h.pool_id",
    labels: "n.labels",
};

/// Leaves what a reader may see.
pub(super) fn within(query: &mut QueryBuilder<Postgres>, place: &Place, sight: &Sight) {
    for scopes in sight {
        // Who holds it in no scope sees nothing.
        query.push(if scopes.is_empty() {
            " AND (false"
        } else {
            " AND ("
        });
        for (at, scope) in scopes.iter().enumerate() {
            query.push(if at == 0 { "(" } else { " OR (" });
            fits(query, place, scope);
            query.push(")");
        }
        query.push(")");
    }
}

/// All that a scope asks for, and nothing else: each part is one that an index can serve.
fn fits(query: &mut QueryBuilder<Postgres>, place: &Place, scope: &Scope) {
    query.push("true");
    let named = [
        (place.site, "site", &scope.site),
        (place.rack, "rack", &scope.rack),
        (place.pool, "pool", &scope.pool),
    ];
    for (column, kind, name) in named {
        let Some(name) = name else { continue };
        query
            .push(" AND ")
            .push(column)
            .push(" = (SELECT id FROM objects WHERE kind = ")
            .push_bind(kind);
        query.push(" AND name = ").push_bind(name.clone()).push(")");
    }
    if !scope.labels.is_empty() {
        query
            .push(" AND ")
            .push(place.labels)
            .push(" @> ")
            .push_bind(Json(scope.labels.clone()));
    }
}
