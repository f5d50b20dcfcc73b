//! Today's listener for agents on a socket, with notes of every call: its answer, the words that the agent reads, the leased orders. A test hides words from
//! the server: the agent then counts as an agent that does not name them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::middleware::{self, Next};
use axum::response::Response;
use muster_core::wire::orders::{KINDS, MEMBERS, ORDERS};
use muster_server::app::App;
use muster_server::http::agent::router;

use crate::support::agents::Door;

/// The notes of one agent's calls.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Statuses by call, ids left out.
    pub(crate) calls: BTreeMap<String, BTreeSet<u16>>,
    /// The header of the latest call for jobs, as the agent sent it.
    pub(crate) said: String,
    /// Words that the server does not see.
    pub(crate) hidden: BTreeSet<&'static str>,
    /// Answers to calls for jobs.
    pub(crate) leased: Vec<Leased>,
}

/// An answer to a call for jobs.
#[derive(Debug)]
pub(crate) struct Leased {
    /// The words that the server saw.
    said: String,
    pub(crate) text: String,
}

impl Leased {
    /// Whether the agent names a kind of order, or a member.
    pub(crate) fn reads(&self, word: &str) -> bool {
        self.said.split(',').any(|said| said == word)
    }

    /// Kinds and members of the orders that the agent does not name.
    pub(crate) fn unread(&self) -> Vec<&'static str> {
        let kinds = KINDS
            .iter()
            .map(|kind| (*kind, format!(r#""kind":"{kind}""#)));
        let members = MEMBERS
            .iter()
            .map(|member| (*member, format!(r#""{member}":"#)));
        let unread = kinds
            .chain(members)
            .filter(|(word, text)| !self.reads(word) && self.text.contains(text));
        unread.map(|(word, _)| word).collect()
    }
}

/// The listener with its notes.
pub(crate) struct Wire {
    pub(crate) url: String,
    notes: Arc<Mutex<Notes>>,
    _door: Door,
}

impl Wire {
    pub(crate) async fn open(app: &App) -> Self {
        let notes = Arc::<Mutex<Notes>>::default();
        let noted = middleware::from_fn_with_state(Arc::clone(&notes), note);
        let door = Door::open_to(app, router(app.clone()).layer(noted)).await;
        Self {
            url: door.url.clone(),
            notes,
            _door: door,
        }
    }

    /// Reads the notes, or changes the hidden words.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&mut Notes) -> T) -> T {
        // A test that panics over the notes prints them afterwards.
        look(&mut self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn note(
    State(notes): State<Arc<Mutex<Notes>>>,
    mut request: Request,
    next: Next,
) -> Response {
    let call = without_ids(request.uri().path());
    let mut reads = None;
    if let Some(said) = request.headers().get(ORDERS) {
        let said = said.to_str().unwrap().to_owned();
        let mut notes = notes.lock().unwrap();
        let seen: Vec<&str> = said
            .split(',')
            .filter(|word| !notes.hidden.contains(word))
            .collect();
        let seen = seen.join(",");
        notes.said = said;
        request
            .headers_mut()
            .insert(ORDERS, HeaderValue::from_str(&seen).unwrap());
        reads = Some(seen);
    }
    let response = next.run(request).await;
    let status = response.status().as_u16();
    let (parts, body) = response.into_parts();
    let body = match reads.filter(|_| call == "lease") {
        None => body,
        Some(said) => {
            let bytes = axum::body::to_bytes(body, 64 << 20).await.unwrap();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            notes.lock().unwrap().leased.push(Leased { said, text });
            Body::from(bytes)
        }
    };
    notes
        .lock()
        .unwrap()
        .calls
        .entry(call)
        .or_default()
        .insert(status);
    Response::from_parts(parts, body)
}

/// `/agent/v1/jobs/0197…/act` as `jobs/ID/act`.
fn without_ids(path: &str) -> String {
    let parts = path.trim_start_matches("/agent/v1/").split('/');
    let parts: Vec<&str> = parts
        .map(|part| if part.len() >= 32 { "ID" } else { part })
        .collect();
    parts.join("/")
}
