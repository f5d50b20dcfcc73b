//! Read scope over many rows: a row is visible if at least one scope matches in each of the
//! reader's scope lists. The SQL here must agree with `db::access::find_place`, used for one object;
//! `tests/it/access` compares each list with the single reads.

use muster_api::access::Scope;
use sqlx::types::Json;
use sqlx::{Postgres, QueryBuilder};

use crate::access::Sight;

/// The place of a list's rows, as SQL.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// The joins needed for the place. Left out for readers of the whole fleet. The joins never
    /// multiply a row.
    pub joins: &'static str,
    /// Expressions for the ids of site, rack and pool, and for the labels.
    pub site: &'static str,
    pub rack: &'static str,
    pub pool: &'static str,
    pub labels: &'static str,
}

/// The place of rows outside every site, rack and pool. Only readers with the whole fleet in scope
/// see such rows.
pub(super) const NOWHERE: Place = Place {
    joins: "",
    site: "NULL::uuid",
    rack: "NULL::uuid",
    pool: "NULL::uuid",
    labels: "'{}'::jsonb",
};

/// The place of the node `n`. The join adds at most one row, because a node has at most one open
/// claim.
pub(super) const OF_NODE: Place = Place {
    joins: " LEFT JOIN claims h ON h.node_id = n.id AND h.state <> 'released'",
    site: "n.site_id",
    rack: "n.rack_id",
    pool: "h.pool_id",
    labels: "n.labels",
};

/// Adds the condition for rows within a reader's read scope.
pub(super) fn push_read_scope(query: &mut QueryBuilder<Postgres>, place: &Place, sight: &Sight) {
    for scopes in sight {
        // An empty scope list matches no row.
        query.push(if scopes.is_empty() {
            " AND (false"
        } else {
            " AND ("
        });
        for (at, scope) in scopes.iter().enumerate() {
            query.push(if at == 0 { "(" } else { " OR (" });
            push_scope(query, place, scope);
            query.push(")");
        }
        query.push(")");
    }
}

/// Adds the conditions of one scope. Each condition can be served by an index.
fn push_scope(query: &mut QueryBuilder<Postgres>, place: &Place, scope: &Scope) {
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
