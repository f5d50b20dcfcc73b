//! Routes of rollouts.

use axum::extract::State;
use muster_api::object::Page;
use muster_api::problem::Problem;
use muster_api::rollouts::{
    AdjustRollout, PlanRollout, Rollout, StartRollout, SteerNode, SteerRollout,
};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::auth::Actor;
use crate::error::Error;
use crate::http::extract::{Json, Path, Query};
use crate::intents::answer::Answer;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::pairs::find_pool;
use crate::intents::rollouts::view::{self, Parts};
use crate::intents::rollouts::{self, Request};

/// The routes of rollouts.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list_rollouts, plan_rollout))
        .routes(routes!(get_rollout))
        .routes(routes!(start_rollout))
        .routes(routes!(halt_rollout))
        .routes(routes!(resume_rollout))
        .routes(routes!(promote_rollout))
        .routes(routes!(adjust_rollout))
        .routes(routes!(skip_rollout_node))
        .routes(routes!(retry_rollout_node))
        .routes(routes!(requeue_rollout_node))
}

/// Selection of rollouts.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct RolloutsQuery {
    /// Name or id of a pool. Absent: the rollouts of all pools.
    pool: Option<String>,
}

/// Lists the newest hundred rollouts, newest first, without nodes.
#[utoipa::path(get, path = "/v1/rollouts",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "any" }))),
    tag = "rollouts", params(RolloutsQuery), responses(
    (status = 200, description = "The rollouts", body = Page<Rollout>),
    (status = 404, description = "No such pool", body = Problem, content_type = "application/problem+json"),
))]
async fn list_rollouts(
    State(app): State<App>,
    actor: Actor,
    Query(query): Query<RolloutsQuery>,
) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    let pool = match &query.pool {
        Some(key) => Some(find_pool(&mut conn, key).await?.id),
        None => None,
    };
    Answer::ok(&Page {
        items: view::list(&mut conn, &actor, pool, app.clock.now()).await?,
        next_page_token: None,
    })
}

/// Plans a rollout of a pool to a revision. No node changes before the start.
///
/// Every claim of the pool moves to the revision, in waves behind a canary. The answer lists each
/// node with the computed effect, and the rule against taking the node. An earlier
/// revision is a way back. A policy that allows reinstalls needs `node.reinstall` too.
#[utoipa::path(post, path = "/v1/rollouts",
    extensions(("x-muster-access" = json!({ "verb": "rollout.plan", "place": "any" })),
        ("x-muster-links" = json!({ "self": ["get_rollout", {"rollout": "$response.body#/name"}] }))),
    tag = "rollouts", params(("Idempotency-Key" = Option<String>, Header)), request_body = PlanRollout, responses(
    (status = 201, description = "The plan; a start names its digest", body = Rollout),
    (status = 404, description = "No such pool", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "No node needs a change, the revision cannot be installed or fits no node, or a budget could never be met", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "The pool has no such revision, or the policy is wrong; `errors` lists each problem", body = Problem, content_type = "application/problem+json"),
))]
async fn plan_rollout(
    State(app): State<App>,
    actor: Actor,
    idempotency: IdempotencyKey,
    Json(body): Json<PlanRollout>,
) -> Result<Answer, Error> {
    rollouts::plan(&app, &actor, idempotency, &body).await
}

/// Returns a rollout with the nodes, the rule in force, and the estimated end.
#[utoipa::path(get, path = "/v1/rollouts/{rollout}",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "rollout={rollout}" }))),
    tag = "rollouts", params(("rollout", description = "Name or id")), responses(
    (status = 200, description = "The rollout", body = Rollout),
    (status = 404, description = "No such rollout", body = Problem, content_type = "application/problem+json"),
))]
async fn get_rollout(
    State(app): State<App>,
    actor: Actor,
    Path(rollout): Path<String>,
) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    let now = app.clock.now();
    Answer::ok(&view::load(&mut conn, &actor, &rollout, now, Parts::Estimate).await?)
}

