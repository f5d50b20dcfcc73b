//! Routes of runs of pairs.

use axum::extract::State;
use muster_api::object::Page;
use muster_api::operations::Operation;
use muster_api::pairs::{MeasuredPair, PairRun, RunPairs};
use muster_api::problem::Problem;
use muster_core::gates::GateResult;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::app::App;
use crate::auth::access::Named;
use crate::auth::{Actor, raw};
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

/// Measures idle nodes of a pool against each other.
///
/// In the first rounds each node is measured with a few others. Then each failed end is measured
/// with known-good partners, until a failure can be attributed to a node or to the path between two
/// nodes. The nodes stay in service, and their scheduler starts no job on them during the run.
/// Nodes with jobs are left out, with the reason. A blamed node is recovered or quarantined like a
/// node with a failed sweep. A blamed path is only reported.
#[utoipa::path(post, path = "/v1/pools/{pool}/actions/run-pairs",
    extensions(("x-muster-access" = json!({ "verb": "pool.run-pairs", "place": "pool={pool}" })),
        ("x-muster-links" = json!({ "run": ["get_pair_run", {"pool": "$request.path.pool", "run": "$response.body#/id"}] }))),
    tag = "pools", params(("pool", description = "Name or id"),
    ("Idempotency-Key" = Option<String>, Header)), request_body = RunPairs, responses(
    (status = 202, description = "The run has begun; Location leads to the operation, which has the same id as the run", body = Operation),
    (status = 404, description = "No such pool", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "Another run of the pool is in progress, or fewer than two nodes are idle", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "The suite has no pair gate or takes too long", body = Problem, content_type = "application/problem+json"),
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

/// Lists runs of a pool's pairs, newest first.
///
/// The first run may be in progress.
#[utoipa::path(get, path = "/v1/pools/{pool}/pair-runs",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "pool={pool}" }))),
    tag = "pools", params(("pool", description = "Name or id")), responses(
    (status = 200, description = "The newest twenty runs, without the results of each pair", body = Page<PairRun>),
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

/// Returns one run, with the results and the evidence of each pair.
///
/// For a caller without `node.evidence` at the pool, the evidence holds no output of tools.
#[utoipa::path(get, path = "/v1/pools/{pool}/pair-runs/{run}",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "pool={pool}" }))),
    tag = "pools", params(("pool", description = "Name or id"),
    ("run", description = "Id")), responses(
    (status = 200, description = "The run", body = PairRun),
    (status = 404, description = "No such pool or run", body = Problem, content_type = "application/problem+json"),
))]
async fn get_pair_run(
    State(app): State<App>,
    actor: Actor,
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
    let mut pairs = view::load_pairs(&mut conn, &run, found.as_ref()).await?;
    let (kind, key) = ("pool", pool.name.as_str());
    let now = app.clock.now();
    let is_raw = actor
        .may_read_raw(&mut conn, raw::EVIDENCE, Named { kind, key }, now)
        .await?;
    if !is_raw {
        hide_evidence(&mut pairs);
    }
    Answer::ok(&PairRun {
        pairs: Some(pairs),
        evidence_hidden: !is_raw,
        ..run
    })
}

/// Removes the output of tools from the results of pairs.
fn hide_evidence(pairs: &mut [MeasuredPair]) {
    for way in pairs.iter_mut().flat_map(|pair| &mut pair.ways) {
        let results = std::mem::take(&mut way.results);
        way.results = results.into_iter().map(GateResult::without_text).collect();
    }
}
