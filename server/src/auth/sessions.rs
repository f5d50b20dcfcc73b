//! Sessions of browsers: a random cookie, stored in Postgres as a hash. Each login makes a new
//! cookie. A new password ends all sessions of the person.

use axum_extra::extract::CookieJar;
use axum_extra::extract::cookie::{Cookie, SameSite};
use http::{HeaderMap, header};
use jiff::{SignedDuration, Timestamp};
use muster_api::access::Scope;
use muster_api::tokens::DEFAULT_RELEASES_PER_HOUR;
use muster_core::ids::UserId;
use muster_core::values::{Digest, Secret};
use sqlx::PgConnection;

use super::access::Holding;
use super::delays::{self, Delay};
use super::passwords::Caller;
use super::seals::{counts, text};
use super::{Actor, break_glass, passwords, vouching};
use crate::access::Grant;
use crate::app::App;
use crate::db;
use crate::db::events::NewEvent;
use crate::db::users::{NewSession, UserRow};
use crate::error::Error;
use crate::request_id;

const COOKIE: &str = "muster_session";
/// Shortest time between two writes of a person's last activity.
const SEEN_EVERY: SignedDuration = SignedDuration::from_secs(60);
/// Life of a session: a working day.
const LASTS: SignedDuration = SignedDuration::from_hours(12);
/// Longest time between two uses of a session. Reloads of an open page are uses.
const IDLE: SignedDuration = SignedDuration::from_hours(1);

/// The reason of a failed login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    UnknownName,
    WrongPassword,
    /// Disabled by an administrator.
    Disabled,
    /// The row of the person has no valid seal.
    NotSealed,
    /// A local administrator beside an identity provider.
    NotArmed,
}

impl Refusal {
    fn as_str(self) -> &'static str {
        match self {
            Self::UnknownName => "unknown_name",
            Self::WrongPassword => "wrong_password",
            Self::Disabled => "disabled",
            Self::NotSealed => "not_sealed",
            Self::NotArmed => "not_armed",
        }
    }
}

/// Checks a password and opens a session. Returns the cookie, or `None` when the name or the
/// password is wrong. The caller's lane decides where the login waits for a turn.
///
/// # Errors
///
/// [`Error::TooMany`] when too many logins wait, or after too many failures of the account, or when
/// the database fails.
pub async fn sign_in(
    app: &App,
    headers: &HeaderMap,
    name: &str,
    password: Secret,
    caller: impl Into<Caller>,
) -> Result<Option<Cookie<'static>>, Error> {
    let Caller { lane, source } = caller.into();
    // The turn comes before the query, so a rejected login costs the database nothing.
    let turn = passwords::turn(lane).await?;
    let now = app.clock.now();
    let mut conn = app.pool.acquire().await?;
    let user = db::users::find(&mut conn, name).await?;
    let account = delays::account_of(app, user.as_ref(), name);
    let delay = Delay::find(&mut conn, account, &source).await?;
    drop(conn);
    delay.check(now)?;
    let hash = user.as_ref().and_then(|user| user.password_hash.clone());
    let right = passwords::verify(turn, password, hash).await?;
    let mut tx = app.pool.begin().await?;
    let refusal = match &user {
        None => Some(Refusal::UnknownName),
        Some(_) if !right => Some(Refusal::WrongPassword),
        Some(user) if user.disabled => Some(Refusal::Disabled),
        Some(user) if !counts::user_counts(app, &mut tx, user).await? => Some(Refusal::NotSealed),
        Some(user) if !break_glass::admits(&mut tx, app, user).await? => Some(Refusal::NotArmed),
        Some(_) => None,
    };
    let cookie = match (user, refusal) {
        (Some(user), None) => {
            // The session locks the person before the delays, in the order of an unlock.
            let cookie = open(&mut tx, app, headers, user.id).await?;
            delay.succeed(&mut tx, &source, now).await?;
            let actor = format!("user:{}", user.name);
            let summary = format!("{} signed in by password", user.name);
            let event = NewEvent::new(now, actor, "user.signed_in", summary);
            db::events::insert(&mut tx, event.asked(request_id::of(headers))).await?;
            Some(cookie)
        }
        (user, refusal) => {
            delay.fail(&mut tx, now).await?;
            // People sometimes type a password into the name field, so an unknown name is never
            // stored.
            let known = user.map(|user| user.name).unwrap_or_default();
            let reason = refusal.unwrap_or(Refusal::UnknownName).as_str();
            db::sign_ins::add_failure(&mut tx, &source, &known, reason, now).await?;
            None
        }
    };
    tx.commit().await?;
    Ok(cookie)
}