/// Starts a planned rollout, as confirmed by the digest of the plan.
///
/// A plan with reinstalls needs `node.reinstall` too, and another person than the planner beyond an
/// hourly limit.
#[utoipa::path(post, path = "/v1/rollouts/{rollout}/actions/start",
    extensions(("x-muster-access" = json!({ "verb": "rollout.start", "place": "rollout={rollout}" })),
        ("x-muster-links" = json!({ "self": ["get_rollout", {"rollout": "$response.body#/name"}] }))),
    tag = "rollouts", params(("rollout", description = "Name or id"), ("Idempotency-Key" = Option<String>, Header)),
    request_body = StartRollout, responses(
    (status = 200, description = "The rollout, running", body = Rollout),
    (status = 404, description = "No such rollout", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "Nodes or effects have changed since the plan, the plan has ended, another rollout of the pool is open, or a second person is needed", body = Problem, content_type = "application/problem+json"),
))]
async fn start_rollout(
    State(app): State<App>,
    actor: Actor,
    Path(rollout): Path<String>,
    idempotency: IdempotencyKey,
    Json(body): Json<StartRollout>,
) -> Result<Answer, Error> {
    rollouts::start(Request::new(&app, &actor, &rollout), idempotency, &body).await
}

/// Halts a rollout.
///
/// No further work starts. Changing nodes finish and return to service; only a resume ends the halt.
#[utoipa::path(post, path = "/v1/rollouts/{rollout}/actions/halt",
    extensions(("x-muster-access" = json!({ "verb": "rollout.halt", "place": "rollout={rollout}" })),
        ("x-muster-links" = json!({ "self": ["get_rollout", {"rollout": "$response.body#/name"}] }))),
    tag = "rollouts", params(("rollout", description = "Name or id"), ("Idempotency-Key" = Option<String>, Header)),
    request_body = SteerRollout, responses(
    (status = 200, description = "The rollout", body = Rollout),
    (status = 404, description = "No such rollout", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "The rollout does not run", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "The reason is missing", body = Problem, content_type = "application/problem+json"),
))]
async fn halt_rollout(
    State(app): State<App>,
    actor: Actor,
    Path(rollout): Path<String>,
    idempotency: IdempotencyKey,
    Json(body): Json<SteerRollout>,
) -> Result<Answer, Error> {
    rollouts::halt(Request::new(&app, &actor, &rollout), idempotency, &body).await
}

/// Resumes a halted rollout.
///
/// A standing reason halts the rollout again.
#[utoipa::path(post, path = "/v1/rollouts/{rollout}/actions/resume",
    extensions(("x-muster-access" = json!({ "verb": "rollout.start", "place": "rollout={rollout}" })),
        ("x-muster-links" = json!({ "self": ["get_rollout", {"rollout": "$response.body#/name"}] }))),
    tag = "rollouts", params(("rollout", description = "Name or id"), ("Idempotency-Key" = Option<String>, Header)),
    request_body = SteerRollout, responses(
    (status = 200, description = "The rollout", body = Rollout),
    (status = 404, description = "No such rollout", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "The rollout is not halted", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "The reason is missing", body = Problem, content_type = "application/problem+json"),
))]
async fn resume_rollout(
    State(app): State<App>,
    actor: Actor,
    Path(rollout): Path<String>,
    idempotency: IdempotencyKey,
    Json(body): Json<SteerRollout>,
) -> Result<Answer, Error> {
    rollouts::resume(Request::new(&app, &actor, &rollout), idempotency, &body).await
}

/// Ends the canary and the soak now.
///
/// The waves begin with the next tick.
#[utoipa::path(post, path = "/v1/rollouts/{rollout}/actions/promote",
    extensions(("x-muster-access" = json!({ "verb": "rollout.start", "place": "rollout={rollout}" })),
        ("x-muster-links" = json!({ "self": ["get_rollout", {"rollout": "$response.body#/name"}] }))),
    tag = "rollouts", params(("rollout", description = "Name or id"), ("Idempotency-Key" = Option<String>, Header)),
    request_body = SteerRollout, responses(
    (status = 200, description = "The rollout", body = Rollout),
    (status = 404, description = "No such rollout", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "The rollout has ended", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "The reason is missing", body = Problem, content_type = "application/problem+json"),
))]
async fn promote_rollout(
    State(app): State<App>,
    actor: Actor,
    Path(rollout): Path<String>,
    idempotency: IdempotencyKey,
    Json(body): Json<SteerRollout>,
) -> Result<Answer, Error> {
    rollouts::promote(Request::new(&app, &actor, &rollout), idempotency, &body).await
}

