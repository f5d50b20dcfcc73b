//! Marks for agents: the event of each permitted act. The agent keeps the latest mark and shows the
//! mark with every call. A database without the event is older than the agent's memory, for example
//! after a restore.

use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::HeaderValue;
use http::request::Parts;
use muster_core::ids::EventId;
use muster_core::wire::headers::{HEARD, MARK, SERVED_AT};
use sqlx::PgConnection;

use crate::app::App;
use crate::app::wake;
use crate::engine::caution;
use crate::error::Error;

/// The mark of an answer, set by the handler and sent as a header.
#[derive(Clone, Debug, Default)]
pub(super) struct Mark(Arc<Mutex<Option<EventId>>>);

impl Mark {
    /// The mark of a request.
    pub(super) fn of(parts: &Parts) -> Self {
        parts.extensions.get::<Self>().cloned().unwrap_or_default()
    }

    /// Sets the event for the agent to remember. The event must be committed, because an agent must
    /// not remember an event missing from the database.
    pub(super) fn set(&self, event: Option<EventId>) {
        let mut mark = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *mark = event.or(*mark);
    }

    /// Begins a caution: the agent remembers an event missing from the database.
    pub(super) async fn miss(
        &self,
        conn: &mut PgConnection,
        agent: &str,
        heard: EventId,
        app: &App,
    ) -> Result<(), Error> {
        let because = format!(
            "The agent {agent} was told of the event {heard}, and the database does not have it."
        );
        let mut tx = sqlx::Connection::begin(conn).await?;
        let event = caution::notice(&mut tx, &because, app.clock.now()).await?;
        tx.commit().await?;
        self.set(Some(event));
        wake(app);
        Ok(())
    }
}

/// The event remembered by the agent, where the header is present.
pub(super) fn read_mark(parts: &Parts) -> Result<Option<EventId>, Error> {
    let Some(value) = parts.headers.get(HEARD) else {
        return Ok(None);
    };
    let heard: Option<EventId> = value.to_str().ok().and_then(|text| text.parse().ok());
    heard
        .map(Some)
        .ok_or_else(|| Error::invalid(HEARD, "invalid_value", "The id of an event."))
}

/// Gives each request an empty mark. Adds the mark and the server's time to the answer.
pub(super) async fn carry_mark(
    State(app): State<App>,
    mut request: Request,
    next: Next,
) -> Response {
    let mark = Mark::default();
    request.extensions_mut().insert(mark.clone());
    let mut response = next.run(request).await;
    let event = *mark.0.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(value) = event.and_then(|event| HeaderValue::from_str(&event.to_string()).ok()) {
        response.headers_mut().insert(MARK, value);
    }
    response
        .headers_mut()
        .insert(SERVED_AT, app.clock.now().as_millisecond().into());
    response
}
