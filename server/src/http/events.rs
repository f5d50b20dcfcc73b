//! The history, as pages of JSON or as a stream. All readers see the same order, so a reader
//! resuming after its last sequence number skips no event.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event as Frame, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures::stream::{self, Stream};
use http::{HeaderMap, header};
use muster_api::events::Events;
use muster_api::problem::Problem;
use muster_core::ids::NodeId;
use serde::Deserialize;
use tokio::time::Instant;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::Query;
use super::follower::Follower;
use super::waiting;
use crate::app::App;
use crate::auth::Actor;
use crate::db::events::{EventFilter, EventRow};
use crate::db::seen::Found;
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::intents::events::render_event;
use crate::{db, webhooks};

const DEFAULT: u32 = 100;
const MOST: u32 = 1000;
/// The largest number of topics in one request.
const TOPICS: usize = 20;
/// The longest life of a stream. The client then reconnects, and the permissions are checked again.
const STREAM_LASTS: Duration = Duration::from_secs(15 * 60);

/// The routes of events.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(list_events))
}

/// Selection of events.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct EventsQuery {
    /// The sequence number of the last event seen; 0 for the beginning.
    #[serde(default)]
    after: i64,
    limit: Option<u32>,
    /// Name or id of a node. A deleted node is found by its id.
    node: Option<String>,
    /// Kinds of events, separated by commas, as in a webhook: `node.advanced,claim.*`. Without
    /// `topics`, all kinds.
    topics: Option<String>,
    /// The longest wait for the first event, at most `55s`.
    wait: Option<String>,
}

/// Lists events after a sequence number, oldest first.
///
/// With `Accept: text/event-stream`, the answer is a stream. A client resumes with the header
/// `Last-Event-ID`.
#[utoipa::path(get, path = "/v1/events",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "any" }))),
    tag = "events", params(EventsQuery), responses(
    (status = 200, description = "A page of events, or the stream", body = Events),
    (status = 410, description = "The history ends before this number, for example after a restore; start again from 0", body = Problem, content_type = "application/problem+json"),
))]
async fn list_events(
    State(app): State<App>,
    actor: Actor,
    Query(query): Query<EventsQuery>,
    headers: HeaderMap,
) -> Result<Response, Error> {
    let filter = filter(&app, &actor, &query).await?;
    let sight = actor.sight();
    let text = |name| {
        headers
            .get(name)
            .and_then(|value: &http::HeaderValue| value.to_str().ok())
    };
    if text(header::ACCEPT).is_some_and(|accept| accept.contains("text/event-stream")) {
        let resumed = headers
            .get("last-event-id")
            .and_then(|value| value.to_str().ok()?.parse().ok());
        let after = resumed.unwrap_or(query.after);
        // Check the position before the stream begins, because an open stream cannot send an error
        // status.
        db::events::list_on(
            &mut *app.pool.acquire().await?,
            &EventFilter::default(),
            after,
            1,
        )
        .await?;
        let follower =
            Follower::open(app, &actor, headers.clone(), filter, after, STREAM_LASTS).await?;
        return Ok(Sse::new(stream_frames(follower))
            .keep_alive(KeepAlive::default())
            .into_response());
    }
    let limit = query.limit.unwrap_or(DEFAULT);
    if !(1..=MOST).contains(&limit) {
        return Err(Error::invalid(
            "limit",
            "out_of_range",
            format!("1 to {MOST}"),
        ));
    }
    let deadline = Instant::now()
        + query
            .wait
            .as_deref()
            .map_or(Ok(Duration::ZERO), waiting::parse_duration)?;
    let mut changes = app.wake_readers.subscribe();
    let mut last_seq = query.after;
    loop {
        let mut conn = app.pool.acquire().await?;
        let Found { rows, at } =
            db::seen::list_on(&mut conn, &filter, &sight, last_seq, i64::from(limit)).await?;
        drop(conn);
        last_seq = at;
        if !rows.is_empty() || Instant::now() >= deadline {
            let items = rows.into_iter().map(render_event).collect();
            return Ok(Answer::ok(&Events { items, last_seq })?.into_response());
        }
        waiting::wait_for_change(&mut changes, deadline).await;
    }
}

async fn filter(app: &App, actor: &Actor, query: &EventsQuery) -> Result<EventFilter, Error> {
    let topics = parse_topics(query.topics.as_deref())?;
    let Some(key) = &query.node else {
        return Ok(EventFilter {
            topics,
            ..EventFilter::default()
        });
    };
    let found = actor
        .find_node(&mut *app.pool.acquire().await?, key)
        .await?;
    // The history of a deleted node remains. Read permission is checked for each event.
    let id = found.or_else(|| key.parse().ok().map(NodeId));
    let id = id.ok_or_else(|| {
        Error::unprocessable(
            "node",
            "not_found",
            format!("There is no node called {key:?}."),
        )
    })?;
    Ok(EventFilter {
        node: Some(id),
        topics,
        ..EventFilter::default()
    })
}

/// Parses the topics of webhooks, so that a reader and a webhook with the same topics select the
/// same events.
///
/// # Errors
/// 400 for an invalid topic, or too many.
pub fn parse_topics(list: Option<&str>) -> Result<Vec<String>, Error> {
    let Some(list) = list else {
        return Ok(Vec::new());
    };
    let topics: Vec<String> = list
        .split(',')
        .map(|topic| topic.trim().to_owned())
        .collect();
    if topics.len() > TOPICS {
        return Err(Error::invalid(
            "topics",
            "out_of_range",
            format!("1 to {TOPICS}"),
        ));
    }
    match topics.iter().find_map(|topic| webhooks::topic_fault(topic)) {
        Some(detail) => Err(Error::invalid("topics", "invalid_topic", detail)),
        None => Ok(topics),
    }
}

/// The event stream. The last line of an ended stream is a comment with the reason. The client
/// resumes after its last event.
fn stream_frames(
    follower: Follower,
) -> impl Stream<Item = Result<Frame, Infallible>> + Send + use<> {
    let ready: VecDeque<Arc<EventRow>> = VecDeque::new();
    stream::unfold(
        (Some(follower), ready),
        |(mut follower, mut ready)| async move {
            loop {
                if let Some(row) = ready.pop_front() {
                    return Some((Ok(render_frame(&row)), (follower, ready)));
                }
                match follower.as_mut()?.next_rows().await {
                    Ok(rows) => ready.extend(rows),
                    Err(end) => {
                        let reason = Frame::default().comment(end.describe());
                        return Some((Ok(reason), (None, ready)));
                    }
                }
            }
        },
    )
}

fn render_frame(row: &EventRow) -> Frame {
    let frame = Frame::default()
        .id(row.seq.to_string())
        .event(row.kind.clone());
    match frame.json_data(render_event(row.clone())) {
        Ok(frame) => frame,
        Err(error) => Frame::default().comment(error.to_string()),
    }
}
