//! Logins by an OpenID provider. The secrets of a pending login are derived from a random value in
//! the browser's own cookie, so the server stores no data about the login.

use anyhow::{Context as _, bail, ensure};
use axum_extra::extract::CookieJar;
use axum_extra::extract::cookie::{Cookie, SameSite};
use http::HeaderMap;
use serde::Deserialize;
use serde_json::json;

use super::seals::{counts, write};
use super::{logout, sessions, vouching};
use crate::app::App;
use crate::db::events::NewEvent;
use crate::db::users::Vouched;
use crate::oidc::{Person, Provider, Secrets};
use crate::{db, request_id};

/// The cookie of a pending login.
const COOKIE: &str = "muster_sign_in";

/// The query of the provider's redirect back to the server.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Answered {
    code: Option<String>,
    state: Option<String>,
    error: Option<String>,
}

/// Returns the provider's login address, and a cookie binding the way back to the same browser.
/// `next` is the page requested before the login.
///
/// # Errors
///
/// When the provider's answer is missing or invalid.
pub async fn begin(
    provider: &Provider,
    app: &App,
    headers: &HeaderMap,
    next: &str,
) -> anyhow::Result<(String, Cookie<'static>)> {
    let state = hex::encode(rand::random::<[u8; 32]>());
    let value = format!("{state}.{}", hex::encode(next));
    let secrets = secrets(app, &state);
    let url = provider.authorize(state, secrets).await?;
    Ok((url, cookie(value, headers)))
}

/// Opens the session of a person after the provider's redirect. Returns the session's cookie, the
/// removal of the login's cookie, and the requested page.
///
/// # Errors
///
/// When this browser did not begin the login, or the provider does not confirm a person. The error
/// is for the log, not for the page.
pub async fn finish(
    provider: &Provider,
    app: &App,
    headers: &HeaderMap,
    answered: Answered,
) -> anyhow::Result<(Cookie<'static>, Cookie<'static>, String)> {
    let jar = CookieJar::from_headers(headers);
    let begun = jar.get(COOKIE).context("this browser began no login")?;
    let (state, next) = begun
        .value()
        .split_once('.')
        .context("the cookie of the login is none of ours")?;
    let shown = answered.state.unwrap_or_default();
    aws_lc_rs::constant_time::verify_slices_are_equal(state.as_bytes(), shown.as_bytes())
        .map_err(|_| anyhow::anyhow!("another login than the one that this browser began"))?;
    ensure!(
        answered.error.is_none(),
        "the provider said {:?}",
        answered.error.unwrap_or_default()
    );
    let code = answered.code.context("no code")?;
    let Person {
        subject,
        name,
        role,
        groups,
        session: session_id,
    } = provider.exchange(code, secrets(app, state)).await?;
    let now = app.clock.now();
    let mut tx = app.pool.begin().await?;
    let known = db::users::find_vouched(&mut tx, provider.issuer(), &subject).await?;
    if let Some(known) = known
        && !counts::user_counts(app, &mut tx, &known).await?
    {
        // The event of the refusal stays.
        tx.commit().await?;
        bail!("the row of {} has no valid seal", known.name);
    }
    let vouched = Vouched {
        issuer: provider.issuer(),
        subject: &subject,
        name: &name,
        role: role.as_str(),
        groups: &groups,
    };
    let (user, disabled) = db::users::set_vouched(&mut tx, vouched, now).await?;
    ensure!(!disabled, "{name} is disabled by an administrator");
    write::seal_user(&mut tx, &app.keys.master, user).await?;
    vouching::renew(&mut tx, app, user).await?;
    let session_id = session_id.as_deref();
    logout::remember_session(&mut tx, app, provider.issuer(), user, session_id).await?;
    let session = sessions::open(&mut tx, app, headers, user).await?;
    let event = NewEvent::new(
        now,
        format!("user:{name}"),
        "user.signed_in",
        format!("{name} signed in with the role {}", role.as_str()),
    )
    .asked(request_id::of(headers))
    .with(json!({ "issuer": provider.issuer(), "subject": subject, "groups": groups }));
    db::events::insert(&mut tx, event).await?;
    tx.commit().await?;
    let mut gone = cookie(String::new(), headers);
    gone.make_removal();
    Ok((session, gone, String::from_utf8(hex::decode(next)?)?))
}

/// Returns the nonce and the PKCE verifier of a login. Only this fleet's servers can derive the
/// two, and only for the browser holding the state.
fn secrets(app: &App, state: &str) -> Secrets {
    let derived = |use_: &str| {
        app.keys
            .master
            .keyed_hash(&format!("oidc/{use_}"), state.as_bytes())
    };
    Secrets::new(
        derived("nonce"),
        derived("verifier") + &derived("verifier/2"),
    )
}

fn cookie(value: String, headers: &HeaderMap) -> Cookie<'static> {
    let cookie = Cookie::build((COOKIE, value))
        .path("/sign-in")
        .http_only(true)
        .same_site(SameSite::Lax);
    cookie.secure(sessions::came_by_tls(headers)).build()
}