/// Changes budgets, deadlines or the maintenance window of an open rollout.
///
/// The next tick follows the new policy. Canary, waves, order and the allowed effect are fixed by the
/// plan.
#[utoipa::path(post, path = "/v1/rollouts/{rollout}/actions/adjust",
    extensions(("x-muster-access" = json!({ "verb": "rollout.start", "place": "rollout={rollout}" })),
        ("x-muster-links" = json!({ "self": ["get_rollout", {"rollout": "$response.body#/name"}] }))),
    tag = "rollouts", params(("rollout", description = "Name or id"), ("Idempotency-Key" = Option<String>, Header)),
    request_body = AdjustRollout, responses(
    (status = 200, description = "The rollout", body = Rollout),
    (status = 404, description = "No such rollout", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "The rollout was not started, or has ended", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "The policy is wrong, a member is fixed by the plan, or the reason is missing; `errors` lists each problem", body = Problem, content_type = "application/problem+json"),
))]
async fn adjust_rollout(
    State(app): State<App>,
    actor: Actor,
    Path(rollout): Path<String>,
    idempotency: IdempotencyKey,
    Json(body): Json<AdjustRollout>,
) -> Result<Answer, Error> {
    rollouts::adjust(Request::new(&app, &actor, &rollout), idempotency, &body).await
}

/// Leaves out a node not begun yet.
///
/// The node keeps the present revision.
#[utoipa::path(post, path = "/v1/rollouts/{rollout}/actions/skip",
    extensions(("x-muster-access" = json!({ "verb": "rollout.start", "place": "rollout={rollout}" })),
        ("x-muster-links" = json!({ "self": ["get_rollout", {"rollout": "$response.body#/name"}] }))),
    tag = "rollouts", params(("rollout", description = "Name or id"), ("Idempotency-Key" = Option<String>, Header)),
    request_body = SteerNode, responses(
    (status = 200, description = "The rollout", body = Rollout),
    (status = 404, description = "No such rollout", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "The node has begun or ended", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "The reason is missing", body = Problem, content_type = "application/problem+json"),
))]
async fn skip_rollout_node(
    State(app): State<App>,
    actor: Actor,
    Path(rollout): Path<String>,
    idempotency: IdempotencyKey,
    Json(body): Json<SteerNode>,
) -> Result<Answer, Error> {
    rollouts::skip(Request::new(&app, &actor, &rollout), idempotency, &body).await
}

/// Lets the rollout take a failed or skipped node again.
///
/// The node returns to service through a converge or a reinstall and its gates. A failure stays
/// counted over the whole run.
#[utoipa::path(post, path = "/v1/rollouts/{rollout}/actions/retry",
    extensions(("x-muster-access" = json!({ "verb": "rollout.start", "place": "rollout={rollout}" })),
        ("x-muster-links" = json!({ "self": ["get_rollout", {"rollout": "$response.body#/name"}] }))),
    tag = "rollouts", params(("rollout", description = "Name or id"), ("Idempotency-Key" = Option<String>, Header)),
    request_body = SteerNode, responses(
    (status = 200, description = "The rollout", body = Rollout),
    (status = 404, description = "No such rollout", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "The node is neither failed nor skipped", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "The reason is missing", body = Problem, content_type = "application/problem+json"),
))]
async fn retry_rollout_node(
    State(app): State<App>,
    actor: Actor,
    Path(rollout): Path<String>,
    idempotency: IdempotencyKey,
    Json(body): Json<SteerNode>,
) -> Result<Answer, Error> {
    rollouts::retry(Request::new(&app, &actor, &rollout), idempotency, &body).await
}

/// Requeues the jobs of a waiting node.
///
/// The rollout closes the node in its turn, and the scheduler requeues the node's jobs instead of
/// running them to their end. The agreement ends with the wait. A job that the scheduler cannot requeue
/// keeps the node open (`cannot_requeue`).
#[utoipa::path(post, path = "/v1/rollouts/{rollout}/actions/requeue",
    extensions(("x-muster-access" = json!({ "verb": "rollout.start", "place": "rollout={rollout}" })),
        ("x-muster-links" = json!({ "self": ["get_rollout", {"rollout": "$response.body#/name"}] }))),
    tag = "rollouts", params(("rollout", description = "Name or id"), ("Idempotency-Key" = Option<String>, Header)),
    request_body = SteerNode, responses(
    (status = 200, description = "The rollout", body = Rollout),
    (status = 404, description = "No such rollout", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "The node does not wait", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "The reason is missing", body = Problem, content_type = "application/problem+json"),
))]
async fn requeue_rollout_node(
    State(app): State<App>,
    actor: Actor,
    Path(rollout): Path<String>,
    idempotency: IdempotencyKey,
    Json(body): Json<SteerNode>,
) -> Result<Answer, Error> {
    rollouts::requeue(Request::new(&app, &actor, &rollout), idempotency, &body).await
}
