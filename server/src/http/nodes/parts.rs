//! Routes of components: lists, and the replacement of parts.

use axum::extract::State;
use muster_api::nodes::{Component, ReplaceParts};
use muster_api::operations::Operation;
use muster_api::problem::Problem;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::Sight;
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::filter::{COMPONENTS, Term};
use crate::error::Error;
use crate::http::extract::{Json, Path, Query};
use crate::http::paging::{self, CountedPage, ListQuery};
use crate::intents::answer::Answer;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::nodes::parts::{load, replace};

/// Records replaced parts of a node, by old and new serial.
///
/// The node is then inspected, and quarantined when the inspection does not find the new serials.
/// Earlier gate runs become void.
#[utoipa::path(post, path = "/v1/nodes/{node}/actions/replace-parts",
    extensions(("x-muster-access" = json!({ "verb": "node.replace-parts", "place": "node={node}" }))),
    tag = "nodes",
    params(("node", description = "Name or id"), ("Idempotency-Key" = Option<String>, Header)),
    request_body(content = ReplaceParts), responses(
    (status = 202, description = "The replacement is recorded; Location leads to the operation of the inspection", body = Operation),
    (status = 409, description = "The node's state does not allow the action, or the node is protected or busy", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "The node never had a part with the old serial", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn replace_parts(
    State(app): State<App>,
    actor: Actor,
    Path(key): Path<String>,
    idempotency: IdempotencyKey,
    Json(body): Json<ReplaceParts>,
) -> Result<Answer, Error> {
    replace(&app, &actor, &key, idempotency, &body).await
}

/// Lists the present and former parts of a node.
///
/// Sorted by the time of the first sighting, newest first, unless `created_at` is requested. The
/// filter fields are the same as for the components of all nodes.
#[utoipa::path(get, path = "/v1/nodes/{node}/components",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "node={node}" }))),
    tag = "nodes", params(("node", description = "Name or id"), ListQuery), responses(
    (status = 200, description = "One page of components", body = CountedPage<Component>),
))]
pub(super) async fn list_node_components(
    State(app): State<App>,
    _: Actor,
    Path(key): Path<String>,
    Query(query): Query<ListQuery>,
) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    let id = db::nodes::find_id(&mut conn, &key)
        .await?
        .ok_or_else(|| Error::NotFound(format!("node {key:?}")))?;
    let only = vec![Term::equal("node", id.to_string())];
    paging::build_page(
        &mut conn,
        &COMPONENTS,
        &query,
        only,
        &Sight::new(),
        load,
        |part: &Component| (part.id, ""),
    )
    .await
}

/// Selection of components.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ComponentsQuery {
    /// The page size: 1 to 1000, 100 when absent.
    limit: Option<u32>,
    /// The token from the previous page.
    page_token: Option<String>,
    /// Filter fields: `serial`, `kind`, `model`, `node` and `replaced`, for example
    /// `kind=gpu AND replaced=false AND node~"r1*"`.
    filter: Option<String>,
    /// `-created_at` (the default) or `created_at`: the time of the first sighting in the node.
    sort: Option<String>,
    /// Members of each item, for example `serial,node`; `id` is always included. All members when
    /// absent.
    fields: Option<String>,
    /// `exact`, `estimate` or `none`: the method to count all matching items. `none` when absent.
    count: Option<String>,
    /// The serial of a part, to list all its places: short for `filter=serial=TEXT`.
    serial: Option<String>,
}

/// Lists parts by serial, with their present and former nodes.
///
/// Sorted by the time of the first sighting, newest first, unless `created_at` is requested.
#[utoipa::path(get, path = "/v1/components",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "any" }))),
    tag = "nodes", params(ComponentsQuery), responses(
    (status = 200, description = "One page of components", body = CountedPage<Component>),
))]
pub(super) async fn list_components(
    State(app): State<App>,
    actor: Actor,
    Query(query): Query<ComponentsQuery>,
) -> Result<Answer, Error> {
    let ComponentsQuery {
        limit,
        page_token,
        filter,
        sort,
        fields,
        count,
        serial,
    } = query;
    let only = serial
        .map(|serial| Term::equal("serial", serial.trim()))
        .into_iter()
        .collect();
    let query = ListQuery {
        limit,
        page_token,
        filter,
        sort,
        fields,
        count,
    };
    let mut conn = app.pool.acquire().await?;
    paging::build_page(
        &mut conn,
        &COMPONENTS,
        &query,
        only,
        &actor.sight(),
        load,
        |part: &Component| (part.id, ""),
    )
    .await
}
