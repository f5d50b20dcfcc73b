//! `?dry_run=true` on every write: the same checks with the same permissions, and no stored effect.
//! The parameter is read once for all routes. The transaction is rolled back in a single place
//! ([`crate::intents::writing`]), so that no handler can forget the rollback.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method, Uri, header};

use crate::error::Error;
use crate::intents::dry_run;
use crate::request_id;

const NAME: &str = "dry_run";
/// Other query parameters of writes, on any route.
const OTHERS: [&str; 2] = ["erase_now", "reason"];
/// Header of an answer to a dry run.
const TOLD: HeaderName = HeaderName::from_static("muster-dry-run");

/// Middleware: removes the parameter from a write before routing. A read keeps its query, and the
/// strict extractor of the route rejects `dry_run`.
pub async fn read(mut request: Request, next: Next) -> Response {
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return next.run(request).await;
    }
    let dry = match take_parameter(request.uri()) {
        Ok((dry, uri)) => {
            *request.uri_mut() = uri;
            dry
        }
        Err(error) => return error.into_response(),
    };
    if dry {
        request_id::note(&[("dry_run", &true)]);
    }
    let mut response = dry_run::scope(dry, next.run(request)).await;
    if dry && response.status().is_success() {
        let headers = response.headers_mut();
        // Both would refer to an object missing after the rollback.
        headers.remove(header::LOCATION);
        headers.remove(header::ETAG);
        headers.insert(TOLD, HeaderValue::from_static("true"));
    }
    response
}

/// Returns whether the request is a dry run, and the URI without the parameter. Unknown parameters
/// are rejected, so that a misspelt `dryrun=true` is not carried out.
fn take_parameter(uri: &Uri) -> Result<(bool, Uri), Error> {
    let Some(query) = uri.query().filter(|_| uri.path().starts_with("/v1/")) else {
        return Ok((false, uri.clone()));
    };
    let mut dry = false;
    let mut others = Vec::new();
    for pair in query.split('&') {
        match pair.split_once('=').unwrap_or((pair, "")) {
            (NAME, "true") => dry = true,
            (NAME, "false") => {}
            (NAME, _) => return Err(Error::invalid(NAME, "invalid_value", "true or false")),
            (name, _) if OTHERS.contains(&name) => others.push(pair),
            ("", _) => {}
            (other, _) => {
                return Err(Error::invalid(
                    other,
                    "unknown_parameter",
                    "a write takes `dry_run`, and some writes take `erase_now` or `reason`",
                ));
            }
        }
    }
    let query = if others.is_empty() {
        String::new()
    } else {
        format!("?{}", others.join("&"))
    };
    let mut parts = uri.clone().into_parts();
    let rest: PathAndQuery = format!("{}{query}", uri.path())
        .parse()
        .map_err(Error::internal)?;
    parts.path_and_query = Some(rest);
    Ok((dry, Uri::from_parts(parts).map_err(Error::internal)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_taken_and_the_rest_stays() {
        let at = |text: &str| {
            take_parameter(&text.parse().unwrap()).map(|(dry, uri)| (dry, uri.to_string()))
        };
        assert_eq!(at("/v1/a?dry_run=true").unwrap(), (true, "/v1/a".into()));
        assert_eq!(
            at("/v1/a?erase_now=%20&dry_run=true&").unwrap(),
            (true, "/v1/a?erase_now=%20".into())
        );
        assert_eq!(at("/v1/a?dry_run=false").unwrap(), (false, "/v1/a".into()));
        assert_eq!(
            at("/sign-in?next=%2F").unwrap(),
            (false, "/sign-in?next=%2F".into())
        );
        let (values, names) = (
            ["dry_run", "dry_run=1", "dry_run=false&dry_run=yes"],
            [
                "dryrun=true",
                "dry-run=true",
                "dry%5Frun=true",
                "Dry_run=true",
            ],
        );
        for wrong in values
            .iter()
            .chain(&names)
            .map(|query| format!("/v1/a?{query}"))
        {
            let wrong = wrong.as_str();
            assert!(at(wrong).is_err(), "{wrong}");
        }
    }
}
