//! The stream of changes that makes open pages reload. Each tab opens one stream. A message carries
//! ids and numbers but never content, so read access is decided only where pages are rendered.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use futures::{Stream, stream};
use http::HeaderMap;
use muster_core::ids::NodeId;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::access::Sight;
use crate::app::App;
use crate::auth::{self, Actor};
use crate::db;
use crate::error::Error;

/// Most changes of one message.
const BATCH: i64 = 500;
/// Changes within this time are sent in one message. A person cannot read a page faster.
const GATHER: Duration = Duration::from_millis(500);
/// Longest pause between two reads of the database, because another replica may have made the
/// change.
const LOOK: Duration = Duration::from_secs(2);
/// Life of one stream. The browser opens a new stream automatically. A session ended before then is
/// noticed at the next message.
const LASTS: Duration = Duration::from_secs(10 * 60);

struct Follower {
    app: App,
    headers: HeaderMap,
    /// Read scope of the reader.
    sight: Sight,
    changes: watch::Receiver<i64>,
    after: i64,
    ends: Instant,
    greeted: bool,
}

/// Streams changes as server-sent events.
pub(super) async fn stream_changes(
    State(app): State<App>,
    actor: Actor,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Error> {
    let after = db::events::find_complete_end(&mut *app.pool.acquire().await?).await?;
    let changes = app.wake_readers.subscribe();
    let (sight, ends) = (actor.sight(), Instant::now() + LASTS);
    let follower = Follower {
        changes,
        app,
        headers,
        sight,
        after,
        ends,
        greeted: false,
    };
    Ok(Sse::new(stream::unfold(follower, next)).keep_alive(KeepAlive::default()))
}

/// Returns the next message. `None` ends the stream.
async fn next(mut follower: Follower) -> Option<(Result<Event, Infallible>, Follower)> {
    if !follower.greeted {
        // The first message says the page is connected, and sets the browser's reconnect delay.
        follower.greeted = true;
        let hello = Event::default()
            .event("hello")
            .data("{}")
            .retry(Duration::from_secs(3));
        return Some((Ok(hello), follower));
    }
    loop {
        if Instant::now() >= follower.ends {
            return None;
        }
        let (changed, at) = match list_changes(&follower).await {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!(%error, "a page's stream ends");
                return None;
            }
        };
        let on = at > follower.after;
        follower.after = at;
        if let Some(&(last, _)) = changed.last() {
            let nodes: BTreeMap<String, i64> = changed
                .iter()
                .filter_map(|(seq, node)| Some((node.as_ref()?.to_string(), *seq)))
                .collect();
            let data = json!({ "seq": last, "nodes": nodes }).to_string();
            tokio::time::sleep(GATHER).await;
            return Some((
                Ok(Event::default()
                    .event("changed")
                    .id(last.to_string())
                    .data(data)),
                follower,
            ));
        }
        if on {
            // The batch held only changes outside the reader's scope. Further changes may follow,
            // so the next read starts immediately.
            continue;
        }
        // A closed channel means the server is shutting down. The pause still limits the rate of
        // the loop.
        if let Ok(Err(_)) = tokio::time::timeout(LOOK, follower.changes.changed()).await {
            tokio::time::sleep(LOOK).await;
        }
    }
}

async fn list_changes(follower: &Follower) -> Result<(Vec<(i64, Option<NodeId>)>, i64), Error> {
    let mut conn = follower.app.pool.acquire().await?;
    let found = db::seen::list_changed(&mut conn, &follower.sight, follower.after, BATCH).await?;
    drop(conn);
    if !found.0.is_empty() {
        let actor = auth::signed_in(&follower.app, &follower.headers)
            .await?
            .ok_or(Error::Unauthenticated)?;
        if actor.sight() != follower.sight {
            // The error ends the stream. The page reconnects immediately, with the present read
            // scope.
            return Err(Error::Forbidden(
                "What the reader may see is not what it was.".into(),
            ));
        }
    }
    Ok(found)
}
