//! Routes of the legal hold of a node.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use muster_api::holds::{HoldRecords, NodeHold};
use muster_api::problem::Problem;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::App;
use crate::auth::Actor;
use crate::error::Error;
use crate::http::extract::{Json, Path, Query};
use crate::intents::answer::Answer;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::nodes::holds;
use crate::intents::preconditions::Preconditions;

/// The end of a legal hold.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ReleaseRecordsQuery {
    /// Reason, for the history, in at most 500 bytes. Required: 422 when absent.
    reason: Option<String>,
}

/// Returns the legal hold of a node.
///
/// The ETag is always `"1"`.
#[utoipa::path(get, path = "/v1/nodes/{node}/hold",
    extensions(("x-muster-access" = json!({ "verb": "record.hold", "place": "node={node}" }))),
    tag = "nodes", params(("node", description = "Name or id")), responses(
    (status = 200, description = "The legal hold", body = NodeHold),
    (status = 404, description = "No such node, or the node is not under a legal hold", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn get_node_hold(
    State(app): State<App>,
    _: Actor,
    Path(key): Path<String>,
) -> Result<Answer, Error> {
    holds::show(&app, &key).await
}

/// Puts a node under a legal hold.
///
/// The records and events of the node stay at any age, and the node cannot be deleted. The answer
/// comes after a running removal of records, so the hold counts from the answer on. A second
/// request keeps the first reason.
#[utoipa::path(post, path = "/v1/nodes/{node}/hold",
    extensions(("x-muster-access" = json!({ "verb": "record.hold", "place": "node={node}" })),
        ("x-muster-links" = json!({ "self": ["get_node_hold", {"node": "$response.body#/node"}], "end": ["release_records", {"node": "$response.body#/node"}] }))),
    tag = "nodes",
    params(("node", description = "Name or id"), ("Idempotency-Key" = Option<String>, Header)),
    request_body(content = HoldRecords), responses(
    (status = 200, description = "The node is under a legal hold already", body = NodeHold),
    (status = 201, description = "The node is under a legal hold", body = NodeHold),
    (status = 409, description = "The node is a discovered machine that no person has acted on", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn hold_records(
    State(app): State<App>,
    actor: Actor,
    Path(key): Path<String>,
    idempotency: IdempotencyKey,
    Json(body): Json<HoldRecords>,
) -> Result<Answer, Error> {
    holds::hold(&app, &actor, &key, idempotency, &body).await
}

/// Ends the legal hold of a node.
///
/// Old records of the node are removed again. The ETag is always `"1"`; `If-Match: *` is accepted.
#[utoipa::path(delete, path = "/v1/nodes/{node}/hold",
    extensions(("x-muster-access" = json!({ "verb": "record.hold", "place": "node={node}" }))),
    tag = "nodes",
    params(("node", description = "Name or id"), ("If-Match" = String, Header), ReleaseRecordsQuery), responses(
    (status = 204, description = "The legal hold is over"),
    (status = 404, description = "No such node, or the node is not under a legal hold", body = Problem, content_type = "application/problem+json"),
    (status = 428, description = "If-Match is missing", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn release_records(
    State(app): State<App>,
    actor: Actor,
    Path(key): Path<String>,
    Query(query): Query<ReleaseRecordsQuery>,
    preconditions: Preconditions,
) -> Result<Response, Error> {
    let reason = query.reason.as_deref();
    holds::release(&app, &actor, &key, preconditions, reason).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
