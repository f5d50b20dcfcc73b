//! Routes for registering, changing and removing a node.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use muster_api::nodes::NodeSpec;
use muster_api::object::Draft;
use muster_api::problem::Problem;

use crate::app::App;
use crate::auth::Actor;
use crate::document::Document;
use crate::error::Error;
use crate::http::extract::{Body, Path};
use crate::intents::answer::Answer;
use crate::intents::nodes::write;
use crate::intents::preconditions::Preconditions;

/// Registers a node, or replaces the spec.
#[utoipa::path(put, path = "/v1/nodes/{node}",
    extensions(("x-muster-access" = json!({ "verb": "node.write", "place": "node={node}" })),
        ("x-muster-links" = json!({ "self": ["get_node", {"node": "$response.body#/name"}] }))),
    tag = "nodes", params(("node", description = "Name, or the id of an existing node")),
    request_body = ref("#/components/schemas/NodeDraft"), responses(
    (status = 200, description = "The node, replaced or already as requested", body = ref("#/components/schemas/Node")),
    (status = 201, description = "The node is registered", body = ref("#/components/schemas/Node")),
    (status = 409, description = "A serial, MAC or address is taken, or the node is claimed", body = Problem, content_type = "application/problem+json"),
    (status = 412, description = "The precondition failed", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "The request is well-formed but invalid; `errors` lists each problem", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn put_node(
    State(app): State<App>,
    actor: Actor,
    Path(key): Path<String>,
    preconditions: Preconditions,
    document: Document<Draft<NodeSpec>>,
) -> Result<Answer, Error> {
    write::put(&app, &actor, &key, preconditions, document).await
}

/// Applies a JSON merge patch (RFC 7396) to labels, annotations and spec.
#[utoipa::path(patch, path = "/v1/nodes/{node}",
    extensions(("x-muster-access" = json!({ "verb": "node.write", "place": "node={node}" })),
        ("x-muster-links" = json!({ "self": ["get_node", {"node": "$response.body#/name"}] }))),
    tag = "nodes", params(("node", description = "Name or id")),
    request_body(content = Value, content_type = "application/merge-patch+json"), responses(
    (status = 200, description = "The node, changed or already as requested", body = ref("#/components/schemas/Node")),
    (status = 412, description = "The precondition failed", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "The request is well-formed but invalid; `errors` lists each problem", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn patch_node(
    State(app): State<App>,
    actor: Actor,
    Path(key): Path<String>,
    preconditions: Preconditions,
    Body(patch): Body,
) -> Result<Answer, Error> {
    write::patch(&app, &actor, &key, preconditions, &patch).await
}

/// Unregisters a node. The machine is not touched. A node whose disks may hold data also needs the
/// verb `node.retire`. The next record of the same machine keeps the mark and the epoch.
#[utoipa::path(delete, path = "/v1/nodes/{node}",
    extensions(("x-muster-access" = json!({ "verb": "node.write", "place": "node={node}" }))),
    tag = "nodes", params(("node", description = "Name or id"), ("If-Match" = String, Header)), responses(
    (status = 204, description = "The node is unregistered"),
    (status = 409, description = "The node is claimed, protected or busy", body = Problem, content_type = "application/problem+json"),
    (status = 428, description = "If-Match is missing", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn delete_node(
    State(app): State<App>,
    actor: Actor,
    Path(key): Path<String>,
    preconditions: Preconditions,
) -> Result<Response, Error> {
    write::unregister(&app, &actor, &key, preconditions).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
