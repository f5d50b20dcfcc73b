//! The public listener: REST and pages under the same limits, headers and request ids.

use std::any::Any;
use std::sync::{Arc, LazyLock};

use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Router, middleware};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, header};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::set_header::SetResponseHeaderLayer;

use crate::app::App;
use crate::auth::cross_site;
use crate::auth::needs::{self, Needs};
use crate::error::Error;
use crate::http::front::{Front, resolve_client};
use crate::http::limits::{self, Limits, Rates};
use crate::http::{openapi, rest};
use crate::{request_id, ui};

/// Content security policy: all content comes from this server, and inline content is blocked.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; \
                      connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Returns all routes for people, browsers and machines on the public listener.
pub fn router(app: App) -> Router {
    limited(app, Rates::default())
}

/// Returns the same routes, with the given rate limits.
pub fn limited(app: App, rates: Rates) -> Router {
    behind(app, rates, Front::default())
}

/// Returns the same routes, for clients behind the given proxies.
pub fn behind(app: App, rates: Rates, front: Front) -> Router {
    let (rest, description) = rest().split_for_parts();
    let limits = Limits::new(rates, app.clock.clone());
    let needs = Needs::read(&description);
    // Built for the first reader, because most servers have none. All readers share the text.
    let document = Arc::new(LazyLock::new(move || {
        Bytes::from(openapi::complete_document(&description).to_string())
    }));
    let rest = rest
        .layer(middleware::from_fn_with_state(needs, needs::attach))
        .route(
            "/openapi.json",
            get(async move || {
                let kind = [(header::CONTENT_TYPE, "application/json")];
                (kind, (**document).clone())
            }),
        )
        .with_state(app.clone());
    let fixed =
        |name, value| SetResponseHeaderLayer::if_not_present(name, HeaderValue::from_static(value));
    rest.merge(ui::router(app))
        .fallback(async || Error::NotFound("What the path names".into()))
        .method_not_allowed_fallback(async || Error::MethodNotAllowed)
        .layer(middleware::from_fn(cross_site::refuse))
        .layer(middleware::from_fn_with_state(
            limits,
            limits::limit_requests,
        ))
        .layer(middleware::from_fn(ui::problems::as_pages))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(CompressionLayer::new())
        .layer(fixed(header::CONTENT_SECURITY_POLICY, POLICY))
        .layer(fixed(header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .layer(fixed(header::REFERRER_POLICY, "same-origin"))
        .layer(fixed(
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ))
        .layer(fixed(header::CACHE_CONTROL, "no-store"))
        .layer(middleware::from_fn_with_state(
            Arc::new(front),
            resolve_client,
        ))
        .layer(middleware::from_fn(request_id::assign))
}

fn panicked(panic: Box<dyn Any + Send + 'static>) -> Response {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default();
    Error::internal(anyhow::anyhow!("a handler panicked: {text}")).into_response()
}
