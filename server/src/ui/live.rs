//! The stream of changes for open pages, which reload then. Each tab opens a stream. A message has
//! ids and numbers but never content, so read access is decided only where pages are rendered.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use futures::{Stream, stream};
use http::HeaderMap;
use serde_json::json;

use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::events::EventFilter;
use crate::error::Error;
use crate::http::follower::{End, Follower};

/// Changes within this time are sent in a single message. A person cannot read a page faster.
const GATHER: Duration = Duration::from_millis(500);
/// Life of a stream. The browser opens a new stream automatically.
const LASTS: Duration = Duration::from_secs(10 * 60);

/// The state of a page's stream.
enum Stage {
    Opened(Follower),
    Greeted(Follower),
    Ended,
}

/// Streams changes as server-sent events.
pub(super) async fn stream_changes(
    State(app): State<App>,
    actor: Actor,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Error> {
    let after = db::events::find_complete_end(&mut *app.pool.acquire().await?).await?;
    let filter = EventFilter::default();
    let follower = Follower::open(app, &actor, headers, filter, after, LASTS).await?;
    Ok(Sse::new(stream::unfold(Stage::Opened(follower), next)).keep_alive(KeepAlive::default()))
}

/// Returns the next message. `None` ends the stream.
async fn next(stage: Stage) -> Option<(Result<Event, Infallible>, Stage)> {
    match stage {
        Stage::Opened(follower) => {
            // The first message says the page is connected, and sets the browser's reconnect delay.
            let hello = Event::default()
                .event("hello")
                .data("{}")
                .retry(Duration::from_secs(3));
            Some((Ok(hello), Stage::Greeted(follower)))
        }
        Stage::Greeted(mut follower) => match gather_changes(&mut follower).await {
            Ok(changed) => Some((Ok(changed), Stage::Greeted(follower))),
            Err(end) => {
                let reason = Event::default().comment(end.describe());
                Some((Ok(reason), Stage::Ended))
            }
        },
        Stage::Ended => None,
    }
}

/// Waits for a change, and gathers the changes of the next moment into the same message.
async fn gather_changes(follower: &mut Follower) -> Result<Event, End> {
    let mut rows = follower.next_rows().await?;
    tokio::time::sleep(GATHER).await;
    rows.extend(follower.take_ready().await?);
    let last = rows.last().map_or(0, |row| row.seq);
    let nodes: BTreeMap<String, i64> = rows
        .iter()
        .filter_map(|row| Some((row.node.as_ref()?.to_string(), row.seq)))
        .collect();
    let data = json!({ "seq": last, "nodes": nodes }).to_string();
    Ok(Event::default()
        .event("changed")
        .id(last.to_string())
        .data(data))
}
