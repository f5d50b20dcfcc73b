//! The history, newest first.

use std::collections::BTreeMap;

use askama::Template;
use askama_web::WebTemplate;
use axum::extract::State;
use jiff::Timestamp;
use muster_core::ids::NodeId;
use serde::Deserialize;

use super::format::{self, Moment};
use super::frame::{Frame, Live, Section, Visit};
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::events::{EventFilter, EventRow};
use crate::db::seen::Found;
use crate::error::Error;
use crate::http::events::parse_topics;
use crate::http::extract::Query;

const ROWS: usize = 100;

#[derive(Template, WebTemplate)]
#[template(path = "events.html")]
pub(super) struct Page {
    frame: Frame,
    rows: Vec<Row>,
    node: String,
    topics: String,
    next: String,
    newest: bool,
}

struct Row {
    seq: i64,
    at: Moment,
    kind: String,
    summary: String,
    actor: String,
    node: String,
    operation: String,
    request_id: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct EventsQuery {
    node: String,
    /// Topics, as in the API.
    topics: String,
    before: Option<i64>,
}

/// Events before a number.
pub(super) async fn list_events(
    State(app): State<App>,
    actor: Actor,
    visit: Visit,
    Query(query): Query<EventsQuery>,
) -> Result<Page, Error> {
    let mut conn = app.pool.acquire().await?;
    let wanted = query.node.trim();
    let node = match wanted {
        "" => None,
        key => {
            let found = actor.find_node(&mut conn, key).await?;
            Some(found.ok_or_else(|| Error::NotFound(format!("node {key:?}")))?)
        }
    };
    let limit = i64::try_from(ROWS + 1).unwrap_or(i64::MAX);
    let named = query.topics.trim();
    let topics = parse_topics(Some(named).filter(|named| !named.is_empty()))?;
    let filter = EventFilter {
        node,
        topics,
        ..EventFilter::default()
    };
    let before = query.before.unwrap_or(i64::MAX);
    let Found { mut rows, at } =
        db::seen::list_before(&mut conn, &filter, &actor.sight(), before, limit).await?;
    // The next page begins after the last shown row, or where the search stopped.
    let at = rows.get(ROWS).map_or(at, |_| rows[ROWS - 1].seq);
    rows.truncate(ROWS);
    let ids: Vec<NodeId> = rows.iter().filter_map(|row| row.node).collect();
    let names: BTreeMap<NodeId, String> = db::pages::work::list_names(&mut conn, &ids)
        .await?
        .into_iter()
        .collect();
    let links = Links::of(wanted, named);
    let newest = query.before.is_none();
    Ok(Page {
        frame: Frame::new(&visit, &actor, Section::Events, "Events")
            .by_hand(links.command, &links.path)
            .live(if newest { Live::Any } else { Live::Never }),
        rows: rows
            .into_iter()
            .map(|row| render_row(row, &names, visit.now))
            .collect(),
        next: if at > 1 {
            format!("/events?{}before={at}", links.query)
        } else {
            String::new()
        },
        node: query.node,
        topics: query.topics,
        newest,
    })
}

/// The same list by other ways: the query of the next page, the command and the path of the API.
struct Links {
    /// `node=n1&topics=claim&`; empty without a filter.
    query: String,
    command: String,
    path: String,
}

impl Links {
    fn of(node: &str, topics: &str) -> Self {
        let filters: Vec<_> = [("node", node), ("topics", topics)]
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .collect();
        let query: String = filters
            .iter()
            .map(|(name, value)| format!("{name}={}&", format::escape(value)))
            .collect();
        let flags: String = filters
            .iter()
            .map(|(name, value)| format!(" --{name} {}", format::shell(value)))
            .collect();
        let path = match query.trim_end_matches('&') {
            "" => "/v1/events".to_owned(),
            query => format!("/v1/events?{query}"),
        };
        Self {
            query,
            command: format!("muster event list{flags}"),
            path,
        }
    }
}

fn render_row(row: EventRow, names: &BTreeMap<NodeId, String>, now: Timestamp) -> Row {
    Row {
        seq: row.seq,
        at: format::moment(row.at, now),
        kind: format::cut(&row.kind, 60),
        summary: format::cut(&row.summary, 400),
        actor: format::cut(&row.actor, 80),
        node: row
            .node
            .and_then(|id| names.get(&id).cloned())
            .unwrap_or_default(),
        operation: row.operation.map(|id| id.to_string()).unwrap_or_default(),
        request_id: format::cut(row.request_id.as_deref().unwrap_or_default(), 64),
    }
}
