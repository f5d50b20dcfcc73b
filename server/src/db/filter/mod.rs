//! The filter grammar of lists, `state=in_service AND rack~"r1*" AND label.gpu=h200`, and the only place that builds SQL: from a whitelist
//! of fields and operators, with every value bound. A list says what it can be filtered and sorted by in a file of its own.

mod access;
mod approvals;
mod claims;
mod events;
mod grammar;
mod history;
mod nodes;
mod objects;
mod operations;
mod sight;
mod waivers;

pub use self::access::{AGENTS, USERS, tokens};
pub use self::approvals::approvals;
pub use self::claims::CLAIMS;
pub use self::events::event_seqs;
pub use self::grammar::{Op, Term, parse};
pub use self::history::{COMPONENTS, DELIVERIES, GATE_RUNS, RECOVERIES, breakers};
pub use self::nodes::NODES;
pub use self::objects::objects;
pub use self::operations::OPERATIONS;
pub use self::waivers::waivers;

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use sqlx::{PgConnection, Postgres, QueryBuilder};
use uuid::Uuid;

use self::sight::{NOWHERE, Place};
use crate::auth::access::Sight;
use crate::error::Error;

/// A list of rows that have an id.
#[derive(Clone, Copy, Debug)]
pub struct List {
    /// In the path, and in what a page token is bound to.
    pub name: &'static str,
    /// What can be sorted by; the first one is how it runs when nothing is asked for.
    pub sorts: &'static [Sort],
    /// Members of an item that `fields` can name.
    pub parts: &'static [&'static str],
    /// `nodes n`
    from: &'static str,
    /// What holds for all that are listed.
    only: &'static str,
    /// Of which kind they are, where one table has several.
    kind: Option<&'static str>,
    /// When it is read, where it changes by time alone how a row stands.
    as_of: Option<Timestamp>,
    /// A time of theirs that must be to come.
    until: Option<&'static str>,
    id: &'static str,
    /// Empty where nothing is sorted by it.
    by_name: &'static str,
    field: fn(&Term) -> Result<Field<'_>, Error>,
    /// Where they lie, which decides who sees them.
    place: Place,
    /// The same rows once more, for what an index can answer of them alone.
    twin: Option<Twin>,
}

/// A list's rows once more, joined where a page is sought by something that lies in runs, as racks do in the order of names, beside something
/// that no index holds: the runs of what does not fit are then passed in an index, and no row of them is fetched.
#[derive(Clone, Copy, Debug)]
struct Twin {
    by_name_from: &'static str,
    by_id_from: &'static str,
    id: &'static str,
    by_name: &'static str,
    /// Columns of the list, and the twin's.
    columns: &'static [(&'static str, &'static str)],
}

/// All of a table's rows, whoever reads, by nothing: each list says in what it is more than that.
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

/// More objects than any fleet has of a kind: what more are called like is left to the database to look up row by row.
const MOST_NAMED: i64 = 10_000;

/// What a list runs by: something that no two rows share and that an index serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Name,
    /// When it was made: ids grow with time.
    Id,
}

/// How a list runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sort {
    pub key: Key,
    pub order: Order,
}

impl Sort {
    /// `name`, `-name`, `created_at`, `-created_at`.
    pub fn word(self) -> &'static str {
        match (self.key, self.order) {
            (Key::Name, Order::Up) => "name",
            (Key::Name, Order::Down) => "-name",
            (Key::Id, Order::Up) => "created_at",
            (Key::Id, Order::Down) => "-created_at",
        }
    }
}

/// Which way a list runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Up,
    Down,
}

/// Both ways by name.
pub const BY_NAME: [Sort; 2] = [NAME_UP, NAME_DOWN];
const NAME_UP: Sort = Sort {
    key: Key::Name,
    order: Order::Up,
};
const NAME_DOWN: Sort = Sort {
    key: Key::Name,
    order: Order::Down,
};
/// In the order in which they were made.
pub const OLDEST_FIRST: Sort = Sort {
    key: Key::Id,
    order: Order::Up,
};
const NEWEST_FIRST: Sort = Sort {
    key: Key::Id,
    order: Order::Down,
};

/// How many fit in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    Exact,
    /// As the database's statistics have it.
    Estimate,
    None,
}

