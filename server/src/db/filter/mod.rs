//! The filter grammar of lists: `state=in_service AND rack~"r1*" AND label.gpu=h200`. Only this
//! folder builds SQL at run time: from a whitelist of fields and operators, with every value bound.
//! Each list has a file with the fields for filters and the columns for sorting.

mod access; // Lists of agents, tokens and people
mod approvals; // Lists of requests for a second person
mod claims; // Lists of claims
mod condition; // The SQL of a filter's terms
mod events; // The numbers of events within a reader's rights
mod history; // Lists of parts, gate runs, recoveries, breakers, deliveries
mod nodes; // Lists of nodes
mod objects; // Lists of declared objects
mod operations; // Lists of operations
mod sight; // The rows that a reader's scopes allow
mod sort; // The order of a list
mod waivers; // Lists of waivers
mod whitelist; // The SQL of a field, and the values a field accepts

pub use self::access::{AGENTS, USERS, tokens_at};
pub use self::approvals::approvals_at;
pub use self::claims::CLAIMS;
pub use self::events::{Stretch, event_seqs};
pub use self::history::{COMPONENTS, DELIVERIES, GATE_RUNS, RECOVERIES, breakers_at};
pub use self::nodes::NODES;
pub use self::objects::objects_of;
pub use self::operations::OPERATIONS;
pub use self::sort::{BY_NAME, Count, Key, OLDEST_FIRST, Order, Sort};
pub use self::waivers::waivers_at;
pub use muster_api::filters::{Op, Term};

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use sqlx::{PgConnection, Postgres, QueryBuilder};
use uuid::Uuid;

use self::condition::{find_fields, push_conditions};
use self::sight::{NOWHERE, Place};
use self::whitelist::{Field, unknown};
use crate::access::Sight;
use crate::error::Error;

/// A list of rows that have an id.
#[derive(Clone, Copy, Debug)]
pub struct List {
    /// The name in the path; page tokens are bound to this name.
    pub name: &'static str,
    /// The orders that a request may ask for; the first is the default.
    pub sorts: &'static [Sort],
    /// The members of an item that `fields` can name.
    pub parts: &'static [&'static str],
    /// `nodes n`
    from: &'static str,
    /// A condition on every row.
    only: &'static str,
    /// The kind of the rows, where one table holds several kinds.
    kind: Option<&'static str>,
    /// The time of the reading, where a row's state depends on the time.
    as_of: Option<Timestamp>,
    /// A column with a time that must be in the future.
    until: Option<&'static str>,
    id: &'static str,
    /// Empty if no order uses the name.
    by_name: &'static str,
    field: fn(&Term) -> Result<Field<'_>, Error>,
    /// The place of a row, compared with the reader's read scope.
    place: Place,
    /// A second join of the same rows, for conditions that an index can answer alone.
    twin: Option<Twin>,
}

/// A second join of a list's rows. Rows of a rack are neighbours in the order of names. With a
/// second condition outside any index, the twin lets the database skip rows of other racks inside
/// an index, without fetching them.
#[derive(Clone, Copy, Debug)]
struct Twin {
    by_name_from: &'static str,
    by_id_from: &'static str,
    id: &'static str,
    by_name: &'static str,
    /// Columns of the list with the same columns of the twin.
    columns: &'static [(&'static str, &'static str)],
}

/// The defaults of a list: all rows of a table, for every reader, without sorting or filtering.
const WHOLE: List = List {
    name: "",
    sorts: &[],
    parts: &[],
    from: "",
    only: "true",
    kind: None,
    as_of: None,
    until: None,
    id: "",
    by_name: "",
    field: |term| Err(unknown(&term.field, "nothing")),
    place: NOWHERE,
    twin: None,
};

/// Parses the `filter` parameter of a list.
///
/// # Errors
/// 400 for a text outside the grammar.
pub fn parse(text: &str) -> Result<Vec<Term>, Error> {
    muster_api::filters::parse(text)
        .map_err(|error| Error::invalid("filter", "invalid_filter", error.to_string()))
}

/// A page of a list.
#[derive(Clone, Copy, Debug)]
pub struct Page<'key> {
    pub sort: Sort,
    /// The key of the last row before the page: a name, or an id as text.
    pub after: Option<&'key str>,
    pub limit: i64,
}

