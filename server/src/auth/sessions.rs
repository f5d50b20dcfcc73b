//! Sessions of browsers: a random cookie, of which Postgres holds the hash. A new one at each login; all end with a new password.

use axum_extra::extract::CookieJar;
use axum_extra::extract::cookie::{Cookie, SameSite};
use http::HeaderMap;
use jiff::SignedDuration;
use muster_api::tokens::DEFAULT_RELEASES_PER_HOUR;
use muster_core::values::{Digest, Secret};

use super::{Actor, passwords};
use crate::app::App;
use crate::db;
use crate::error::Error;

const COOKIE: &str = "muster_session";
/// A working day.
const LASTS: SignedDuration = SignedDuration::from_hours(12);

/// Checks a password and opens a session; its cookie, or `None` when name or password are wrong.
///
/// # Errors
/// When the database fails.
pub async fn sign_in(
    app: &App,
    headers: &HeaderMap,
    name: &str,
    password: Secret,
) -> Result<Option<Cookie<'static>>, Error> {
    let user = db::users::find(&mut *app.pool.acquire().await?, name).await?;
    let hash = user.as_ref().map(|user| user.password_hash.clone());
    let (true, Some(user)) = (passwords::verify(password, hash).await?, user) else {
        return Ok(None);
    };
    let token = hex::encode(rand::random::<[u8; 32]>());
    let now = app.clock.now();
    let mut tx = app.pool.begin().await?;
    db::users::insert_session(&mut tx, &hash_of(&token), user.id, now, now + LASTS).await?;
    tx.commit().await?;
    Ok(Some(cookie(token, headers)))
}

/// Ends the session of a request; the cookie that makes the browser forget it.
///
/// # Errors
/// When the database fails.
pub async fn sign_out(app: &App, headers: &HeaderMap) -> Result<Cookie<'static>, Error> {
    if let Some(token) = CookieJar::from_headers(headers).get(COOKIE) {
        db::users::delete_session(&mut *app.pool.acquire().await?, &hash_of(token.value())).await?;
    }
    let mut gone = cookie(String::new(), headers);
    gone.make_removal();
    Ok(gone)
}

/// Whose session the request's cookie is.
///
/// # Errors
/// [`Error::Unauthenticated`], or the database's.
pub async fn authenticate(app: &App, headers: &HeaderMap) -> Result<Actor, Error> {
    let jar = CookieJar::from_headers(headers);
    let token = jar.get(COOKIE).ok_or(Error::Unauthenticated)?;
    let mut conn = app.pool.acquire().await?;
    let user = db::users::find_by_session(&mut conn, &hash_of(token.value()), app.clock.now())
        .await?
        .ok_or(Error::Unauthenticated)?;
    let role =
        user.role.parse().map_err(|why: String| Error::internal(anyhow::anyhow!("user {}: {why}", user.name)))?;
    let name = format!("user:{}", user.name);
    Ok(Actor { person: name.clone(), name, role, releases_per_hour: Some(DEFAULT_RELEASES_PER_HOUR), request_id: None })
}

fn hash_of(token: &str) -> [u8; 32] {
    Digest::of(token.as_bytes()).0
}

/// `Secure` wherever the browser came by TLS. Only a lab on a loopback address does not.
fn cookie(token: String, headers: &HeaderMap) -> Cookie<'static> {
    let cookie = Cookie::build((COOKIE, token)).path("/").http_only(true).same_site(SameSite::Lax);
    cookie.secure(came_by_tls(headers)).build()
}

/// Whoever ends TLS in front of us says so; without its word, the browser's own does: it names the scheme of the page that sent a form.
fn came_by_tls(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let forwarded = text("forwarded").to_ascii_lowercase();
    text("x-forwarded-proto").eq_ignore_ascii_case("https")
        || forwarded.split([';', ',']).any(|part| part.trim().trim_matches('"') == "proto=https")
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
