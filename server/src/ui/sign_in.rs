//! The sign-in page, and the start and end of sessions.

use askama::Template;
use askama_web::WebTemplate;
use axum::extract::State;
use axum::response::{IntoResponse as _, Redirect, Response};
use axum_extra::extract::CookieJar;
use http::{HeaderMap, StatusCode};
use muster_core::values::Secret;
use serde::Deserialize;

use super::frame::{Frame, Visit};
use crate::app::App;
use crate::auth::login::{self, Answered};
use crate::auth::passwords::Caller;
use crate::auth::{self, sessions};
use crate::error::Error;
use crate::http::extract::{Form, Query};

#[derive(Template, WebTemplate)]
#[template(path = "sign_in.html")]
struct Page {
    frame: Frame,
    next: String,
    name: String,
    refused: bool,
    /// Host of the identity provider. Empty without a provider.
    provider: String,
    /// The login by the identity provider failed.
    not_vouched: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Target {
    next: String,
}

/// Shows the sign-in form. A signed-in visitor is redirected to the target page.
pub(super) async fn show_sign_in(
    State(app): State<App>,
    visit: Visit,
    headers: HeaderMap,
    Query(target): Query<Target>,
) -> Result<Response, Error> {
    let next = keep_local_path(&target.next);
    Ok(match auth::signed_in(&app, &headers).await? {
        Some(_) => Redirect::to(&next).into_response(),
        None => page(&app, &visit, next).into_response(),
    })
}

#[derive(Deserialize)]
pub(super) struct Credentials {
    name: String,
    password: Secret,
    #[serde(default)]
    next: String,
}

/// Opens a session. A wrong name and a wrong password get the same answer, so names cannot be
/// guessed.
pub(super) async fn sign_in(
    State(app): State<App>,
    visit: Visit,
    caller: Caller,
    headers: HeaderMap,
    jar: CookieJar,
    Form(given): Form<Credentials>,
) -> Result<Response, Error> {
    let next = keep_local_path(&given.next);
    Ok(
        match sessions::sign_in(&app, &headers, given.name.trim(), given.password, caller).await? {
            Some(cookie) => (jar.add(cookie), Redirect::to(&next)).into_response(),
            None => {
                let name = super::format::cut(&given.name, 64);
                let page = Page {
                    name,
                    refused: true,
                    ..page(&app, &visit, next)
                };
                (StatusCode::UNPROCESSABLE_ENTITY, page).into_response()
            }
        },
    )
}

fn page(app: &App, visit: &Visit, next: String) -> Page {
    let provider = app
        .oidc
        .as_ref()
        .map(|provider| provider.host().to_owned())
        .unwrap_or_default();
    let frame = Frame::anonymous(visit, "Sign in");
    Page {
        frame,
        next,
        name: String::new(),
        refused: false,
        provider,
        not_vouched: false,
    }
}

/// Redirects the browser to the identity provider.
pub(super) async fn begin_vouched(
    State(app): State<App>,
    visit: Visit,
    headers: HeaderMap,
    jar: CookieJar,
    Query(target): Query<Target>,
) -> Result<Response, Error> {
    let provider = app
        .oidc
        .clone()
        .ok_or_else(|| Error::NotFound("An identity provider".into()))?;
    let next = keep_local_path(&target.next);
    Ok(match login::begin(&provider, &app, &headers, &next).await {
        Ok((url, cookie)) => (jar.add(cookie), Redirect::to(&url)).into_response(),
        Err(error) => not_vouched(&app, &visit, next, &error),
    })
}

/// Opens a session for a person authenticated by the identity provider.
pub(super) async fn finish_vouched(
    State(app): State<App>,
    visit: Visit,
    headers: HeaderMap,
    jar: CookieJar,
    Query(answered): Query<Answered>,
) -> Result<Response, Error> {
    let provider = app
        .oidc
        .clone()
        .ok_or_else(|| Error::NotFound("An identity provider".into()))?;
    Ok(
        match login::finish(&provider, &app, &headers, answered).await {
            Ok((session, gone, next)) => (
                jar.add(session).add(gone),
                Redirect::to(&keep_local_path(&next)),
            )
                .into_response(),
            Err(error) => not_vouched(&app, &visit, "/".into(), &error),
        },
    )
}

/// Returns the same page for every failure. The reason is written to the log only.
fn not_vouched(app: &App, visit: &Visit, next: String, error: &anyhow::Error) -> Response {
    tracing::warn!(
        error = format!("{error:#}"),
        "a login by the identity provider failed"
    );
    let page = Page {
        not_vouched: true,
        ..page(app, visit, next)
    };
    (StatusCode::UNPROCESSABLE_ENTITY, page).into_response()
}

/// Ends the session.
pub(super) async fn sign_out(
    State(app): State<App>,
    headers: HeaderMap,
    jar: CookieJar,
) -> Result<Response, Error> {
    let gone = sessions::sign_out(&app, &headers).await?;
    Ok((jar.add(gone), Redirect::to("/sign-in")).into_response())
}

/// Returns `next` when the path is local to this server, else `/`. Redirects to other hosts are
/// rejected.
fn keep_local_path(next: &str) -> String {
    let ours = next.starts_with('/')
        && !next.starts_with("//")
        && !next.contains(['\\', '\r', '\n', '\t']);
    if ours && next.len() <= 2000 {
        next.to_owned()
    } else {
        "/".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signing_in_leads_nowhere_else() {
        for (next, to) in [
            ("/nodes?q=a", "/nodes?q=a"),
            ("", "/"),
            ("//evil", "/"),
            ("https://evil", "/"),
            ("/\\evil", "/"),
            ("/\t/evil", "/"),
        ] {
            assert_eq!(keep_local_path(next), to);
        }
    }
}
