//! Sessions.

use askama::Template;
use askama_web::WebTemplate;
use axum::Form;
use axum::extract::State;
use axum::response::{IntoResponse as _, Redirect, Response};
use axum_extra::extract::CookieJar;
use http::{HeaderMap, StatusCode};
use muster_core::values::Secret;
use serde::Deserialize;

use super::frame::{Frame, Visit};
use crate::app::App;
use crate::auth::{self, sessions};
use crate::error::Error;
use crate::http::extract::Query;

#[derive(Template, WebTemplate)]
#[template(path = "sign_in.html")]
struct Page {
    frame: Frame,
    next: String,
    name: String,
    refused: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Target {
    next: String,
}

/// The form; somebody who is signed in is led on.
pub(super) async fn show_sign_in(
    State(app): State<App>,
    visit: Visit,
    headers: HeaderMap,
    Query(target): Query<Target>,
) -> Result<Response, Error> {
    let next = local(&target.next);
    Ok(match auth::signed_in(&app, &headers).await? {
        Some(_) => Redirect::to(&next).into_response(),
        None => Page { frame: Frame::anonymous(&visit, "Sign in"), next, name: String::new(), refused: false }
            .into_response(),
    })
}

#[derive(Deserialize)]
pub(super) struct Credentials {
    name: String,
    password: Secret,
    #[serde(default)]
    next: String,
}

/// Opens a session. One answer for a wrong name and a wrong password.
pub(super) async fn sign_in(
    State(app): State<App>,
    visit: Visit,
    headers: HeaderMap,
    jar: CookieJar,
    Form(given): Form<Credentials>,
) -> Result<Response, Error> {
    let next = local(&given.next);
    Ok(match sessions::sign_in(&app, &headers, given.name.trim(), given.password).await? {
        Some(cookie) => (jar.add(cookie), Redirect::to(&next)).into_response(),
        None => {
            let name = super::format::cut(&given.name, 64);
            let page = Page { frame: Frame::anonymous(&visit, "Sign in"), next, name, refused: true };
            (StatusCode::UNPROCESSABLE_ENTITY, page).into_response()
        }
    })
}

/// Ends the session.
pub(super) async fn sign_out(State(app): State<App>, headers: HeaderMap, jar: CookieJar) -> Result<Response, Error> {
    let gone = sessions::sign_out(&app, &headers).await?;
    Ok((jar.add(gone), Redirect::to("/sign-in")).into_response())
}

/// A path of ours, never another host's.
fn local(next: &str) -> String {
    let ours = next.starts_with('/') && !next.starts_with("//") && !next.contains(['\\', '\r', '\n', '\t']);
    if ours && next.len() <= 2000 { next.to_owned() } else { "/".to_owned() }
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
            assert_eq!(local(next), to);
        }
    }
}