/// Opens a session for a person and deletes the browser's former session. A cookie from before the
/// login is worthless afterwards.
///
/// # Errors
///
/// When the database fails.
pub async fn open(
    conn: &mut PgConnection,
    app: &App,
    headers: &HeaderMap,
    user: UserId,
) -> Result<Cookie<'static>, Error> {
    if let Some(former) = CookieJar::from_headers(headers).get(COOKIE) {
        db::users::delete_session(&mut *conn, &hash_of(former.value())).await?;
    }
    let token = hex::encode(rand::random::<[u8; 32]>());
    let (hash, now) = (hash_of(&token), app.clock.now());
    let seal = text::seal_session(&app.keys.master, &hash, user, now + LASTS);
    let session = NewSession {
        hash: &hash,
        user,
        created_at: now,
        expires_at: now + LASTS,
        seal: &seal,
    };
    db::users::insert_session(&mut *conn, session).await?;
    db::vouching::set_session_use(conn, &hash, now).await?;
    Ok(cookie(token, headers))
}

/// Ends the session of a request. Returns a cookie that removes the session's cookie from the
/// browser.
///
/// # Errors
///
/// When the database fails.
pub async fn sign_out(app: &App, headers: &HeaderMap) -> Result<Cookie<'static>, Error> {
    if let Some(token) = CookieJar::from_headers(headers).get(COOKIE) {
        db::users::delete_session(&mut *app.pool.acquire().await?, &hash_of(token.value())).await?;
    }
    let mut gone = cookie(String::new(), headers);
    gone.make_removal();
    Ok(gone)
}

/// Returns the session cookie of a request, valid or not.
pub fn sent(headers: &HeaderMap) -> Option<String> {
    CookieJar::from_headers(headers)
        .get(COOKIE)
        .map(|cookie| cookie.value().to_owned())
}

/// Returns the session cookie set by an answer.
pub fn opened(headers: &HeaderMap) -> Option<String> {
    headers
        .get_all(header::SET_COOKIE)
        .iter()
        .find_map(|value| {
            let cookie = Cookie::parse(value.to_str().ok()?).ok()?;
            (cookie.name() == COOKIE && !cookie.value().is_empty())
                .then(|| cookie.value().to_owned())
        })
}

/// Returns the person behind the request's session cookie.
///
/// # Errors
///
/// [`Error::Unauthenticated`], [`Error::NotAdmitted`] for a person with an outdated login, or the
/// database's.
pub async fn authenticate(app: &App, headers: &HeaderMap) -> Result<Actor, Error> {
    let jar = CookieJar::from_headers(headers);
    let token = jar.get(COOKIE).ok_or(Error::Unauthenticated)?;
    let mut conn = app.pool.acquire().await?;
    let hash = hash_of(token.value());
    let session = db::users::find_by_session(&mut conn, &hash, app.clock.now())
        .await?
        .ok_or(Error::Unauthenticated)?;
    if !counts::session_counts(app, &mut conn, &hash, &session).await? {
        return Err(Error::Unauthenticated);
    }
    if !break_glass::admits(&mut conn, app, &session.user).await? {
        return Err(Error::Unauthenticated);
    }
    note_session_use(&mut conn, app, &hash, session.seen_at).await?;
    let user = session.user;
    vouching::need(&mut conn, app, &user).await?;
    let now = app.clock.now();
    if user
        .last_seen
        .is_none_or(|seen| now.duration_since(seen.to_jiff()) >= SEEN_EVERY)
    {
        db::users::set_last_seen(&mut conn, user.id, now).await?;
    }
    find_actor(app, &mut conn, &user).await
}

