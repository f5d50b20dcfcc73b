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

/// Says which parts were replaced, old serials against new. The node is inspected, and quarantined when it is not so; earlier gate runs are void.
#[utoipa::path(post, path = "/v1/nodes/{node}/actions/replace-parts", tag = "nodes",
    params(("node", description = "Name or id"), ("Idempotency-Key" = Option<String>, Header)),
    request_body(content = ReplaceParts), responses(
    (status = 202, description = "Asked; Location leads to the operation", body = Operation),
    (status = 409, description = "The node's state does not allow it, it is protected, or busy", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "The node never had such a part", body = Problem, content_type = "application/problem+json"),
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

/// The parts of a node: those that are in it, and those that were; the one it got last first, unless `created_at` is asked for. They are filtered as
/// those of all nodes are.
#[utoipa::path(get, path = "/v1/nodes/{node}/components", tag = "nodes", params(("node", description = "Name or id"), ListQuery), responses(
    (status = 200, description = "The page", body = CountedPage<Component>),
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
    paging::page(
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

/// Which parts to list.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ComponentsQuery {
    /// 1 to 1000, 100 when absent.
    limit: Option<u32>,
    /// Of the page before.
    page_token: Option<String>,
    /// By `serial`, `kind`, `model`, `node` and `replaced`: `kind=gpu AND replaced=false AND node~"r1*"`.
    filter: Option<String>,
    /// `-created_at` or `created_at`: by when they were first seen where they are or were.
    sort: Option<String>,
    /// Parts of each item, as `serial,node`; `id` is always there. All of it when absent.
    fields: Option<String>,
    /// `exact`, `estimate` or `none`: how many fit in all. `none` when absent.
    count: Option<String>,
    /// Everywhere this one was seen: short for `filter=serial=TEXT`.
    serial: Option<String>,
}

/// Parts by serial, where they are and where they were; what was seen last somewhere first, unless `created_at` is asked for.
#[utoipa::path(get, path = "/v1/components", tag = "nodes", params(ComponentsQuery), responses(
    (status = 200, description = "The page", body = CountedPage<Component>),
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
    paging::page(
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
