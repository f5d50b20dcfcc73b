//! Extractors of this server, so that every rejected request has the same form of error.

use axum::body::Bytes;
use axum::extract::rejection::FormRejection;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, header};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::document;
use crate::document::Document;
use crate::error::Error;

/// A JSON body as a type; as an answer, the JSON of the type.
#[derive(Clone, Debug)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Error;

    async fn from_request(request: Request, state: &S) -> Result<Self, Error> {
        let Body(raw) = Body::from_request(request, state).await?;
        document::typed(&raw).map(Self)
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
            Err(error) => Error::internal(error).into_response(),
        }
    }
}

impl<T: Serialize + DeserializeOwned, S: Send + Sync> FromRequest<S> for Document<T> {
    type Rejection = Error;

    async fn from_request(request: Request, state: &S) -> Result<Self, Error> {
        let Body(raw) = Body::from_request(request, state).await?;
        Self::read(raw)
    }
}

/// A JSON body for a later conversion: patches.
#[derive(Clone, Debug)]
pub struct Body(pub Value);

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = Error;

    async fn from_request(request: Request, state: &S) -> Result<Self, Error> {
        if !is_json(request.headers()) {
            return Err(Error::UnsupportedMediaType);
        }
        let bytes = Bytes::from_request(request, state)
            .await
            .map_err(|_| Error::TooLarge)?;
        document::parse(&bytes).map(Self)
    }
}

/// An optional JSON body: `POST …/actions/inspect`.
#[derive(Clone, Debug)]
pub struct OptionalJson<T>(pub T);

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequest<S> for OptionalJson<T> {
    type Rejection = Error;

    async fn from_request(request: Request, state: &S) -> Result<Self, Error> {
        let declared = is_json(request.headers());
        let bytes = Bytes::from_request(request, state)
            .await
            .map_err(|_| Error::TooLarge)?;
        match (bytes.is_empty(), declared) {
            (true, _) => Ok(Self(T::default())),
            (false, false) => Err(Error::UnsupportedMediaType),
            (false, true) => document::typed(&document::parse(&bytes)?).map(Self),
        }
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let text = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let essence = text
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    matches!(
        essence.as_str(),
        "application/json" | "application/merge-patch+json"
    )
}

/// The query string. Types with `deny_unknown_fields` reject unknown parameters.
#[derive(Clone, Debug)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Error;

    #[expect(
        clippy::disallowed_types,
        reason = "this type words the refusal of axum's"
    )]
    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Error> {
        if parts.uri.query().is_some_and(|query| query.contains("%00")) {
            return Err(invalid_text("query"));
        }
        match axum::extract::Query::try_from_uri(&parts.uri) {
            Ok(axum::extract::Query(query)) => Ok(Self(query)),
            Err(rejection) => {
                let detail = std::error::Error::source(&rejection)
                    .map_or(rejection.body_text(), ToString::to_string);
                Err(Error::invalid("query", "invalid_query", detail))
            }
        }
    }
}

/// The fields of a form of the console.
#[derive(Clone, Debug)]
pub struct Form<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Form<T> {
    type Rejection = Error;

    #[expect(
        clippy::disallowed_types,
        reason = "this type words the refusal of axum's"
    )]
    async fn from_request(request: Request, state: &S) -> Result<Self, Error> {
        let (parts, body) = request.into_parts();
        let body = Request::from_parts(parts.clone(), body);
        let bytes = Bytes::from_request(body, state)
            .await
            .map_err(|_| Error::TooLarge)?;
        let has_nul = bytes.windows(3).any(|three| three == b"%00") || bytes.contains(&0);
        let request = Request::from_parts(parts, bytes.into());
        match axum::Form::from_request(request, state).await {
            Err(FormRejection::InvalidFormContentType(_)) => {
                let detail = "Send application/x-www-form-urlencoded.";
                Err(Error::invalid("form", "content_type", detail))
            }
            _ if has_nul => Err(invalid_text("form")),
            Ok(axum::Form(fields)) => Ok(Self(fields)),
            Err(rejection) => {
                let detail = std::error::Error::source(&rejection)
                    .map_or(rejection.body_text(), ToString::to_string);
                Err(Error::invalid("form", "invalid_form", detail))
            }
        }
    }
}

/// The error for a text with a zero byte. Postgres cannot store such a text, and would answer with
/// an error similar to a server error.
fn invalid_text(place: &'static str) -> Error {
    let detail = "A text must not hold the character U+0000.";
    Error::invalid(place, "nul", detail)
}

/// The parameters of the path. An invalid parameter names no object, so the answer is 404.
#[derive(Clone, Debug)]
pub struct Path<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Error;

    #[expect(
        clippy::disallowed_types,
        reason = "this type words the refusal of axum's"
    )]
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Error> {
        let nul = parts.uri.path().contains("%00");
        match axum::extract::Path::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(path)) if !nul => Ok(Self(path)),
            _ => Err(Error::NotFound("What the path names".into())),
        }
    }
}
