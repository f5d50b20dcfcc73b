//! Lists of nodes.

use muster_core::ids::NodeId;
use muster_core::lifecycle::state::State;
use sqlx::{PgConnection, Postgres, QueryBuilder};

use super::{Count, Op, Order, Term};
use crate::auth::access::Sight;
use crate::error::Error;

/// What a field of the grammar is in the database.
enum Field<'term> {
    /// A text expression.
    Text(&'static str),
    /// The name of the object that a column refers to.
    Reference {
        column: &'static str,
        kind: &'static str,
    },
    Label(&'term str),
}

fn field(term: &Term) -> Result<Field<'_>, Error> {
    Ok(match term.field.as_str() {
        "name" => Field::Text("n.name"),
        "state" => {
            if term.op != Op::Like && term.value.parse::<State>().is_err() {
                return Err(Error::unprocessable(
                    "filter",
                    "unknown_value",
                    format!("{:?} is not a state", term.value),
                ));
            }
            Field::Text("n.state")
        }
        "serial" => Field::Text("n.serial"),
        "protected" => Field::Text("n.protected::text"),
        "pool" => Field::Text(
            "(SELECT p.name FROM claims c JOIN objects p ON p.id = c.pool_id WHERE c.node_id = n.id AND c.state <> 'released')",
        ),
        "claim" => Field::Text("(SELECT c.name FROM claims c WHERE c.node_id = n.id AND c.state <> 'released')"),
        "site" => Field::Reference { column: "n.site_id", kind: "site" },
        "rack" => Field::Reference { column: "n.rack_id", kind: "rack" },
        "profile" => Field::Reference { column: "n.profile_id", kind: "hardware_profile" },
        other => match other.strip_prefix("label.") {
            Some(label) => Field::Label(label),
            None => {
                let known = "name, state, serial, protected, pool, claim, site, rack, profile, label.NAME";
                let detail = format!("{other:?} cannot be filtered by; {known} can");
                return Err(Error::unprocessable("filter", "unknown_field", detail));
            }
        },
    })
}

/// Ids of the nodes that fit and that the reader may see, by name, up or down, behind the name of `after`.
///
/// # Errors
/// 422 for a field or value that does not exist; otherwise when the database fails.
pub async fn list_node_ids(
    conn: &mut PgConnection,
    terms: &[Term],
    sight: &Sight,
    (order, after): (Order, Option<&str>),
    limit: i64,
) -> Result<Vec<NodeId>, Error> {
    let (beyond, sorted) = match order {
        Order::Up => (" AND n.name > ", " ORDER BY n.name LIMIT "),
        Order::Down => (" AND n.name < ", " ORDER BY n.name DESC LIMIT "),
    };
    let mut query = QueryBuilder::<Postgres>::new("SELECT n.id FROM nodes n WHERE true");
    if let Some(after) = after {
        query.push(beyond).push_bind(after.to_owned());
    }
    for term in terms {
        query.push(" AND ");
        condition(&mut query, term)?;
    }
    seen(&mut query, sight);
    query.push(sorted).push_bind(limit);
    Ok(query.build_query_scalar().fetch_all(conn).await?)
}

/// How many nodes fit and may be seen, counted or as the planner guesses.
///
/// # Errors
/// As [`list_node_ids`].
pub async fn count_nodes(
    conn: &mut PgConnection,
    terms: &[Term],
    sight: &Sight,
    how: Count,
) -> Result<Option<i64>, Error> {
    let mut query = QueryBuilder::<Postgres>::new(match how {
        Count::None => return Ok(None),
        Count::Exact => "SELECT count(*) FROM nodes n WHERE true",
        Count::Estimate => "EXPLAIN (FORMAT JSON) SELECT FROM nodes n WHERE true",
    });
    for term in terms {
        query.push(" AND ");
        condition(&mut query, term)?;
    }
    seen(&mut query, sight);
    if how == Count::Exact {
        return Ok(Some(query.build_query_scalar().fetch_one(conn).await?));
    }
    let plan: serde_json::Value = query.build_query_scalar().fetch_one(conn).await?;
    Ok(plan.pointer("/0/Plan/Plan Rows").and_then(serde_json::Value::as_i64))
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

fn condition(query: &mut QueryBuilder<Postgres>, term: &Term) -> Result<(), Error> {
    match field(term)? {
        // By id, so that the column's index serves.
        Field::Reference { column, kind } if term.op == Op::Equal => {
            query.push(column).push(" = (SELECT id FROM objects WHERE kind = ").push_bind(kind);
            query.push(" AND name = ").push_bind(term.value.clone()).push(")");
        }
        Field::Reference { column, .. } => {
            query.push("(SELECT name FROM objects WHERE id = ").push(column).push(")");
            compare(query, term);
        }
        Field::Text(expression) => {
            query.push(expression);
            compare(query, term);
        }
        Field::Label(label) => {
            query.push("n.labels ->> ").push_bind(label.to_owned());
            compare(query, term);
        }
    }
    Ok(())
}

fn compare(query: &mut QueryBuilder<Postgres>, term: &Term) {
    match term.op {
        Op::Equal => query.push(" = ").push_bind(term.value.clone()),
        Op::NotEqual => query.push(" IS DISTINCT FROM ").push_bind(term.value.clone()),
        Op::Like => query.push(" LIKE ").push_bind(pattern(&term.value)),
    };
}

/// `*` for anything; what LIKE would read as a wildcard stands for itself.
fn pattern(text: &str) -> String {
    text.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_").replace('*', "%")
}
