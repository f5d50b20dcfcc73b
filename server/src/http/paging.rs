//! Pages of lists. A position in the sort key (keyset paging) is encoded in an opaque token, bound
//! to the list, filter and sort of its request.

use std::collections::HashMap;

use muster_api::object::Page;
use muster_api::page_tokens::{InvalidPage, MOST, Position};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sqlx::PgConnection;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::access::Sight;
use crate::db::filter::{self, Count, Key, List, Sort, Term};
use crate::error::Error;
use crate::intents::answer::Answer;

/// Query parameters of every list.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// The page size: 1 to 1000, 100 when absent.
    pub limit: Option<u32>,
    /// The token from the previous page.
    pub page_token: Option<String>,
    /// `state=in_service AND rack~"r1*" AND label.gpu=h200`: `=`, `!=`, `~` with `*`, joined by
    /// AND. An unknown field is answered with 422 and the known fields.
    pub filter: Option<String>,
    /// `name`, `-name`, `created_at` or `-created_at`, as far as the list has an index for the
    /// order. Another word is answered with 422 and the possible ones.
    pub sort: Option<String>,
    /// Members of each item, for example `status.state,labels`; `id`, `name` and `self` are always
    /// included. All members when absent.
    pub fields: Option<String>,
    /// `exact`, `estimate` or `none`: the method to count all matching items. `none` when absent.
    pub count: Option<String>,
}

impl ListQuery {
    /// The requested sort, or the list's default.
    ///
    /// # Errors
    /// 422 for a sort without an index.
    pub fn sort(&self, sorts: &[Sort]) -> Result<Sort, Error> {
        let fits = |sort: &&Sort| self.sort.as_deref().is_none_or(|word| word == sort.word());
        sorts.iter().find(fits).copied().ok_or_else(|| {
            let known = sorts
                .iter()
                .map(|sort| sort.word())
                .collect::<Vec<_>>()
                .join(", ");
            Error::unprocessable(
                "sort",
                "unknown_value",
                format!("The list can be sorted by {known}."),
            )
        })
    }

    /// The requested method of counting.
    ///
    /// # Errors
    /// 422 for another word.
    pub fn count(&self) -> Result<Count, Error> {
        match self.count.as_deref() {
            None | Some("none") => Ok(Count::None),
            Some("exact") => Ok(Count::Exact),
            Some("estimate") => Ok(Count::Estimate),
            Some(_) => Err(Error::unprocessable(
                "count",
                "unknown_value",
                "exact, estimate or none",
            )),
        }
    }

    /// Reduces every item of a page to the requested `fields`.
    ///
    /// # Errors
    /// 422 for a member no item has.
    pub fn cut(&self, page: &mut Value, parts: &[&str]) -> Result<(), Error> {
        let Some(fields) = self.fields.as_deref() else {
            return Ok(());
        };
        let asked: Vec<Vec<&str>> = fields
            .split(',')
            .map(|field| field.trim().split('.').collect())
            .collect();
        if let Some(unknown) = asked.iter().find(|path| !parts.contains(&path[0])) {
            let detail = format!(
                "{:?} is not a member of an item; the members are: {}.",
                unknown[0],
                parts.join(", ")
            );
            return Err(Error::unprocessable("fields", "unknown_field", detail));
        }
        for item in page["items"].as_array_mut().into_iter().flatten() {
            let mut kept = Value::Object(Map::new());
            for path in [&["id"][..], &["name"], &["self"]]
                .into_iter()
                .chain(asked.iter().map(Vec::as_slice))
            {
                copy_value(item, path, &mut kept);
            }
            *item = kept;
        }
        Ok(())
    }
}

/// Builds a page of a list of `db/filter`: the rows matching the filter and `also`, inside the read
/// scope `sight`, in the requested order. `load` loads the rows with the ids of the page, in any
/// order. `key` returns the id and the name of a row.
///
/// # Errors
/// 400 and 422 for an invalid query; otherwise when the database fails.
pub async fn build_page<T: Serialize>(
    conn: &mut PgConnection,
    list: &List,
    query: &ListQuery,
    also: Vec<Term>,
    sight: &Sight,
    load: impl AsyncFnOnce(&mut PgConnection, &[Uuid]) -> Result<Vec<T>, Error>,
    key: impl Fn(&T) -> (Uuid, &str),
) -> Result<Answer, Error> {
    let (sort, count) = (query.sort(list.sorts)?, query.count()?);
    let mut terms = filter::parse(query.filter.as_deref().unwrap_or_default())?;
    terms.extend(also);
    let bound = format!("{} {terms:?}", sort.word());
    let position = Position::of(list.name, query.limit, query.page_token.as_deref(), &bound)
        .map_err(invalid_page)?;
    let after = Some(position.after.as_str()).filter(|after| !after.is_empty());
    let rows = filter::Page {
        sort,
        after,
        limit: position.rows(),
    };
    let mut ids = filter::list_ids(conn, list, &terms, sight, rows).await?;
    let more = ids.len() > position.limit;
    ids.truncate(position.limit);
    let mut items = load(conn, &ids).await?;
    // Restore the order of the page, because `load` may return any order.
    let places: HashMap<Uuid, usize> = ids.iter().enumerate().map(|(at, id)| (*id, at)).collect();
    items.sort_by_key(|item| places.get(&key(item).0).copied());
    let token = |last: &T| match sort.key {
        Key::Name => position.token(key(last).1),
        Key::Id => position.token(&key(last).0.to_string()),
    };
    let next_page_token = items.last().filter(|_| more).map(token);
    let mut answer = Answer::ok(&Page {
        items,
        next_page_token,
    })?;
    if let Some(count) = filter::count(conn, list, &terms, sight, count).await? {
        answer.body["count"] = count.into();
    }
    query.cut(&mut answer.body, list.parts)?;
    Ok(answer)
}

fn invalid_page(error: InvalidPage) -> Error {
    match error {
        InvalidPage::Limit => Error::invalid("limit", "out_of_range", format!("1 to {MOST}")),
        InvalidPage::Token => Error::invalid(
            "page_token",
            "invalid_page_token",
            "It is not a token of this list with this filter.",
        ),
    }
}

/// Copies the value at a path, where present.
fn copy_value(from: &Value, path: &[&str], into: &mut Value) {
    let (Some((first, rest)), Some(into)) = (path.split_first(), into.as_object_mut()) else {
        return;
    };
    let Some(part) = from.get(first) else { return };
    match rest {
        [] => drop(into.insert((*first).to_owned(), part.clone())),
        rest => copy_value(
            part,
            rest,
            into.entry(*first)
                .or_insert_with(|| Value::Object(Map::new())),
        ),
    }
}

/// One page of a list. With `count`, the number of all matching items is included; with `fields`,
/// items have only the requested members.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes what `page` answers")]
pub struct CountedPage<T> {
    items: Vec<T>,
    /// Opaque; bound to the filter and the sort of the request. Absent on the last page.
    next_page_token: Option<String>,
    /// The number of all matching items. Absent unless `count` was requested.
    count: Option<i64>,
}
