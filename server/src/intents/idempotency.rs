//! `Idempotency-Key` on POST: the answer is stored in the transaction of its effect, and returned
//! again to the same request. An answer with a secret is stored sealed with the master key, bound
//! to the actor and the key.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use jiff::Timestamp;
use muster_core::values::Digest;
use serde::Serialize;
use serde_json::{Value, json};
use sqlx::PgConnection;

use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::idempotency::StoredAnswer;
use crate::db::wrapped_keys::SealedAnswer;
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::keys::MasterKey;
use crate::sealed::Sealed;

/// The key of a request, where present, and the target of the request: method and path.
#[derive(Clone, Debug)]
pub struct IdempotencyKey {
    pub(crate) key: Option<String>,
    pub(crate) target: String,
}

/// A request under its key, until the answer is stored.
#[derive(Clone, Debug)]
pub struct Once {
    actor: String,
    key: Option<String>,
    request: [u8; 32],
}

/// Whether the effect is still to happen, or the stored answer is replayed.
#[derive(Clone, Debug)]
pub enum Begun {
    First(Once),
    Replay(Box<Answer>),
}

impl IdempotencyKey {
    /// The absent key of a form. A form sent twice is rejected because of the first change.
    pub fn none() -> Self {
        Self {
            key: None,
            target: String::new(),
        }
    }

    /// Looks for the stored answer of the same request; waits for a request in progress under the
    /// same key.
    ///
    /// # Errors
    /// 422 when the key was used for another request.
    pub async fn begin(
        self,
        app: &App,
        conn: &mut PgConnection,
        actor: &Actor,
        body: &impl Serialize,
    ) -> Result<Begun, Error> {
        let body = serde_json::to_string(body).map_err(Error::internal)?;
        let request = Digest::of(format!("{}\n{body}", self.target).as_bytes()).0;
        let once = Once {
            actor: actor.name.clone(),
            key: self.key,
            request,
        };
        let Some(key) = &once.key else {
            return Ok(Begun::First(once));
        };
        match db::idempotency::find(conn, &actor.name, key).await? {
            None => Ok(Begun::First(once)),
            Some(stored) if stored.request != request => Err(Error::unprocessable(
                "Idempotency-Key",
                "key_reused",
                "The key was used for another request.",
            )),
            Some(stored) => {
                replay(app, &once, stored).map(|answer| Begun::Replay(Box::new(answer)))
            }
        }
    }
}

fn replay(app: &App, once: &Once, stored: StoredAnswer) -> Result<Answer, Error> {
    let status = u16::try_from(stored.status)
        .ok()
        .and_then(|status| StatusCode::from_u16(status).ok());
    let status = status
        .ok_or_else(|| Error::internal(anyhow::anyhow!("stored status {}", stored.status)))?;
    let body = match stored.body.get(SEALED) {
        Some(sealed) => open(app, &once.place(), sealed)?,
        None => stored.body,
    };
    Ok(Answer {
        status,
        body,
        etag: None,
        location: stored.location,
        replayed: true,
    })
}

/// The one member of a sealed body. No plain answer has a member with this name.
const SEALED: &str = "$sealed";

fn seal(app: &App, place: &str, body: &Value) -> Result<Value, Error> {
    let sealed = app
        .keys
        .master
        .seal(place, body.to_string().as_bytes())
        .map_err(Error::internal)?;
    Ok(write_sealed(&sealed))
}

fn write_sealed(sealed: &Sealed) -> Value {
    let (wrapped_key, ciphertext) = (
        STANDARD.encode(&sealed.wrapped_key),
        STANDARD.encode(&sealed.ciphertext),
    );
    json!({ SEALED: { "key_id": sealed.key_id, "wrapped_key": wrapped_key, "ciphertext": ciphertext } })
}

fn read_sealed(sealed: &Value) -> Result<Sealed, Error> {
    let text = |member: &str| sealed[member].as_str().unwrap_or_default();
    let bytes = |member: &str| STANDARD.decode(text(member)).map_err(Error::internal);
    Ok(Sealed {
        key_id: text("key_id").to_owned(),
        wrapped_key: bytes("wrapped_key")?,
        ciphertext: bytes("ciphertext")?,
    })
}

fn open(app: &App, place: &str, sealed: &Value) -> Result<Value, Error> {
    let body = app.keys.master.open(place, &read_sealed(sealed)?);
    serde_json::from_slice(&body.map_err(Error::internal)?).map_err(Error::internal)
}

/// Returns the body of a sealed answer with the data key under the master key that seals.
///
/// # Errors
/// When the answer cannot be opened.
pub fn wrap_again(master: &MasterKey, answer: &SealedAnswer) -> anyhow::Result<Value> {
    let once = Once {
        actor: answer.actor.clone(),
        key: Some(answer.key.clone()),
        request: [0; 32],
    };
    let sealed = master.wrap_again(&once.place(), &read_sealed(&answer.body[SEALED])?)?;
    Ok(write_sealed(&sealed))
}

impl Once {
    /// Stores the answer in the transaction of its effect.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn store(
        self,
        conn: &mut PgConnection,
        answer: &Answer,
        now: Timestamp,
    ) -> Result<(), Error> {
        let body = answer.body.clone();
        self.insert(conn, answer, body, now).await
    }

    /// Stores an answer with a secret, sealed with the master key.
    ///
    /// # Errors
    /// When the cipher or the database fails.
    pub async fn store_sealed(
        self,
        app: &App,
        conn: &mut PgConnection,
        answer: &Answer,
    ) -> Result<(), Error> {
        let body = seal(app, &self.place(), &answer.body)?;
        self.insert(conn, answer, body, app.clock.now()).await
    }

    async fn insert(
        self,
        conn: &mut PgConnection,
        answer: &Answer,
        body: Value,
        now: Timestamp,
    ) -> Result<(), Error> {
        let Some(key) = self.key else { return Ok(()) };
        let (request, status) = (self.request.to_vec(), i32::from(answer.status.as_u16()));
        let stored = StoredAnswer {
            request,
            status,
            body,
            location: answer.location.clone(),
        };
        db::idempotency::insert(conn, &self.actor, &key, &stored, now).await
    }

    fn place(&self) -> String {
        format!(
            "idempotency_keys {} {}",
            self.actor,
            self.key.as_deref().unwrap_or_default()
        )
    }
}