/// Rejects a session without a recent use, and records the present use at most once a minute.
async fn note_session_use(
    conn: &mut PgConnection,
    app: &App,
    hash: &[u8; 32],
    seen_at: Timestamp,
) -> Result<(), Error> {
    let now = app.clock.now();
    let unused = now.duration_since(seen_at);
    if unused >= IDLE {
        return Err(Error::Unauthenticated);
    }
    if unused >= SEEN_EVERY {
        db::vouching::set_session_use(conn, hash, now).await?;
    }
    Ok(())
}

/// Returns the actor of a person, with the present rights. The caller checks whether the person is
/// admitted.
///
/// # Errors
///
/// When the database fails.
pub(super) async fn find_actor(
    app: &App,
    conn: &mut PgConnection,
    user: &UserRow,
) -> Result<Actor, Error> {
    let role = user.role;
    let holding = Holding {
        grants: grants(app, conn, Some(user)).await?,
        owner: None,
    };
    let name = format!("user:{}", user.name);
    let releases_per_hour = Some(DEFAULT_RELEASES_PER_HOUR);
    Ok(Actor {
        person: name.clone(),
        name,
        role,
        holding,
        token: None,
        releases_per_hour,
        request_id: None,
        on_behalf_of: None,
    })
}

/// Returns the grants of a person: the person's own role everywhere, and the bindings of the person
/// and the person's groups. A missing person gets no grants.
///
/// # Errors
///
/// When the database fails.
pub async fn grants(
    app: &App,
    conn: &mut PgConnection,
    user: Option<&UserRow>,
) -> Result<Vec<Grant>, Error> {
    let Some(user) = user else {
        return Ok(Vec::new());
    };
    let groups = user.groups.iter().map(|group| format!("group:{group}"));
    let subjects: Vec<String> = groups.chain([format!("user:{}", user.name)]).collect();
    let mut grants = counts::list_grants(app, conn, &subjects).await?;
    grants.push(Grant {
        role: user.role,
        scope: Scope::default(),
        keeps_lost_verbs: user.keeps_lost_verbs,
    });
    Ok(grants)
}

fn hash_of(token: &str) -> [u8; 32] {
    Digest::of(token.as_bytes()).0
}

/// Builds the session cookie. `Secure` is set for every browser connected by TLS. Only a lab on a
/// loopback address works without TLS.
fn cookie(token: String, headers: &HeaderMap) -> Cookie<'static> {
    let cookie = Cookie::build((COOKIE, token))
        .path("/")
        .http_only(true)
        .same_site(SameSite::Lax);
    cookie.secure(came_by_tls(headers)).build()
}

/// Returns whether the browser used TLS. A proxy ending TLS in front of the server says so in a
/// header. Without such a header, the browser's own `Origin` gives the scheme of the page with the
/// form.
pub fn came_by_tls(headers: &HeaderMap) -> bool {
    let text = |name: &str| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    let forwarded = text("forwarded").to_ascii_lowercase();
    text("x-forwarded-proto").eq_ignore_ascii_case("https")
        || forwarded
            .split([';', ','])
            .any(|part| part.trim().trim_matches('"') == "proto=https")
        || text("origin").starts_with("https://")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_came_by_tls_never_leaves_it() {
        for (name, value, secure) in [
            ("origin", "https://muster.example", true),
            ("origin", "http://127.0.0.1:8080", false),
            ("x-forwarded-proto", "https", true),
            ("x-forwarded-proto", "http", false),
            ("forwarded", "for=10.0.0.1;proto=https;host=muster", true),
            ("forwarded", "for=10.0.0.1;proto=http", false),
            ("host", "https://", false),
        ] {
            let headers = HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())]);
            let cookie = cookie("t".into(), &headers);
            assert_eq!(cookie.secure(), Some(secure), "{name}: {value}");
            assert_eq!(cookie.http_only(), Some(true));
        }
    }
}
