//! The resource tree: maps each path to a resource, and each method to a read or a write.

use std::sync::Arc;

use http::{Method, StatusCode, header, request::Parts};
use serde_json::{Value, json};

use super::reply::{self, Reply, error, etag};
use super::{Service, actions, enclosure, services, systems};

/// Whether a request needs no login: reading the service root (DSP0266 section 13.3.2) and creating
/// a session.
pub(crate) fn is_open(method: &Method, path: &str) -> bool {
    let reads = matches!(*method, Method::GET | Method::HEAD);
    let root = matches!(path, "/redfish" | "/redfish/v1");
    let login = *method == Method::POST && path == "/redfish/v1/SessionService/Sessions";
    (reads && root) || login
}

/// Answers a request of `user`; `user` is `None` only for requests accepted by [`is_open`].
pub(crate) async fn dispatch(
    service: &Arc<Service>,
    user: Option<String>,
    request: &Parts,
    body: &[u8],
    all_wrong: bool,
) -> Reply {
    let path = request.uri.path().trim_end_matches('/');
    let Some(rest) = path.strip_prefix("/redfish") else {
        return reply::not_found(path);
    };
    let segments: Vec<&str> = rest.split('/').skip(1).collect();
    let resource = resource(service, &segments, request.uri.query().unwrap_or_default());
    match request.method {
        Method::GET | Method::HEAD => match resource {
            Some(resource) => read(request, resource),
            None => reply::not_found(path),
        },
        Method::POST | Method::PATCH | Method::DELETE => {
            if let Some(refusal) = resource
                .as_ref()
                .and_then(|resource| stale(request, resource))
            {
                return refusal;
            }
            let document = match parse(&request.method, body) {
                Ok(document) => document,
                Err(refusal) => return refusal,
            };
            let act = actions::Act {
                service,
                user,
                method: &request.method,
                document,
                all_wrong,
            };
            match act.perform(&segments).await {
                Some(reply) => reply,
                None if resource.is_some() => reply::not_allowed("GET, HEAD"),
                None => reply::not_found(path),
            }
        }
        _ => reply::not_allowed("GET, HEAD, POST, PATCH, DELETE"),
    }
}

fn read(request: &Parts, resource: Value) -> Reply {
    let tag = etag(&resource);
    match request.headers.get(header::IF_NONE_MATCH) {
        Some(known) if known.as_bytes() == tag.as_bytes() => Reply {
            status: StatusCode::NOT_MODIFIED,
            headers: vec![("etag", tag)],
            body: None,
        },
        Some(_) | None => Reply::resource(resource),
    }
}

/// Rejects a write with 412 if its `If-Match` names an older state of the resource; else returns
/// `None`.
fn stale(request: &Parts, resource: &Value) -> Option<Reply> {
    let wanted = request.headers.get(header::IF_MATCH)?;
    let fits = wanted == "*" || wanted.as_bytes() == etag(resource).as_bytes();
    let text = "The ETag supplied did not match the ETag required to change this resource.";
    (!fits).then(|| {
        error(
            StatusCode::PRECONDITION_FAILED,
            "PreconditionFailed",
            text,
            "Read the resource again.",
        )
    })
}

fn parse(method: &Method, body: &[u8]) -> Result<Value, Reply> {
    let text = "The request body submitted was malformed JSON and could not be parsed.";
    let malformed = || {
        error(
            StatusCode::BAD_REQUEST,
            "MalformedJSON",
            text,
            "Send a JSON object.",
        )
    };
    match method {
        &Method::DELETE => Ok(Value::Null),
        _ if body.is_empty() => Ok(json!({})),
        _ => serde_json::from_slice(body)
            .ok()
            .filter(Value::is_object)
            .ok_or_else(malformed),
    }
}

/// The current resource at a path, or `None`. Only the event log uses `query`.
fn resource(service: &Service, segments: &[&str], query: &str) -> Option<Value> {
    match segments {
        [] => Some(json!({"v1": "/redfish/v1/"})),
        ["v1"] => Some(services::root(service)),
        ["v1", "Systems", rest @ ..] => systems::resource(service, rest, query),
        ["v1", "Chassis", rest @ ..] => enclosure::chassis(service, rest),
        ["v1", "Managers", rest @ ..] => enclosure::managers(service, rest, query),
        ["v1", rest @ ..] => services::resource(service, rest),
        _ => None,
    }
}
