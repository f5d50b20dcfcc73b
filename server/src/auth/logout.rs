//! Logouts reported by an identity provider (OpenID Connect Back-Channel Logout): all sessions of
//! the person end at once, and tokens of the person wait for the next sign-in.

use http::HeaderMap;
use jiff::SignedDuration;
use muster_core::ids::UserId;
use muster_core::values::Digest;
use serde_json::json;
use sqlx::PgConnection;

use super::vouching;
use crate::app::App;
use crate::db;
use crate::db::events::NewEvent;
use crate::db::users::UserRow;
use crate::error::Error;
use crate::oidc::{FRESH, Logout};
use crate::request_id;

/// The time for which a session of the provider is remembered after a sign-in: the longest time for
/// which a provider vouches.
const SESSION_KEPT: SignedDuration = SignedDuration::from_hours(90 * 24);

/// The result of a logout token with a valid signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logged {
    /// The logins of the person have ended. A person without a sign-in here has none.
    Out,
    /// The token was received before.
    Before,
}

/// Ends the logins of the person in a logout token.
///
/// # Errors
///
/// When the database fails.
pub async fn end_logins(
    app: &App,
    headers: &HeaderMap,
    issuer: &str,
    logout: &Logout,
) -> Result<Logged, Error> {
    let now = app.clock.now();
    let mut tx = app.pool.begin().await?;
    let token = hash(issuer, &logout.id);
    // A token is refused by its time after these minutes, in both directions.
    db::provider_sessions::delete_logouts(&mut tx, now - FRESH * 4).await?;
    if !db::provider_sessions::note_logout(&mut tx, &token, now).await? {
        return Ok(Logged::Before);
    }
    if let Some(person) = find_person(&mut tx, issuer, logout).await? {
        let sessions = vouching::end(&mut tx, person.id).await?;
        let name = &person.name;
        let summary = format!(
            "{name} signed out at the identity provider: sessions ended, and tokens of the person wait for the next sign-in"
        );
        let event = NewEvent::new(now, format!("user:{name}"), "user.signed_out", summary)
            .asked(request_id::of(headers))
            .with(json!({ "issuer": issuer, "subject": person.subject, "sessions": sessions }));
        db::events::insert(&mut tx, event).await?;
    }
    tx.commit().await?;
    Ok(Logged::Out)
}

/// Returns the person of a logout token, locked until the transaction ends.
async fn find_person(
    conn: &mut PgConnection,
    issuer: &str,
    logout: &Logout,
) -> Result<Option<UserRow>, Error> {
    if let Some(subject) = &logout.subject {
        return db::users::find_vouched(conn, issuer, subject).await;
    }
    let Some(session) = &logout.session else {
        return Ok(None);
    };
    match db::provider_sessions::find(conn, &hash(issuer, session)).await? {
        Some(user) => db::users::find_for_update(conn, user).await,
        None => Ok(None),
    }
}

/// Remembers the person of a session of the provider, for a logout token without a person.
///
/// # Errors
///
/// When the database fails.
pub(super) async fn remember_session(
    conn: &mut PgConnection,
    app: &App,
    issuer: &str,
    person: UserId,
    session: Option<&str>,
) -> Result<(), Error> {
    let Some(session) = session else {
        return Ok(());
    };
    let now = app.clock.now();
    db::provider_sessions::delete_before(conn, now - SESSION_KEPT).await?;
    db::provider_sessions::record(conn, &hash(issuer, session), person, now).await
}

/// Returns the stored form of an id of the provider. An issuer is a URL, without a line break.
fn hash(issuer: &str, id: &str) -> [u8; 32] {
    Digest::of(format!("{issuer}\n{id}").as_bytes()).0
}
