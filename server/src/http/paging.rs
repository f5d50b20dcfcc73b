//! Pages: keyset positions behind opaque tokens that are bound to the list they were given for.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use muster_core::values::Digest;
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::IntoParams;

use crate::db::filter::{Count, Order};
use crate::error::Error;

const DEFAULT: u32 = 100;
const MOST: u32 = 1000;

/// What every list takes.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// 1 to 1000, 100 when absent.
    pub limit: Option<u32>,
    /// Of the page before.
    pub page_token: Option<String>,
    /// `state=in_service AND rack~"r1*" AND label.gpu=h200`.
    pub filter: Option<String>,
    /// `name` or `-name`.
    pub sort: Option<String>,
    /// Parts of each item, as `status.state,labels`; `id`, `name` and `self` are always there. All of it when absent.
    pub fields: Option<String>,
    /// `exact`, `estimate` or `none`: how many fit in all. `none` when absent.
    pub count: Option<String>,
}

impl ListQuery {
    /// Which way it runs.
    ///
    /// # Errors
    /// 422 for a sort that no index serves.
    pub fn order(&self) -> Result<Order, Error> {
        match self.sort.as_deref() {
            None | Some("name") => Ok(Order::Up),
            Some("-name") => Ok(Order::Down),
            Some(_) => Err(Error::unprocessable("sort", "unknown_value", "name or -name: no index serves another.")),
        }
    }

    /// Whether to count.
    ///
    /// # Errors
    /// 422 for another word.
    pub fn count(&self) -> Result<Count, Error> {
        match self.count.as_deref() {
            None | Some("none") => Ok(Count::None),
            Some("exact") => Ok(Count::Exact),
            Some("estimate") => Ok(Count::Estimate),
            Some(_) => Err(Error::unprocessable("count", "unknown_value", "exact, estimate or none")),
        }
    }

    /// Leaves of every item what was asked for.
    ///
    /// # Errors
    /// 422 for a part that no object has.
    pub fn cut(&self, page: &mut Value) -> Result<(), Error> {
        let Some(fields) = self.fields.as_deref() else { return Ok(()) };
        let asked: Vec<Vec<&str>> = fields.split(',').map(|field| field.trim().split('.').collect()).collect();
        if let Some(unknown) = asked.iter().find(|path| !PARTS.contains(&path[0])) {
            let detail = format!("{:?} is no part of an object; there are: {}.", unknown[0], PARTS.join(", "));
            return Err(Error::unprocessable("fields", "unknown_field", detail));
        }
        for item in page["items"].as_array_mut().into_iter().flatten() {
            let mut kept = Value::Object(Map::new());
            for path in [&["id"][..], &["name"], &["self"]].into_iter().chain(asked.iter().map(Vec::as_slice)) {
                keep(item, path, &mut kept);
            }
            *item = kept;
        }
        Ok(())
    }
}

/// What every object is made of.
const PARTS: [&str; 10] =
    ["id", "name", "self", "labels", "annotations", "spec", "status", "generation", "created_at", "updated_at"];

/// Copies what a path leads to, if it leads anywhere.
fn keep(from: &Value, path: &[&str], into: &mut Value) {
    let (Some((first, rest)), Some(into)) = (path.split_first(), into.as_object_mut()) else { return };
    let Some(part) = from.get(first) else { return };
    match rest {
        [] => drop(into.insert((*first).to_owned(), part.clone())),
        rest => keep(part, rest, into.entry(*first).or_insert_with(|| Value::Object(Map::new()))),
    }
}

/// A position in a list.
#[derive(Clone, Debug)]
pub struct Position {
    pub limit: usize,
    /// The last key of the page before; empty at the start.
    pub after: String,
    list: [u8; 8],
}

impl Position {
    /// Where a request stands in the list called `list`, filtered as it asks.
    ///
    /// # Errors
    /// 400 for a limit out of range, or a token of another list.
    pub fn of(list: &str, limit: Option<u32>, token: Option<&str>, filter: &str) -> Result<Self, Error> {
        let limit = limit.unwrap_or(DEFAULT);
        if !(1..=MOST).contains(&limit) {
            return Err(Error::invalid("limit", "out_of_range", format!("1 to {MOST}")));
        }
        let mut bound = [0; 8];
        bound.copy_from_slice(&Digest::of(format!("{list}\n{filter}").as_bytes()).0[..8]);
        let after = match token {
            None => String::new(),
            Some(token) => read(token, bound).ok_or_else(|| {
                Error::invalid("page_token", "invalid_page_token", "It is not a token of this list with this filter.")
            })?,
        };
        Ok(Self { limit: limit as usize, after, list: bound })
    }

    /// How many rows to ask for: one more than the page holds tells whether there is another page.
    pub fn rows(&self) -> i64 {
        i64::try_from(self.limit + 1).unwrap_or(i64::MAX)
    }

    /// Cuts the row that only showed there is more; the token of the next page, if there is one.
    pub fn cut<T>(&self, rows: &mut Vec<T>, key: impl Fn(&T) -> String) -> Option<String> {
        if rows.len() <= self.limit {
            return None;
        }
        rows.truncate(self.limit);
        rows.last().map(|last| self.token(&key(last)))
    }

    /// The token that leads on after `last`.
    pub fn token(&self, last: &str) -> String {
        URL_SAFE_NO_PAD.encode([self.list.as_slice(), last.as_bytes()].concat())
    }
}

fn read(token: &str, list: [u8; 8]) -> Option<String> {
    let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
    let (bound, after) = bytes.split_at_checked(list.len())?;
    // Postgres has no text with a zero byte: it would answer with an error that looks like ours.
    (bound == list && !after.contains(&0)).then(|| String::from_utf8(after.to_vec()).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_leads_on_in_its_own_list_only() {
        let first = Position::of("racks", Some(2), None, "").unwrap();
        let mut rows = vec!["a", "b", "c"];
        let token = first.cut(&mut rows, |row| (*row).to_owned()).unwrap();
        assert_eq!(rows, ["a", "b"]);
        assert_eq!(Position::of("racks", None, Some(&token), "").unwrap().after, "b");
        assert!(Position::of("racks", None, Some(&token), "label.a=b").is_err());
        assert!(Position::of("sites", None, Some(&token), "").is_err());
        assert!(Position::of("racks", None, Some("§"), "").is_err());
        assert!(Position::of("racks", None, Some(&first.token("a\0")), "").is_err());
        assert!(Position::of("racks", Some(0), None, "").is_err());
        assert!(Position::of("racks", Some(1001), None, "").is_err());
        assert_eq!(first.cut(&mut vec!["a"], |row| (*row).to_owned()), None);
    }
}
