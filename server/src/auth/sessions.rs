//! Sessions of browsers: a random cookie, stored in Postgres as a hash. Each login makes a new
//! cookie. A new password ends all sessions of the person.

use axum_extra::extract::CookieJar;
use axum_extra::extract::cookie::{Cookie, SameSite};
use http::{HeaderMap, header};
use jiff::SignedDuration;
use muster_api::access::Scope;
use muster_api::tokens::DEFAULT_RELEASES_PER_HOUR;
use muster_core::ids::UserId;
use muster_core::values::{Digest, Secret};
use sqlx::PgConnection;

use super::access::Holding;
use super::passwords::Lane;
use super::{Actor, break_glass, passwords};
use crate::access::Grant;
use crate::app::App;
use crate::db;
use crate::db::events::NewEvent;
use crate::db::users::UserRow;
use crate::error::Error;
use crate::request_id;

const COOKIE: &str = "muster_session";
/// Shortest time between two writes of a person's last activity.
const SEEN_EVERY: SignedDuration = SignedDuration::from_secs(60);
/// Life of a session: a working day.
const LASTS: SignedDuration = SignedDuration::from_hours(12);

/// Checks a password and opens a session. Returns the cookie, or `None` when the name or the
/// password is wrong. The lane decides where the login waits for a turn.
///
/// # Errors
///
/// [`Error::TooMany`] when too many logins wait, or when the database fails.
pub async fn sign_in(
    app: &App,
    headers: &HeaderMap,
    name: &str,
    password: Secret,
    lane: Lane,
) -> Result<Option<Cookie<'static>>, Error> {
    // The turn comes before the query, so a rejected login costs the database nothing.
    let turn = passwords::turn(lane).await?;
    let user = db::users::find(&mut *app.pool.acquire().await?, name).await?;
    let hash = user.as_ref().and_then(|user| user.password_hash.clone());
    let right = passwords::verify(turn, password, hash).await?;
    let mut tx = app.pool.begin().await?;
    let refused = match &user {
        // People sometimes type a password into the name field. Only a hash is recorded, enough to
        // recognize a repeated value.
        None => Some(format!(
            "unknown name, of hash {}",
            app.keys.master.keyed_hash("sign_in", name.as_bytes())
        )),
        Some(user) if !right => Some(format!("wrong password of {}", user.name)),
        Some(user) if user.disabled => {
            Some(format!("{} is disabled by an administrator", user.name))
        }
        Some(user) if !break_glass::admits(&mut tx, app, user).await? => Some(format!(
            "the local administrator {} is not armed",
            user.name
        )),
        Some(_) => None,
    };
    let cookie = match (user, refused) {
        (Some(user), None) => {
            let summary = format!("{} signed in by password", user.name);
            record_login(
                &mut tx,
                app,
                headers,
                &format!("user:{}", user.name),
                "user.signed_in",
                summary,
            )
            .await?;
            Some(open(&mut tx, app, headers, user.id).await?)
        }
        (_, why) => {
            let summary = format!("a login failed: {}", why.unwrap_or_default());
            record_login(
                &mut tx,
                app,
                headers,
                "anonymous",
                "user.sign_in_failed",
                summary,
            )
            .await?;
            None
        }
    };
    tx.commit().await?;
    Ok(cookie)
}

/// Writes the event of a login.
async fn record_login(
    conn: &mut PgConnection,
    app: &App,
    headers: &HeaderMap,
    actor: &str,
    kind: &'static str,
    summary: String,
) -> Result<(), Error> {
    let event = NewEvent::new(app.clock.now(), actor.to_owned(), kind, summary)
        .asked(request_id::of(headers));
    db::events::insert(conn, event).await
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
    let now = app.clock.now();
    db::users::insert_session(conn, &hash_of(&token), user, now, now + LASTS).await?;
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
/// [`Error::Unauthenticated`], or the database's.
pub async fn authenticate(app: &App, headers: &HeaderMap) -> Result<Actor, Error> {
    let jar = CookieJar::from_headers(headers);
    let token = jar.get(COOKIE).ok_or(Error::Unauthenticated)?;
    let mut conn = app.pool.acquire().await?;
    let user = db::users::find_by_session(&mut conn, &hash_of(token.value()), app.clock.now())
        .await?
        .ok_or(Error::Unauthenticated)?;
    if !break_glass::admits(&mut conn, app, &user).await? {
        return Err(Error::Unauthenticated);
    }
    let now = app.clock.now();
    if user
        .last_seen
        .is_none_or(|seen| now.duration_since(seen.to_jiff()) >= SEEN_EVERY)
    {
        db::users::set_last_seen(&mut conn, user.id, now).await?;
    }
    find_actor(&mut conn, &user).await
}

/// Returns the actor of a person, with the present rights. The caller checks whether the person is
/// admitted.
///
/// # Errors
///
/// When the database fails.
pub(super) async fn find_actor(conn: &mut PgConnection, user: &UserRow) -> Result<Actor, Error> {
    let role = user.role;
    let holding = Holding {
        grants: grants(conn, Some(user)).await?,
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
pub async fn grants(conn: &mut PgConnection, user: Option<&UserRow>) -> Result<Vec<Grant>, Error> {
    let Some(user) = user else {
        return Ok(Vec::new());
    };
    let groups = user.groups.iter().map(|group| format!("group:{group}"));
    let subjects: Vec<String> = groups.chain([format!("user:{}", user.name)]).collect();
    let mut grants = db::access::list_bindings(conn, &subjects).await?;
    grants.push(Grant {
        role: user.role,
        scope: Scope::default(),
        keeps_release_verbs: user.keeps_release_verbs,
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