/// What a field of the grammar is in the database.
enum Field<'term> {
    /// A text expression.
    Text(&'static str),
    /// The same with the time of the reading between its parts: what a row is called then.
    AsOf(&'static str, &'static str),
    /// The object that a column refers to, by its name. By id where that serves an index.
    Object {
        column: &'static str,
        kind: &'static str,
    },
    /// One of these.
    Among {
        column: &'static str,
        ids: Vec<Uuid>,
    },
    /// The node that a column refers to, by its name or id.
    Node { column: &'static str },
    /// What a column refers to, by its id.
    Id { column: &'static str },
    /// Something else that rows have by name: which of them have it, and how it is called.
    Held {
        among: &'static str,
        name: &'static str,
    },
    /// The same, where what they have refers to an object that has the name.
    HeldOf {
        among: &'static str,
        column: &'static str,
        kind: &'static str,
    },
    Label {
        column: &'static str,
        label: &'term str,
    },
}

/// Ids of the rows that fit and that the reader may see, sorted, behind the key `after`: a name, or an id as text.
///
/// # Errors
/// 422 for a field or value that does not exist, 400 for a key that is none; otherwise when the database fails.
pub async fn list_ids(
    conn: &mut PgConnection,
    list: &List,
    (terms, sight): (&[Term], &Sight),
    (sort, after): (Sort, Option<&str>),
    limit: i64,
) -> Result<Vec<Uuid>, Error> {
    let fields = fields(conn, list, terms).await?;
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
    rows(&mut query, &list, sight);
    if let Some(after) = after {
        query.push(" AND ").push(column).push(beyond);
        match sort.key {
            Key::Name => query.push_bind(after.to_owned()),
            Key::Id => query.push_bind(after.parse::<Uuid>().map_err(|_| no_position())?),
        };
    }
    conditions(&mut query, &list, terms, fields, sight);
    query
        .push(" ORDER BY ")
        .push(column)
        .push(down)
        .push(" LIMIT ")
        .push_bind(limit);
    // Planned for these values: which index is best depends on how many rows a filter fits.
    Ok(query
        .build_query_scalar()
        .persistent(false)
        .fetch_all(conn)
        .await?)
}

/// What each term asks of which column. Objects that are called like something are looked up first: knowing how many there are, the planner
/// knows how many rows fit, and each row is looked up among them at once.
async fn fields<'term>(
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

/// The ids of the objects of a kind that are called like this; nothing when they are too many to name.
async fn objects_like(
    conn: &mut PgConnection,
    kind: &str,
    value: &str,
) -> Result<Option<Vec<Uuid>>, Error> {
    let ids = sqlx::query_scalar!(
        "SELECT id FROM objects WHERE kind = $1 AND name LIKE $2 LIMIT $3",
        kind,
        pattern(value),
        MOST_NAMED + 1,
    )
    .fetch_all(conn)
    .await?;
    Ok(i64::try_from(ids.len())
        .is_ok_and(|found| found <= MOST_NAMED)
        .then_some(ids))
}

/// The list with its twin, where that helps: alone, what lies in runs is in the index already.
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

/// How many rows fit and may be seen, counted or as the planner guesses.
///
/// # Errors
/// As [`list_ids`].
pub async fn count(
    conn: &mut PgConnection,
    list: &List,
    (terms, sight): (&[Term], &Sight),
    how: Count,
) -> Result<Option<i64>, Error> {
    // There is little of what shares a table: a guess is no cheaper.
    let how = if list.kind.is_some() && how == Count::Estimate {
        Count::Exact
    } else {
        how
    };
    let fields = if how == Count::None {
        Vec::new()
    } else {
        fields(conn, list, terms).await?
    };
    let mut query = QueryBuilder::<Postgres>::new(match how {
        Count::None => return Ok(None),
        Count::Exact => "SELECT count(*)",
        Count::Estimate => "EXPLAIN (FORMAT JSON) SELECT",
    });
    rows(&mut query, list, sight);
    conditions(&mut query, list, terms, fields, sight);
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

/// All that a reader may see of a list: its id for each; nothing where that is everything. For what is asked of many rows at once and is no page.
///
/// # Errors
/// When the database fails.
pub async fn seen(
    conn: &mut PgConnection,
    list: &List,
    sight: &Sight,
) -> Result<Option<Vec<Uuid>>, Error> {
    if sight.is_empty() {
        return Ok(None);
    }
    let mut query = QueryBuilder::<Postgres>::new("SELECT ");
    query.push(list.id);
    rows(&mut query, list, sight);
    conditions(&mut query, list, &[], Vec::new(), sight);
    Ok(Some(
        query
            .build_query_scalar()
            .persistent(false)
            .fetch_all(conn)
            .await?,
    ))
}

fn rows(query: &mut QueryBuilder<Postgres>, list: &List, sight: &Sight) {
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

fn conditions(
    query: &mut QueryBuilder<Postgres>,
    list: &List,
    terms: &[Term],
    fields: Vec<Field<'_>>,
    sight: &Sight,
) {
    for (term, field) in terms.iter().zip(fields) {
        query.push(" AND ");
        condition(query, field, term, list.as_of);
    }
    sight::within(query, &list.place, sight);
}

fn condition(
    query: &mut QueryBuilder<Postgres>,
    field: Field<'_>,
    term: &Term,
    as_of: Option<Timestamp>,
) {
    match field {
        Field::Text(expression) => {
            query.push(expression);
            compare(query, term);
        }
        Field::AsOf(before, after) => {
            query
                .push(before)
                .push_bind(as_of.unwrap_or_default().to_sqlx())
                .push(after);
            compare(query, term);
        }
        Field::Object { column, kind } => among(query, column, term.op, |query| {
            named_objects(query, kind, term)
        }),
        Field::Among { column, ids } => {
            query.push(column).push(" = ANY (").push_bind(ids).push(")");
        }
        Field::Node { column } => {
            let named = |query: &mut QueryBuilder<Postgres>| {
                query.push("(SELECT id FROM nodes WHERE name");
                compare(
                    query,
                    &Term {
                        op: if term.op == Op::Like {
                            Op::Like
                        } else {
                            Op::Equal
                        },
                        ..term.clone()
                    },
                );
                query.push(")");
            };
            match term.value.parse::<Uuid>() {
                Ok(id) if term.op == Op::Equal => {
                    drop(query.push(column).push(" = ").push_bind(id))
                }
                _ => among(query, column, term.op, named),
            }
        }
        Field::Id { column } => {
            let id = term.value.parse::<Uuid>().unwrap_or_default();
            let word = if term.op == Op::NotEqual {
                " IS DISTINCT FROM "
            } else {
                " = "
            };
            query.push(column).push(word).push_bind(id);
        }
        Field::Held { among, name } => {
            query.push(if term.op == Op::NotEqual {
                "NOT EXISTS ("
            } else {
                "EXISTS ("
            });
            query.push(among).push(" AND ").push(name);
            compare(
                query,
                &Term {
                    op: if term.op == Op::Like {
                        Op::Like
                    } else {
                        Op::Equal
                    },
                    ..term.clone()
                },
            );
            query.push(")");
        }
        Field::HeldOf {
            among: rows,
            column,
            kind,
        } => {
            query.push(if term.op == Op::NotEqual {
                "NOT EXISTS ("
            } else {
                "EXISTS ("
            });
            query.push(rows).push(" AND ");
            let op = if term.op == Op::Like {
                Op::Like
            } else {
                Op::Equal
            };
            among(query, column, op, |query| named_objects(query, kind, term));
            query.push(")");
        }
        Field::Label { column, label } if term.op == Op::Equal => {
            // What the index on labels serves.
            query
                .push(column)
                .push(" @> ")
                .push_bind(serde_json::json!({ label: term.value }));
        }
        Field::Label { column, label } => {
            query.push(column).push(" ->> ").push_bind(label.to_owned());
            compare(query, term);
        }
    }
}

/// The ids of the objects of a kind whose name is the term's, or like it.
fn named_objects(query: &mut QueryBuilder<Postgres>, kind: &'static str, term: &Term) {
    query
        .push("(SELECT id FROM objects WHERE kind = ")
        .push_bind(kind)
        .push(" AND name");
    compare(
        query,
        &Term {
            op: if term.op == Op::Like {
                Op::Like
            } else {
                Op::Equal
            },
            ..term.clone()
        },
    );
    query.push(")");
}

/// Whether a column's id is among those that have the name. What refers to nothing is called nothing.
fn among(
    query: &mut QueryBuilder<Postgres>,
    column: &'static str,
    op: Op,
    named: impl FnOnce(&mut QueryBuilder<Postgres>),
) {
    match op {
        Op::Equal => {
            query.push(column).push(" = ");
            named(query);
        }
        Op::Like => {
            query.push(column).push(" IN ");
            named(query);
        }
        Op::NotEqual => {
            query.push("COALESCE(").push(column).push(" <> ");
            named(query);
            query.push(", true)");
        }
    }
}

fn compare(query: &mut QueryBuilder<Postgres>, term: &Term) {
    match term.op {
        Op::Equal => query.push(" = ").push_bind(term.value.clone()),
        Op::NotEqual => query
            .push(" IS DISTINCT FROM ")
            .push_bind(term.value.clone()),
        Op::Like => query.push(" LIKE ").push_bind(pattern(&term.value)),
    };
}

/// `*` for anything; what LIKE would read as a wildcard stands for itself.
fn pattern(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('%', "\\%")
        .replace('_', "\\_")
        .replace('*', "%")
}

/// 422 for a field that a list does not have.
fn unknown(field: &str, known: &str) -> Error {
    Error::unprocessable(
        "filter",
        "unknown_field",
        format!("{field:?} cannot be filtered by; {known} can"),
    )
}

/// A column of words: 422 for one that it never holds.
fn word<'term, T: std::str::FromStr>(
    term: &Term,
    column: &'static str,
    noun: &str,
) -> Result<Field<'term>, Error> {
    if term.op != Op::Like && term.value.parse::<T>().is_err() {
        return Err(Error::unprocessable(
            "filter",
            "unknown_value",
            format!("{:?} is not {noun}", term.value),
        ));
    }
    Ok(Field::Text(column))
}

/// The same for words that have no type of their own.
fn one_of<'term>(term: &Term, words: &[&str], field: Field<'term>) -> Result<Field<'term>, Error> {
    if term.op != Op::Like && !words.contains(&term.value.as_str()) {
        let detail = format!("{:?} is none of {}", term.value, words.join(", "));
        return Err(Error::unprocessable("filter", "unknown_value", detail));
    }
    Ok(field)
}

/// The object whose id it is: what the path of a request names, never its name.
fn by_id<'term>(term: &Term, column: &'static str) -> Result<Field<'term>, Error> {
    match term.value.parse::<Uuid>() {
        Ok(_) => Ok(Field::Id { column }),
        Err(_) => Err(Error::unprocessable(
            "filter",
            "unknown_value",
            format!("{:?} is not an id", term.value),
        )),
    }
}
