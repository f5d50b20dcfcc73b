//! Routes of waivers of gates.

use axum::extract::State;
use muster_api::problem::Problem;
use muster_api::tokens::FIRST;
use muster_api::waivers::{CreateWaiver, Waiver};
use serde::Deserialize;
use sqlx::PgConnection;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::access::Sight;
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::filter::{self, Term};
use crate::error::Error;
use crate::http::extract::{Json, Path, Query};
use crate::http::paging::{self, CountedPage, ListQuery};
use crate::intents::answer::Answer;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::preconditions::Preconditions;
use crate::intents::waivers::{self, object};

/// The routes of waivers.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list_waivers, create_waiver))
        .routes(routes!(get_waiver, end_waiver))
}

/// Selection of waivers.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WaiversQuery {
    /// The page size: 1 to 1000, 100 when absent.
    limit: Option<u32>,
    /// The token from the previous page.
    page_token: Option<String>,
    /// Filter fields: `gate`, `state`, `node`, `rack`, `pool`, `covers` and `requested_by`, for
    /// example `state=active AND gate~"disk.*"`. `covers` is a node covered by name, by rack, or by
    /// the pool of its claim.
    filter: Option<String>,
    /// `-created_at` (newest first, the default) or `created_at` (oldest first).
    sort: Option<String>,
    /// Members of each item, for example `gate,until`; `id` is always included. All members when
    /// absent.
    fields: Option<String>,
    /// `exact`, `estimate` or `none`: the method to count all matching items. `none` when absent.
    count: Option<String>,
    /// Name or id of an existing node: short for `filter=covers=NAME`.
    node: Option<String>,
}

/// Lists waivers, including ended ones, newest first unless another sort is requested.
#[utoipa::path(get, path = "/v1/waivers",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "fleet" }))),
    tag = "waivers", params(WaiversQuery), responses(
    (status = 200, description = "One page of waivers", body = CountedPage<Waiver>),
    (status = 404, description = "No such node", body = Problem, content_type = "application/problem+json"),
))]
async fn list_waivers(
    State(app): State<App>,
    _: Actor,
    Query(query): Query<WaiversQuery>,
) -> Result<Answer, Error> {
    let WaiversQuery {
        limit,
        page_token,
        filter,
        sort,
        fields,
        count,
        node,
    } = query;
    let mut conn = app.pool.acquire().await?;
    let mut only = Vec::new();
    if let Some(key) = node {
        let found = db::nodes::find_id(&mut conn, &key).await?;
        let found = found.ok_or_else(|| Error::NotFound(format!("node {key:?}")))?;
        only.push(Term::equal("covers", found.to_string()));
    }
    let now = app.clock.now();
    let query = ListQuery {
        limit,
        page_token,
        filter,
        sort,
        fields,
        count,
    };
    let load = async |conn: &mut PgConnection, ids: &[Uuid]| {
        db::waivers::list_by_id(conn, ids)
            .await?
            .into_iter()
            .map(|row| Ok(object(row, now)))
            .collect()
    };
    paging::build_page(
        &mut conn,
        &filter::waivers_at(now),
        &query,
        only,
        &Sight::new(),
        load,
        |waiver: &Waiver| (waiver.id, ""),
    )
    .await
}

/// Requests a waiver: a gate then counts as passed on a node, a rack or a pool.
///
/// The waiver has no effect until a second person approves the request.
// The verb is checked at the waiver's node, rack or pool.
#[utoipa::path(post, path = "/v1/waivers",
    extensions(("x-muster-access" = json!({ "verb": "waiver.create", "place": "any" })),
        ("x-muster-links" = json!({ "self": ["get_waiver", {"waiver": "$response.body#/id"}], "approval": ["get_approval", {"approval": "$response.body#/approval"}], "end": ["end_waiver", {"waiver": "$response.body#/id"}] }))),
    tag = "waivers", params(("Idempotency-Key" = Option<String>, Header)), request_body = CreateWaiver, responses(
    (status = 201, description = "The requested waiver, with its approval", body = Waiver),
    (status = 404, description = "No such node, rack or pool", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "The reason or the end is missing, the request does not name exactly one place, or no suite of the pool has the gate", body = Problem, content_type = "application/problem+json"),
))]
async fn create_waiver(
    State(app): State<App>,
    actor: Actor,
    idempotency: IdempotencyKey,
    Json(request): Json<CreateWaiver>,
) -> Result<Answer, Error> {
    waivers::request(&app, &actor, idempotency, &request).await
}

/// Returns a waiver, also after its end.
///
/// The ETag is always `"1"`.
#[utoipa::path(get, path = "/v1/waivers/{waiver}",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "waiver={waiver}" }))),
    tag = "waivers", params(("waiver", description = "Id")), responses(
    (status = 200, description = "The waiver", body = Waiver),
    (status = 404, description = "No such waiver", body = Problem, content_type = "application/problem+json"),
))]
async fn get_waiver(
    State(app): State<App>,
    _: Actor,
    Path(key): Path<String>,
) -> Result<Answer, Error> {
    let missing = || Error::NotFound(format!("waiver {key:?}"));
    let id: Uuid = key.parse().map_err(|_| missing())?;
    let row = db::waivers::list_by_id(&mut *app.pool.acquire().await?, &[id])
        .await?
        .pop()
        .ok_or_else(missing)?;
    Ok(Answer::ok(&object(row, app.clock.now()))?.etag(FIRST))
}

/// Ends a waiver before its time.
///
/// Nodes in service stay in service. The ETag is always `"1"`; `If-Match: *` is accepted.
#[utoipa::path(delete, path = "/v1/waivers/{waiver}",
    extensions(("x-muster-access" = json!({ "verb": "waiver.create", "place": "waiver={waiver}" })),
        ("x-muster-links" = json!({ "self": ["get_waiver", {"waiver": "$response.body#/id"}] }))),
    tag = "waivers", params(("waiver", description = "Id"), ("If-Match" = String, Header)), responses(
    (status = 200, description = "The waiver, now ended", body = Waiver),
    (status = 428, description = "If-Match is missing", body = Problem, content_type = "application/problem+json"),
    (status = 404, description = "No such waiver", body = Problem, content_type = "application/problem+json"),
))]
async fn end_waiver(
    State(app): State<App>,
    actor: Actor,
    Path(key): Path<String>,
    preconditions: Preconditions,
) -> Result<Answer, Error> {
    waivers::end(&app, &actor, &key, preconditions).await
}
