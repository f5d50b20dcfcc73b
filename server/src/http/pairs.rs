//! Routes of runs of pairs.

use axum::extract::State;
use muster_api::object::Page;
use muster_api::operations::Operation;
use muster_api::pairs::{PairRun, RunPairs};
use muster_api::problem::Problem;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::error::Error;
use crate::http::extract::{Json, Path};
use crate::intents::answer::Answer;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::pairs::{self, find_pool, view};

/// The number of runs in a list.
const NEWEST: i64 = 20;

/// The routes of pairs.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(run_pairs))
        .routes(routes!(list_pair_runs))
        .routes(routes!(get_pair_run))
}

/// Measures idle nodes of a pool against each other, by turns: everybody with a few others, then each end that failed with known-good partners, until what
/// failed can be blamed on a node or on the path between two. The nodes stay in service; their scheduler starts no job on them meanwhile. A node
/// with jobs is left out, with the reason. An end that is blamed is recovered or quarantined as one that fails its sweep; a path is only shown.
#[utoipa::path(post, path = "/v1/pools/{pool}/actions/run-pairs", tag = "pools", params(("pool", description = "Name or id"),
    ("Idempotency-Key" = Option<String>, Header)), request_body = RunPairs, responses(
    (status = 202, description = "Begun; Location leads to the operation, whose id is the run's", body = Operation),
    (status = 404, description = "No such pool", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "Its pairs are being measured already, or fewer than two of its nodes are idle", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "The suite has no pair gate, or takes too long", body = Problem, content_type = "application/problem+json"),
))]
async fn run_pairs(
    State(app): State<App>,
    actor: Actor,
    Path(pool): Path<String>,
    idempotency: IdempotencyKey,
    Json(body): Json<RunPairs>,
) -> Result<Answer, Error> {
    pairs::run(&app, &actor, &pool, idempotency, &body).await
}

/// Runs of a pool's pairs, newest first; the first may be under way.
#[utoipa::path(get, path = "/v1/pools/{pool}/pair-runs", tag = "pools", params(("pool", description = "Name or id")), responses(
    (status = 200, description = "The newest twenty, without what each pair measured", body = Page<PairRun>),
    (status = 404, description = "No such pool", body = Problem, content_type = "application/problem+json"),
))]
async fn list_pair_runs(
    State(app): State<App>,
    _: Actor,
    Path(pool): Path<String>,
) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    let pool = find_pool(&mut conn, &pool).await?;
    let mut items = Vec::new();
    for row in db::pairs::runs::list(&mut conn, pool.id, NEWEST).await? {
        items.push(view::load_run(&mut conn, &pool.name, row).await?);
    }
    Answer::ok(&Page {
        items,
        next_page_token: None,
    })
}

/// One run, with what each pair measured and its evidence.
#[utoipa::path(get, path = "/v1/pools/{pool}/pair-runs/{run}", tag = "pools", params(("pool", description = "Name or id"),
    ("run", description = "Id")), responses(
    (status = 200, description = "The run", body = PairRun),
    (status = 404, description = "No such pool or run", body = Problem, content_type = "application/problem+json"),
))]
async fn get_pair_run(
    State(app): State<App>,
    _: Actor,
    Path((pool, key)): Path<(String, String)>,
) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    let pool = find_pool(&mut conn, &pool).await?;
    let missing = || Error::NotFound(format!("run {key:?} of the pairs of {}", pool.name));
    let id: Uuid = key.parse().map_err(|_| missing())?;
    let row = db::pairs::runs::find(&mut conn, pool.id, id)
        .await?
        .ok_or_else(missing)?;
    let found = row.verdicts.as_ref().map(|json| json.0.clone());
    let run = view::load_run(&mut conn, &pool.name, row).await?;
    let pairs = view::load_pairs(&mut conn, &run, found.as_ref()).await?;
    Answer::ok(&PairRun {
        pairs: Some(pairs),
        ..run
    })
}