/// Returns the ids of a page: the rows matching the terms within the reader's rights, sorted.
///
/// # Errors
/// 422 for an unknown field or value, and 400 for an `after` that is no key of the list.
pub async fn list_ids(
    conn: &mut PgConnection,
    list: &List,
    terms: &[Term],
    sight: &Sight,
    page: Page<'_>,
) -> Result<Vec<Uuid>, Error> {
    let Page { sort, after, limit } = page;
    let fields = find_fields(conn, list, terms).await?;
    let (list, fields) = beside_twin(list, sort.key, fields, sight);
    let column = match sort.key {
        Key::Name => list.by_name,
        Key::Id => list.id,
    };
    let (beyond, down) = match sort.order {
        Order::Up => (" > ", ""),
        Order::Down => (" < ", " DESC"),
    };
    let mut query = QueryBuilder::<Postgres>::new("SELECT ");
    query.push(list.id);
    push_rows(&mut query, &list, sight);
    if let Some(after) = after {
        query.push(" AND ").push(column).push(beyond);
        match sort.key {
            Key::Name => query.push_bind(after.to_owned()),
            Key::Id => query.push_bind(after.parse::<Uuid>().map_err(|_| no_position())?),
        };
    }
    push_conditions(&mut query, &list, terms, fields, sight);
    query
        .push(" ORDER BY ")
        .push(column)
        .push(down)
        .push(" LIMIT ")
        .push_bind(limit);
    // A plan for these values: the best index depends on how many rows the filter matches.
    Ok(query
        .build_query_scalar()
        .persistent(false)
        .fetch_all(conn)
        .await?)
}

/// Joins the list with its twin if the twin helps. A single condition on neighbouring rows is
/// already served by the index.
fn beside_twin<'term>(
    list: &List,
    key: Key,
    mut fields: Vec<Field<'term>>,
    sight: &Sight,
) -> (List, Vec<Field<'term>>) {
    let in_runs = fields
        .iter()
        .any(|field| matches!(field, Field::Among { .. }));
    let alone = fields.len() == 1 && sight.is_empty();
    let Some(twin) = list.twin.filter(|_| in_runs && !alone) else {
        return (*list, fields);
    };
    for field in &mut fields {
        let Field::Among { column, .. } = field else {
            continue;
        };
        *column = twin
            .columns
            .iter()
            .find(|(own, _)| own == column)
            .map_or(*column, |(_, theirs)| *theirs);
    }
    let from = match key {
        Key::Name => twin.by_name_from,
        Key::Id => twin.by_id_from,
    };
    (
        List {
            from,
            id: twin.id,
            by_name: twin.by_name,
            ..*list
        },
        fields,
    )
}

fn no_position() -> Error {
    Error::invalid(
        "page_token",
        "invalid_page_token",
        "It is not a token of this list with this filter.",
    )
}

/// Returns the number of rows matching the terms within the reader's rights, counted or estimated
/// by the planner.
///
/// # Errors
/// As [`list_ids`].
pub async fn count(
    conn: &mut PgConnection,
    list: &List,
    terms: &[Term],
    sight: &Sight,
    how: Count,
) -> Result<Option<i64>, Error> {
    // Kinds that share a table have few rows: an exact count is as cheap.
    let how = if list.kind.is_some() && how == Count::Estimate {
        Count::Exact
    } else {
        how
    };
    let fields = if how == Count::None {
        Vec::new()
    } else {
        find_fields(conn, list, terms).await?
    };
    let mut query = QueryBuilder::<Postgres>::new(match how {
        Count::None => return Ok(None),
        Count::Exact => "SELECT count(*)",
        Count::Estimate => "EXPLAIN (FORMAT JSON) SELECT",
    });
    push_rows(&mut query, list, sight);
    push_conditions(&mut query, list, terms, fields, sight);
    if how == Count::Exact {
        return Ok(Some(
            query
                .build_query_scalar()
                .persistent(false)
                .fetch_one(conn)
                .await?,
        ));
    }
    let plan: serde_json::Value = query
        .build_query_scalar()
        .persistent(false)
        .fetch_one(conn)
        .await?;
    Ok(plan
        .pointer("/0/Plan/Plan Rows")
        .and_then(serde_json::Value::as_i64))
}

/// Returns the ids of all rows within the reader's rights, for questions about many rows at once.
/// `None`: the rights cover every row.
pub async fn list_visible(
    conn: &mut PgConnection,
    list: &List,
    sight: &Sight,
) -> Result<Option<Vec<Uuid>>, Error> {
    if sight.is_empty() {
        return Ok(None);
    }
    let mut query = QueryBuilder::<Postgres>::new("SELECT ");
    query.push(list.id);
    push_rows(&mut query, list, sight);
    push_conditions(&mut query, list, &[], Vec::new(), sight);
    Ok(Some(
        query
            .build_query_scalar()
            .persistent(false)
            .fetch_all(conn)
            .await?,
    ))
}

fn push_rows(query: &mut QueryBuilder<Postgres>, list: &List, sight: &Sight) {
    query
        .push(" FROM ")
        .push(list.from)
        .push(if sight.is_empty() {
            ""
        } else {
            list.place.joins
        });
    query.push(" WHERE ").push(list.only);
    if let Some(kind) = list.kind {
        query.push(" AND o.kind = ").push_bind(kind);
    }
    if let Some((until, now)) = list.until.zip(list.as_of) {
        query
            .push(" AND ")
            .push(until)
            .push(" > ")
            .push_bind(now.to_sqlx());
    }
}
