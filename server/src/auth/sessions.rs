//! Sessions of browsers: a random cookie, of which Postgres holds the hash. A new one at each login; all end with a new password.

use axum_extra::extract::CookieJar;
use axum_extra::extract::cookie::{Cookie, SameSite};
use http::HeaderMap;
use jiff::SignedDuration;
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
pub async fn sign_in(app: &App, name: &str, password: Secret) -> Result<Option<Cookie<'static>>, Error> {
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
    Ok(Some(cookie(token)))
}

/// Ends the session of a request; the cookie that makes the browser forget it.
///
/// # Errors
/// When the database fails.
pub async fn sign_out(app: &App, headers: &HeaderMap) -> Result<Cookie<'static>, Error> {
    if let Some(token) = CookieJar::from_headers(headers).get(COOKIE) {
        db::users::delete_session(&mut *app.pool.acquire().await?, &hash_of(token.value())).await?;
    }
    let mut gone = cookie(String::new());
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
    Ok(Actor { name: format!("user:{}", user.name), role, request_id: None })
}

fn hash_of(token: &str) -> [u8; 32] {
    Digest::of(token.as_bytes()).0
}

/// Not `Secure`: a lab serves plain HTTP on a loopback address. A proxy that ends TLS adds it.
fn cookie(token: String) -> Cookie<'static> {
    Cookie::build((COOKIE, token)).path("/").http_only(true).same_site(SameSite::Lax).build()
}
