//! The SQL of a filter's terms. Expressions come from the whitelist; every value is bound.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use sqlx::{PgConnection, Postgres, QueryBuilder};
use uuid::Uuid;

use super::List;
use super::sight;
use super::whitelist::Field;
use super::{Op, Term};
use crate::access::Sight;
use crate::error::Error;

/// The largest list of ids in a query: above any fleet's number of objects of a kind. The database
/// searches larger sets row by row.
const MOST_NAMED: i64 = 10_000;

/// Returns the field of each term. Objects matching a pattern are looked up first, because the
/// planner estimates the number of rows better with known ids.
pub(super) async fn find_fields<'term>(
    conn: &mut PgConnection,
    list: &List,
    terms: &'term [Term],
) -> Result<Vec<Field<'term>>, Error> {
    let mut fields = Vec::with_capacity(terms.len());
    for term in terms {
        let field = (list.field)(term)?;
        let Field::Object { column, kind } = field else {
            fields.push(field);
            continue;
        };
        let ids = match term.op {
            Op::Like => objects_like(conn, kind, &term.value).await?,
            Op::Equal | Op::NotEqual => None,
        };
        fields.push(
            ids.map_or(Field::Object { column, kind }, |ids| Field::Among {
                column,
                ids,
            }),
        );
    }
    Ok(fields)
}

/// Returns the ids of a kind's objects with a matching name, or `None` above [`MOST_NAMED`].
async fn objects_like(
    conn: &mut PgConnection,
    kind: &str,
    value: &str,
) -> Result<Option<Vec<Uuid>>, Error> {
    let ids = sqlx::query_scalar!(
        "SELECT id FROM objects WHERE kind = $1 AND name LIKE $2 LIMIT $3",
        kind,
        like_pattern(value),
        MOST_NAMED + 1,
    )
    .fetch_all(conn)
    .await?;
    Ok(i64::try_from(ids.len())
        .is_ok_and(|found| found <= MOST_NAMED)
        .then_some(ids))
}

/// Adds every term, and the limits of the reader's rights.
pub(super) fn push_conditions(
    query: &mut QueryBuilder<Postgres>,
    list: &List,
    terms: &[Term],
    fields: Vec<Field<'_>>,
    sight: &Sight,
) {
    for (term, field) in terms.iter().zip(fields) {
        query.push(" AND ");
        push_condition(query, field, term, list.as_of);
    }
    sight::push_read_scope(query, &list.place, sight);
}

fn push_condition(
    query: &mut QueryBuilder<Postgres>,
    field: Field<'_>,
    term: &Term,
    as_of: Option<Timestamp>,
) {
    match field {
        Field::Text(expression) => {
            query.push(expression);
            push_comparison(query, term.op, &term.value);
        }
        Field::AsOf(before, after) => {
            query
                .push(before)
                .push_bind(as_of.unwrap_or_default().to_sqlx())
                .push(after);
            push_comparison(query, term.op, &term.value);
        }
        Field::Object { column, kind } => push_membership(query, column, term.op, |query| {
            push_objects(query, kind, term)
        }),
        Field::Among { column, ids } => {
            query.push(column).push(" = ANY (").push_bind(ids).push(")");
        }
        Field::Node { column } => push_node(query, column, term),
        Field::Id { column } => push_id(query, column, term),
        Field::Held { among, name } => push_exists(query, term.op, |query| {
            query.push(among).push(" AND ").push(name);
            push_comparison(query, positive_operator(term.op), &term.value);
        }),
        Field::HeldOf {
            among,
            column,
            kind,
        } => push_exists(query, term.op, |query| {
            query.push(among).push(" AND ");
            push_membership(query, column, positive_operator(term.op), |query| {
                push_objects(query, kind, term)
            });
        }),
        Field::Label { column, label } => push_label(query, column, label, term),
    }
}

/// Adds a condition on a column with a node's id. A value with an id needs no lookup by name.
fn push_node(query: &mut QueryBuilder<Postgres>, column: &'static str, term: &Term) {
    match term.value.parse::<Uuid>() {
        Ok(id) if term.op == Op::Equal => {
            query.push(column).push(" = ").push_bind(id);
        }
        _ => push_membership(query, column, term.op, |query| {
            query.push("(SELECT id FROM nodes WHERE name");
            push_comparison(query, positive_operator(term.op), &term.value);
            query.push(")");
        }),
    }
}

fn push_id(query: &mut QueryBuilder<Postgres>, column: &'static str, term: &Term) {
    let id = term.value.parse::<Uuid>().unwrap_or_default();
    let word = if term.op == Op::NotEqual {
        " IS DISTINCT FROM "
    } else {
        " = "
    };
    query.push(column).push(word).push_bind(id);
}

fn push_label(query: &mut QueryBuilder<Postgres>, column: &'static str, label: &str, term: &Term) {
    match term.op {
        // The index on labels serves this operator.
        Op::Equal => {
            query
                .push(column)
                .push(" @> ")
                .push_bind(serde_json::json!({ label: term.value }));
        }
        Op::NotEqual | Op::Like => {
            query.push(column).push(" ->> ").push_bind(label.to_owned());
            push_comparison(query, term.op, &term.value);
        }
    }
}

/// Adds a condition on the existence of rows in another table. `!=` requires their absence.
fn push_exists(
    query: &mut QueryBuilder<Postgres>,
    op: Op,
    rows: impl FnOnce(&mut QueryBuilder<Postgres>),
) {
    query.push(if op == Op::NotEqual {
        "NOT EXISTS ("
    } else {
        "EXISTS ("
    });
    rows(query);
    query.push(")");
}

/// Adds a condition on a column's id being among the ids of a subquery. A column without an id
/// differs from every name.
fn push_membership(
    query: &mut QueryBuilder<Postgres>,
    column: &'static str,
    op: Op,
    ids: impl FnOnce(&mut QueryBuilder<Postgres>),
) {
    match op {
        Op::Equal => {
            query.push(column).push(" = ");
            ids(query);
        }
        Op::Like => {
            query.push(column).push(" IN ");
            ids(query);
        }
        Op::NotEqual => {
            query.push("COALESCE(").push(column).push(" <> ");
            ids(query);
            query.push(", true)");
        }
    }
}

/// Adds a subquery for the ids of a kind's objects with a name equal to the term's value or
/// matching its pattern.
fn push_objects(query: &mut QueryBuilder<Postgres>, kind: &'static str, term: &Term) {
    query
        .push("(SELECT id FROM objects WHERE kind = ")
        .push_bind(kind)
        .push(" AND name");
    push_comparison(query, positive_operator(term.op), &term.value);
    query.push(")");
}

/// Returns the operator for a subquery. Negation is applied by the outer query.
fn positive_operator(op: Op) -> Op {
    match op {
        Op::Equal | Op::NotEqual => Op::Equal,
        Op::Like => Op::Like,
    }
}

fn push_comparison(query: &mut QueryBuilder<Postgres>, op: Op, value: &str) {
    match op {
        Op::Equal => query.push(" = ").push_bind(value.to_owned()),
        Op::NotEqual => query.push(" IS DISTINCT FROM ").push_bind(value.to_owned()),
        Op::Like => query.push(" LIKE ").push_bind(like_pattern(value)),
    };
}

/// Converts a pattern to `LIKE` syntax: `*` matches any text, and the wildcards of `LIKE` are
/// escaped.
fn like_pattern(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('%', "\\%")
        .replace('_', "\\_")
        .replace('*', "%")
}
