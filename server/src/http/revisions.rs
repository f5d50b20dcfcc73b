//! Routes of a pool's revisions.

use axum::extract::State;
use muster_api::object::Page;
use muster_api::problem::Problem;
use muster_api::revisions::{ChooseRevision, PoolRevision, RevisionDiff};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::auth::Actor;
use crate::error::Error;
use crate::http::extract::{Json, Path, Query};
use crate::intents::answer::Answer;
use crate::intents::claims::assign;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::pairs::find_pool;
use crate::intents::revisions::{self, view};

/// The routes of revisions.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list_pool_revisions))
        .routes(routes!(get_pool_revision))
        .routes(routes!(diff_pool_revisions))
        .routes(routes!(promote_revision))
        .routes(routes!(assign_revision))
}

/// Lists the newest hundred revisions of a pool, newest first.
///
/// A change of the pool's image, stack or network profile adds a revision and changes no node.
#[utoipa::path(get, path = "/v1/pools/{pool}/revisions",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "pool={pool}" }))),
    tag = "pools", params(("pool", description = "Name or id")), responses(
    (status = 200, description = "The revisions, without documents", body = Page<PoolRevision>),
    (status = 404, description = "No such pool", body = Problem, content_type = "application/problem+json"),
))]
async fn list_pool_revisions(
    State(app): State<App>,
    _: Actor,
    Path(pool): Path<String>,
) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    let pool = find_pool(&mut conn, &pool).await?;
    Answer::ok(&Page {
        items: view::list(&mut conn, pool.id).await?,
        next_page_token: None,
    })
}

/// Returns one revision with copies of its documents.
#[utoipa::path(get, path = "/v1/pools/{pool}/revisions/{revision}",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "pool={pool}" }))),
    tag = "pools", params(("pool", description = "Name or id"), ("revision" = i32, Path, description = "Number")), responses(
    (status = 200, description = "The revision", body = PoolRevision),
    (status = 404, description = "No such pool or revision", body = Problem, content_type = "application/problem+json"),
))]
async fn get_pool_revision(
    State(app): State<App>,
    _: Actor,
    Path((pool, revision)): Path<(String, i32)>,
) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    let pool = find_pool(&mut conn, &pool).await?;
    Answer::ok(&view::load(&mut conn, pool.id, revision).await?)
}

/// The other revision of a diff.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct DiffQuery {
    /// Number of the revision to compare with. The present revision when absent.
    from: Option<i32>,
}

/// Compares a revision with another: the differing items, and the effect on each node of the pool.
#[utoipa::path(get, path = "/v1/pools/{pool}/revisions/{revision}/diff",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "pool={pool}" }))),
    tag = "pools", params(("pool", description = "Name or id"), ("revision" = i32, Path, description = "Number"), DiffQuery), responses(
    (status = 200, description = "The differences", body = RevisionDiff),
    (status = 404, description = "No such pool or revision", body = Problem, content_type = "application/problem+json"),
))]
async fn diff_pool_revisions(
    State(app): State<App>,
    _: Actor,
    Path((pool, revision)): Path<(String, i32)>,
    Query(query): Query<DiffQuery>,
) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    let pool = find_pool(&mut conn, &pool).await?;
    Answer::ok(&view::compare(&mut conn, &pool, query.from, revision).await?)
}

/// Assigns a revision to all claims of the pool made from now on.
///
/// Nodes of existing claims do not change.
#[utoipa::path(post, path = "/v1/pools/{pool}/actions/promote-revision",
    extensions(("x-muster-access" = json!({ "verb": "pool.write", "place": "pool={pool}" })),
        ("x-muster-links" = json!({ "self": ["get_pool_revision", {"pool": "$request.path.pool", "revision": "$response.body#/number"}] }))),
    tag = "pools", params(("pool", description = "Name or id"),
    ("Idempotency-Key" = Option<String>, Header)), request_body = ChooseRevision, responses(
    (status = 200, description = "The revision, now the present one", body = PoolRevision),
    (status = 404, description = "No such pool", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "The pool has no such revision", body = Problem, content_type = "application/problem+json"),
))]
async fn promote_revision(
    State(app): State<App>,
    actor: Actor,
    Path(pool): Path<String>,
    idempotency: IdempotencyKey,
    Json(body): Json<ChooseRevision>,
) -> Result<Answer, Error> {
    revisions::promote(&app, &actor, &pool, idempotency, &body).await
}

/// Assigns a revision to a claim.
///
/// The node does not change: the next `converge`, or `reinstall` for another image or network,
/// installs the revision.
#[utoipa::path(post, path = "/v1/claims/{claim}/actions/assign-revision",
    extensions(("x-muster-access" = json!({ "verb": "node.converge", "place": "claim={claim}" })),
        ("x-muster-links" = json!({ "self": ["get_claim", {"claim": "$response.body#/name"}] }))),
    tag = "claims", params(("claim", description = "Name or id"),
    ("Idempotency-Key" = Option<String>, Header)), request_body = ChooseRevision, responses(
    (status = 200, description = "The claim, with the revision", body = ref("#/components/schemas/Claim")),
    (status = 404, description = "No such claim", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "The claim has ended, its node is at work, or the rules refuse the stack on the node", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "The pool has no such revision", body = Problem, content_type = "application/problem+json"),
))]
async fn assign_revision(
    State(app): State<App>,
    actor: Actor,
    Path(claim): Path<String>,
    idempotency: IdempotencyKey,
    Json(body): Json<ChooseRevision>,
) -> Result<Answer, Error> {
    assign::assign(&app, &actor, &claim, idempotency, &body).await
}
