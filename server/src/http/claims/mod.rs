//! Claims. A claim binds a node to a pool until the release.

mod change; // Change of hold and wait_for
mod create; // Binding of a node to a pool
mod release; // Release, with the second person beyond a limit
mod replace; // Replacement of the node
mod undo; // Undo of a release

use std::time::Duration;

use axum::extract::State;
use muster_api::problem::Problem;
use serde::Deserialize;
use sqlx::PgConnection;
use tokio::time::Instant;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::extract::{Path, Query};
use super::paging::{self, ListQuery};
use super::waiting;
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::filter::{CLAIMS, Term};
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::intents::claims::view;

/// The routes of claims.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list_claims, create::create_claim))
        .routes(routes!(
            get_claim,
            change::patch_claim,
            release::delete_claim
        ))
        .routes(routes!(replace::replace_claim))
        .routes(routes!(undo::undo_release))
}

/// Selection of claims.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ClaimsQuery {
    /// The page size: 1 to 1000, 100 when absent.
    limit: Option<u32>,
    /// The token from the previous page.
    page_token: Option<String>,
    /// Filter fields: `name`, `state`, `pool`, `node` and `replica`, for example
    /// `pool=gpu AND node~"r1*"`. `replica` is `true` for claims created for a pool's `replicas`.
    filter: Option<String>,
    /// `name` (the default), `-name`, `created_at` or `-created_at`.
    sort: Option<String>,
    /// Members of each item, for example `status.node,spec.pool`; `id`, `name` and `self` are
    /// always included. All members when absent.
    fields: Option<String>,
    /// `exact`, `estimate` or `none`: the method to count all matching items. `none` when absent.
    count: Option<String>,
    /// The name of a pool: short for `filter=pool=NAME`.
    pool: Option<String>,
}

/// Lists claims with a node, by name unless another sort is requested.
///
/// Filter fields: `name`, `state`, `pool`, `node` and `replica`.
#[utoipa::path(get, path = "/v1/claims",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "any" }))),
    tag = "claims", params(ClaimsQuery), responses(
    (status = 200, description = "One page of claims", body = ref("#/components/schemas/ClaimPage")),
    (status = 422, description = "The filter names a field or value that does not exist", body = Problem, content_type = "application/problem+json"),
))]
async fn list_claims(
    State(app): State<App>,
    actor: Actor,
    Query(query): Query<ClaimsQuery>,
) -> Result<Answer, Error> {
    let only = query
        .pool
        .map(|pool| Term::equal("pool", pool))
        .into_iter()
        .collect();
    let ClaimsQuery {
        limit,
        page_token,
        filter,
        sort,
        fields,
        count,
        ..
    } = query;
    let query = ListQuery {
        limit,
        page_token,
        filter,
        sort,
        fields,
        count,
    };
    let load = async |conn: &mut PgConnection, ids: &[Uuid]| {
        let rows = db::claims::list_by_id(conn, ids).await?;
        view::objects(conn, rows).await
    };
    let mut conn = app.pool.acquire().await?;
    let sight = actor.sight();
    paging::build_page(&mut conn, &CLAIMS, &query, only, &sight, load, |claim| {
        (claim.id, claim.name.as_str())
    })
    .await
}

/// The longest wait.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WaitQuery {
    /// The longest wait for the condition in `spec.wait_for`, at most `55s`. A stuck claim ends the
    /// wait.
    wait: Option<String>,
}

/// Returns one claim: by name while the claim holds a node, by id at any time.
///
/// With `?wait=55s` the answer is sent when the claim is ready or stuck, or at the end of the wait
/// with the current state.
#[utoipa::path(get, path = "/v1/claims/{claim}",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "claim={claim}" }))),
    tag = "claims", params(("claim", description = "Name or id"), WaitQuery), responses(
    (status = 200, description = "The claim; its generation is the ETag", body = ref("#/components/schemas/Claim")),
    (status = 404, description = "No such claim", body = Problem, content_type = "application/problem+json"),
))]
async fn get_claim(
    State(app): State<App>,
    _: Actor,
    Path(claim): Path<String>,
    Query(query): Query<WaitQuery>,
) -> Result<Answer, Error> {
    let deadline = Instant::now()
        + query
            .wait
            .as_deref()
            .map_or(Ok(Duration::ZERO), waiting::parse_duration)?;
    let mut changes = app.wake_readers.subscribe();
    let mut key = claim;
    loop {
        let object = view::load(&mut *app.pool.acquire().await?, &key).await?;
        if object.status.ready || object.status.stuck || Instant::now() >= deadline {
            return Ok(Answer::ok(&object)?.etag(object.generation));
        }
        // Continue by id, because another claim may get the name meanwhile.
        key = object.id.to_string();
        waiting::wait_for_change(&mut changes, deadline).await;
    }
}
