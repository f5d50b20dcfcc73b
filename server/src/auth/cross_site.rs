//! Rejects requests sent by a browser on behalf of another site. Browsers state the origin of a
//! request (Fetch Metadata, `Origin`). A request with a token instead of a cookie does not come
//! from a browser and passes.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, Method, header};

use crate::error::Error;

/// Middleware over every route reachable by a browser.
pub async fn refuse(request: Request, next: Next) -> Response {
    let safe = matches!(
        *request.method(),
        Method::GET | Method::HEAD | Method::OPTIONS
    );
    let headers = request.headers();
    match safe || headers.contains_key(header::AUTHORIZATION) || same_site(headers) {
        true => next.run(request).await,
        false => Error::Forbidden("The request comes from another site.".into()).into_response(),
    }
}

/// Returns whether the browser reports a request from a page of the same origin. Without either
/// header, the client is no current browser, and so has no cookie guarded by SameSite.
fn same_site(headers: &HeaderMap) -> bool {
    let text = |name| {
        headers
            .get(name)
            .map(|value: &http::HeaderValue| value.to_str().unwrap_or_default())
    };
    match (text("sec-fetch-site"), text("origin")) {
        (Some(site), _) => matches!(site, "same-origin" | "none"),
        (None, Some(origin)) => {
            let host = text("host").unwrap_or_default();
            origin
                .split_once("://")
                .is_some_and(|(_, origin_host)| !host.is_empty() && origin_host == host)
        }
        (None, None) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_the_same_origin_pass() {
        let headers = |pairs: &[(&'static str, &'static str)]| {
            pairs
                .iter()
                .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
                .collect::<HeaderMap>()
        };
        for (pairs, passes) in [
            (&[("sec-fetch-site", "same-origin")][..], true),
            (&[("sec-fetch-site", "none")], true),
            (&[("sec-fetch-site", "same-site")], false),
            (
                &[
                    ("sec-fetch-site", "cross-site"),
                    ("origin", "http://m"),
                    ("host", "m"),
                ],
                false,
            ),
            (&[("origin", "http://m:8080"), ("host", "m:8080")], true),
            (&[("origin", "http://evil"), ("host", "m:8080")], false),
            (&[("origin", "null"), ("host", "m")], false),
            (&[], true),
        ] {
            assert_eq!(same_site(&headers(pairs)), passes, "{pairs:?}");
        }
    }
}
