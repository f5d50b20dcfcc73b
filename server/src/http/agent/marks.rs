//! Marks for agents: the event of each permitted act, with a seal. The agent keeps the latest mark
//! and shows the mark with every call. A database without the event is older than the agent's
//! memory, for example after a restore. The seal proves that this installation sent the event.

use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::HeaderValue;
use http::request::Parts;
use muster_api::agents::AgentRefusal;
use muster_core::ids::EventId;
use muster_core::wire::enrol::write_authorities;
use muster_core::wire::headers::{AUTHORITIES, HEARD, HEARD_SEAL, MARK, MARK_SEAL, SERVED_AT};
use serde_json::json;
use sqlx::PgConnection;

use super::refusals;
use crate::app::App;
use crate::app::wake;
use crate::db;
use crate::db::agents::AgentRow;
use crate::db::events::NewEvent;
use crate::engine::caution::{self, Witness};
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

    /// Judges the event remembered by an agent. An event with our seal that the database lacks
    /// begins a caution. A wrong seal, or an unknown event without a seal, refuses the agent.
    pub(super) async fn judge(
        &self,
        conn: &mut PgConnection,
        agent: &AgentRow,
        heard: &Heard,
        remembers: Remembers,
        app: &App,
    ) -> Result<(), Error> {
        let marks = &app.keys.master.marks;
        let seal = heard.seal.as_deref();
        let fits = seal.map(|seal| marks.fits(heard.event, seal));
        let Remembers { known, bare_marks } = remembers;
        if fits == Some(true) && bare_marks {
            db::agents::end_bare_marks(conn, agent.id).await?;
        }
        match (fits, known) {
            (Some(true), true) | (None, true) => Ok(()),
            (Some(true), false) => self.miss(conn, agent, heard.event, true, app).await,
            (None, false) if bare_marks => self.miss(conn, agent, heard.event, false, app).await,
            (Some(false), _) | (None, false) => Err(refuse_liar(conn, agent, heard, app).await?),
        }
    }

    /// Begins a caution: the agent remembers an event missing from the database.
    async fn miss(
        &self,
        conn: &mut PgConnection,
        agent: &AgentRow,
        heard: EventId,
        proved: bool,
        app: &App,
    ) -> Result<(), Error> {
        let because = format!(
            "The agent {} was told of the event {heard}, and the database does not have it.",
            agent.name
        );
        let witness = Witness {
            id: agent.id.0,
            site: Some(agent.site),
            agent: Some(agent.id),
            heard: Some(heard),
            proved,
            because: &because,
        };
        let mut tx = sqlx::Connection::begin(conn).await?;
        let event = caution::notice(&mut tx, &witness, app.clock.now()).await?;
        tx.commit().await?;
        self.set(Some(event));
        wake(app);
        Ok(())
    }
}

/// The event that an agent remembers, as shown in a call.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    pub event: EventId,
    seal: Option<String>,
}

/// The database's memory of an event shown by an agent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remembers {
    /// Whether the database has the event.
    pub known: bool,
    /// Whether the agent's unknown event counts without a seal: the agent has never shown a seal.
    pub bare_marks: bool,
}

/// Refuses an agent with an event that this installation never sent. Returns the error of the call.
async fn refuse_liar(
    conn: &mut PgConnection,
    agent: &AgentRow,
    heard: &Heard,
    app: &App,
) -> Result<Error, Error> {
    let shown = match heard.seal {
        Some(_) => "with a wrong seal",
        None => "without a seal, and the database does not have it",
    };
    let summary = format!(
        "agent {} of {} showed the event {} {shown}; every call of the agent is refused: look at its machine, then remove the agent and enrol it anew",
        agent.name, agent.site_name, heard.event
    );
    let actor = format!("agent:{}", agent.name);
    let event = NewEvent::new(app.clock.now(), actor, "agent.lies", summary)
        .about(agent.site)
        .with(json!({ "agent": agent.id, "site": agent.site_name, "event": heard.event }));
    let mut tx = sqlx::Connection::begin(conn).await?;
    refusals::begin(&mut tx, agent.id, AgentRefusal::Lies, event).await?;
    tx.commit().await?;
    Ok(refusals::explain(AgentRefusal::Lies))
}

/// The event remembered by the agent, where the header is present. An unreadable seal is a wrong
/// seal.
pub(super) fn read_mark(parts: &Parts) -> Result<Option<Heard>, Error> {
    let Some(value) = parts.headers.get(HEARD) else {
        return Ok(None);
    };
    let event: Option<EventId> = value.to_str().ok().and_then(|text| text.parse().ok());
    let event =
        event.ok_or_else(|| Error::invalid(HEARD, "invalid_value", "The id of an event."))?;
    let seal = parts.headers.get(HEARD_SEAL);
    Ok(Some(Heard {
        event,
        seal: seal.map(|value| value.to_str().unwrap_or_default().to_owned()),
    }))
}

/// Gives each request an empty mark. Adds the mark, its seal, the valid authorities and the time of
/// the server to the answer.
pub(super) async fn carry_mark(
    State(app): State<App>,
    mut request: Request,
    next: Next,
) -> Response {
    let mark = Mark::default();
    request.extensions_mut().insert(mark.clone());
    let mut response = next.run(request).await;
    let event = *mark.0.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(event) = event {
        let seal = app.keys.master.marks.seal(event);
        for (name, text) in [(MARK, event.to_string()), (MARK_SEAL, seal)] {
            if let Ok(value) = HeaderValue::from_str(&text) {
                response.headers_mut().insert(name, value);
            }
        }
    }
    let valid = write_authorities(&app.keys.authorities.now().digests());
    if let Ok(value) = HeaderValue::from_str(&valid) {
        response.headers_mut().insert(AUTHORITIES, value);
    }
    response
        .headers_mut()
        .insert(SERVED_AT, app.clock.now().as_millisecond().into());
    response
}
