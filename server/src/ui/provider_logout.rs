//! The address for the logout tokens of the identity provider. The answers are those of OpenID
//! Connect Back-Channel Logout 1.0, section 2.8.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::json;

use crate::app::App;
use crate::auth::logout::{self, Logged};
use crate::error::Error;
use crate::http::extract::{Form, Json};

#[derive(Deserialize)]
pub(super) struct Given {
    logout_token: String,
}

/// Ends the logins of the person in the token. The reason of a refusal is written to the log only.
pub(super) async fn end_logins(
    State(app): State<App>,
    headers: HeaderMap,
    given: Result<Form<Given>, Error>,
) -> Result<Response, Error> {
    let provider = app
        .oidc
        .clone()
        .ok_or_else(|| Error::NotFound("A provider that vouches for people".into()))?;
    let Ok(Form(given)) = given else {
        return Ok(refuse("the form has no logout_token"));
    };
    let checked = provider
        .check_logout(&given.logout_token, app.clock.now())
        .await;
    let logout = match checked {
        Ok(logout) => logout,
        Err(error) => {
            tracing::warn!(
                error = format!("{error:#}"),
                "a logout token of the identity provider was refused"
            );
            return Ok(refuse("the logout token is not valid"));
        }
    };
    Ok(
        match logout::end_logins(&app, &headers, provider.issuer(), &logout).await? {
            Logged::Out => StatusCode::OK.into_response(),
            Logged::Before => refuse("the logout token was received before"),
        },
    )
}

fn refuse(description: &str) -> Response {
    let body = json!({ "error": "invalid_request", "error_description": description });
    (StatusCode::BAD_REQUEST, Json(body)).into_response()
}
