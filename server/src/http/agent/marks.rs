//! What an agent is to remember: the event of each act it was allowed. It shows the latest one with every call, and a database that does not
//! know it is not the one that allowed it.

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

/// Set by whoever answers a call, sent as a header of the answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Mark(Arc<Mutex<Option<EventId>>>);

impl Mark {
    /// The mark of a request.
    pub(super) fn of(parts: &Parts) -> Self {
        parts.extensions.get::<Self>().cloned().unwrap_or_default()
    }

    /// The agent is to remember this event from now on: one that is committed, for nobody may remember what never was.
    pub(super) fn set(&self, event: Option<EventId>) {
        let mut mark = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *mark = event.or(*mark);
    }

    /// Begins a caution: the agent remembers an event that the database does not have.
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

/// The event that an agent remembers, if it does.
pub(super) fn heard(parts: &Parts) -> Result<Option<EventId>, Error> {
    let Some(value) = parts.headers.get(HEARD) else {
        return Ok(None);
    };
    let heard: Option<EventId> = value.to_str().ok().and_then(|text| text.parse().ok());
    heard
        .map(Some)
        .ok_or_else(|| Error::invalid(HEARD, "invalid_value", "The id of an event."))
}

/// Gives each request its mark, and the answer what became of it and the time.
pub(super) async fn carry(State(app): State<App>, mut request: Request, next: Next) -> Response {
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
