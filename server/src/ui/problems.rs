//! Error pages for browsers, with advice. Handlers return the same `Error` as the API does. The
//! middleware here renders the error as HTML.

use askama::Template;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{Html, IntoResponse as _, Response};
use http::{HeaderValue, Method, StatusCode, header};
use serde::Deserialize;

use super::assets::{URLS, Urls};
use super::format;

/// Larger than any problem document of the server, in bytes.
const LARGEST: usize = 64 * 1024;
/// Most faults of a document named on the page.
const FAULTS: usize = 20;

/// The problem document written by `Error`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Problem {
    status: u16,
    code: String,
    detail: String,
    request_id: Option<String>,
    errors: Vec<Fault>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Fault {
    pointer: String,
    detail: String,
}

#[derive(Template)]
#[template(path = "problem.html")]
struct Page {
    urls: &'static Urls,
    status: u16,
    title: &'static str,
    detail: String,
    faults: Vec<String>,
    advice: &'static str,
    back: String,
    request_id: String,
}

/// Middleware: turns an error into an HTML page, or into a redirect to the sign-in, when the client
/// accepts HTML. Paths of the API keep their JSON.
pub async fn as_pages(request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let here = request
        .uri()
        .path_and_query()
        .map_or_else(|| path.clone(), ToString::to_string);
    let reading = matches!(*request.method(), Method::GET | Method::HEAD);
    let part = request.headers().contains_key("hx-request");
    let accepts = request
        .headers()
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok());
    let wanted = part || accepts.is_some_and(|types| types.contains("text/html"));
    let response = next.run(request).await;
    let is_problem = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| value == "application/problem+json");
    let api = ["/v1/", "/agent/", "/openapi"]
        .iter()
        .any(|api| path.starts_with(api));
    match is_problem && wanted && !api {
        true => page(response, &here, reading, part).await,
        false => response,
    }
}

async fn page(response: Response, here: &str, reading: bool, part: bool) -> Response {
    let status = response.status();
    if status == StatusCode::UNAUTHORIZED {
        let next = if reading { here } else { "/" };
        return sign_in_first(&format!("/sign-in?next={}", format::escape(next)), part);
    }
    let retry_after = response.headers().get(header::RETRY_AFTER).cloned();
    let bytes = to_bytes(response.into_body(), LARGEST)
        .await
        .unwrap_or_default();
    let problem: Problem = serde_json::from_slice(&bytes).unwrap_or_default();
    let (title, advice) = describe_status(status, &problem.code);
    let page = Page {
        urls: &URLS,
        status: if problem.status == 0 {
            status.as_u16()
        } else {
            problem.status
        },
        title,
        advice,
        detail: format::cut(&problem.detail, 1000),
        faults: format::cut_sentences(list_faults(&problem), FAULTS),
        back: if reading {
            "/".to_owned()
        } else {
            find_form_page(here)
        },
        request_id: problem.request_id.unwrap_or_default(),
    };
    let html = page
        .render()
        .unwrap_or_else(|_| "The error page could not be rendered.".to_owned());
    let mut response = (status, Html(html)).into_response();
    if let Some(value) = retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, value);
    }
    response
}

fn list_faults(problem: &Problem) -> Vec<String> {
    let told = problem.errors.iter().map(|fault| {
        let fault = format!("{}: {}", fault.pointer, fault.detail);
        format::cut(&fault, 300)
    });
    told.collect()
}

/// Returns the page of the submitted form: the path of the action names the node or the rollout.
/// Other paths return to `/`.
fn find_form_page(here: &str) -> String {
    let path = here.strip_prefix("/ui").unwrap_or_default();
    let node = path.split("/actions/").next();
    let node = node.filter(|path| path.starts_with("/nodes/"));
    let rollout = path.strip_prefix("/rollouts/");
    let rollout = rollout.and_then(|path| path.split('/').next());
    match (node, rollout) {
        (Some(node), _) => node.to_owned(),
        (None, Some(rollout)) => format!("/rollouts/{rollout}"),
        (None, None) => "/".to_owned(),
    }
}

/// Redirects to the sign-in. htmx follows redirects inside its own request, so a partial request
/// gets the `hx-redirect` header and the browser loads a whole page.
fn sign_in_first(target: &str, part: bool) -> Response {
    let name = if part {
        header::HeaderName::from_static("hx-redirect")
    } else {
        header::LOCATION
    };
    let status = if part {
        StatusCode::OK
    } else {
        StatusCode::SEE_OTHER
    };
    let mut response = (status, Body::empty()).into_response();
    response.headers_mut().insert(
        name,
        HeaderValue::from_str(target).unwrap_or(HeaderValue::from_static("/sign-in")),
    );
    response
}

