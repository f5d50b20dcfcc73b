//! The numbers of events within a reader's read scope. The place of an event is the place of its
//! node, or else of its object. Events without node and object are visible only to readers of the
//! whole fleet.

use muster_core::event_kinds;
use sqlx::{PgConnection, Postgres, QueryBuilder};

use super::sight::{Place, push_read_scope};
use super::sort::Order;
use crate::access::Sight;
use crate::db::events::EventFilter;
use crate::error::Error;

const PLACE: Place = Place {
    joins: " LEFT JOIN nodes n ON n.id = e.node_id
             LEFT JOIN claims h ON h.node_id = n.id AND h.state <> 'released'
             LEFT JOIN objects o ON o.id = e.object_id AND e.node_id IS NULL
             LEFT JOIN object_refs rs ON rs.from_id = o.id AND rs.pointer = '/spec/site'
             LEFT JOIN object_refs rc ON rc.from_id = o.id AND rc.pointer = '/spec/cluster'
             LEFT JOIN object_refs rcs ON rcs.from_id = rc.to_id AND rcs.pointer = '/spec/site'",
    site: "COALESCE(n.site_id, CASE o.kind WHEN 'site' THEN o.id ELSE COALESCE(rs.to_id, rcs.to_id) END)",
    rack: "COALESCE(n.rack_id, CASE o.kind WHEN 'rack' THEN o.id END)",
    pool: "COALESCE(h.pool_id, CASE o.kind WHEN 'pool' THEN o.id END)",
    labels: "COALESCE(n.labels, o.labels)",
};

/// A range of event numbers: greater than `above`, up to and including `till`.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    pub above: i64,
    pub till: i64,
}

/// Returns the numbers of the first or last `limit` matching events of a range.
pub async fn event_seqs(
    conn: &mut PgConnection,
    filter: &EventFilter,
    sight: &Sight,
    stretch: Stretch,
    order: Order,
    limit: i64,
) -> Result<Vec<i64>, Error> {
    let mut query = QueryBuilder::<Postgres>::new("SELECT e.seq FROM events e");
    query.push(if sight.is_empty() { "" } else { PLACE.joins });
    query
        .push(" WHERE e.seq > ")
        .push_bind(stretch.above)
        .push(" AND e.seq <= ")
        .push_bind(stretch.till);
    if let Some(node) = filter.node {
        query.push(" AND e.node_id = ").push_bind(node.0);
    }
    if let Some(object) = filter.object {
        query.push(" AND e.object_id = ").push_bind(object.0);
    }
    if !filter.topics.is_empty() {
        let former = filter
            .topics
            .iter()
            .filter_map(|topic| event_kinds::former(topic));
        let topics = filter.topics.iter().map(String::as_str).chain(former);
        let patterns: Vec<String> = topics.map(topic_pattern).collect();
        query
            .push(" AND e.kind LIKE ANY (")
            .push_bind(patterns)
            .push(")");
    }
    push_read_scope(&mut query, &PLACE, sight);
    query.push(match order {
        Order::Up => " ORDER BY e.seq LIMIT ",
        Order::Down => " ORDER BY e.seq DESC LIMIT ",
    });
    query.push_bind(limit);
    Ok(query
        .build_query_scalar()
        .persistent(false)
        .fetch_all(conn)
        .await?)
}

/// Converts a topic to a `LIKE` pattern. Only a `*` at the end is a wildcard; underscores and
/// percent signs are escaped.
fn topic_pattern(topic: &str) -> String {
    let plain = |text: &str| {
        text.replace('\\', "\\\\")
            .replace('_', "\\_")
            .replace('%', "\\%")
    };
    match topic.strip_suffix('*') {
        Some(begin) => format!("{}%", plain(begin)),
        None => plain(topic),
    }
}