/// Returns the title of the error page, and advice for the reader.
fn describe_status(status: StatusCode, code: &str) -> (&'static str, &'static str) {
    match (status.as_u16(), code) {
        (400 | 422, _) => (
            "Invalid request",
            "Correct the problems above and send the form again. No object was changed.",
        ),
        (403, _) => (
            "Not allowed",
            "Ask an administrator for the role named above. No object was changed.",
        ),
        (404, _) => (
            "Not found",
            "The object may have been renamed or removed. Look for the object in the list of nodes, or in the events.",
        ),
        (409, _) => (
            "Not now",
            "The state changed after the page was loaded. Open the page again and decide on the present state.",
        ),
        (412 | 428, _) => (
            "Changed in the meantime",
            "Open the page again and decide on the present state.",
        ),
        (413, _) => ("Too large", "Shorten the text of the form."),
        (429, "login_delayed") => (
            "This account is delayed",
            "The password was not checked. Sign in again after the wait above, or from an address with an earlier login of yours.",
        ),
        (429, _) => (
            "Too many requests",
            "Wait a few seconds and send the request again. No object was changed.",
        ),
        (503, _) => (
            "The database is unreachable",
            "Nodes are not affected: they keep running, and boot from their own disks. This page works again as soon as \
             the server reaches Postgres. To check: `systemctl status postgresql`, then the server's log.",
        ),
        (status, _) if status >= 500 => (
            "This is a bug in Muster",
            "No change was made half-way. Report the problem with the request id below; the server's log has the cause.",
        ),
        _ => ("The request failed", "Go back and try again."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    async fn body(response: Response) -> String {
        String::from_utf8(
            to_bytes(response.into_body(), 1 << 20)
                .await
                .unwrap()
                .to_vec(),
        )
        .unwrap()
    }

    #[tokio::test]
    async fn an_error_says_what_to_do_and_escapes_what_it_repeats() {
        let response = page(
            Error::NotFound("node \"<b>\"".into()).into_response(),
            "/nodes/x",
            true,
            false,
        )
        .await;
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        let html = body(response).await;
        assert!(
            html.contains("Look for the object in the list of nodes") && !html.contains("<b>"),
            "{html}"
        );
    }

    #[tokio::test]
    async fn many_faults_are_cut_with_their_number() {
        let faults = (0..23).map(|number| crate::error::Fault {
            pointer: format!("/spec/f{number}"),
            code: "out_of_range",
            detail: "wrong".to_owned(),
        });
        let wrong = Error::Unprocessable(faults.collect()).into_response();
        let html = body(page(wrong, "/pools/x", true, false).await).await;
        assert!(html.contains("/spec/f19: wrong"), "{html}");
        assert!(html.contains("<li>and 3 more</li>"), "{html}");
        assert!(!html.contains("/spec/f20"), "{html}");
    }

    #[tokio::test]
    async fn a_database_that_is_away_is_told_as_that() {
        let away = Error::Unavailable(sqlx::Error::PoolTimedOut).into_response();
        let response = page(away, "/", true, false).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(response.headers().contains_key(header::RETRY_AFTER));
        assert!(body(response).await.contains("Nodes are not affected"));
    }

    #[tokio::test]
    async fn nobody_is_sent_to_sign_in_and_back() {
        let response = page(
            Error::Unauthenticated.into_response(),
            "/nodes?q=a b",
            true,
            false,
        )
        .await;
        assert_eq!(
            response.headers()[header::LOCATION],
            "/sign-in?next=%2Fnodes%3Fq%3Da%20b"
        );
        let part = page(
            Error::Unauthenticated.into_response(),
            "/ui/nodes/a/actions/drain",
            false,
            true,
        )
        .await;
        assert_eq!(part.headers()["hx-redirect"], "/sign-in?next=%2F");
    }

    #[test]
    fn a_refused_action_leads_back_to_its_node() {
        assert_eq!(
            find_form_page("/ui/nodes/gpu-1/actions/drain"),
            "/nodes/gpu-1"
        );
        assert_eq!(find_form_page("/ui/rollouts/gpu-1/halt"), "/rollouts/gpu-1");
        assert_eq!(find_form_page("/sign-in"), "/");
    }
}
