//! Claims: binding nodes to pools, and giving them back.

pub(in crate::http) mod create; // Binding
pub mod release; // Giving back
pub mod undo; // Taking back what was given back

use axum::extract::State;
use muster_api::claims::ClaimStatus;
use muster_api::object::{Labels, Object, Page};
use muster_api::problem::Problem;
use muster_core::claims::ClaimState;
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::Answer;
use super::extract::{Path, Query};
use super::paging::Position;
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::claims::ClaimRow;
use crate::error::Error;

/// The routes of claims.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list_claims, create::create_claim))
        .routes(routes!(get_claim, release::delete_claim))
        .routes(routes!(undo::undo_release))
}

/// Which claims to list.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ClaimsQuery {
    limit: Option<u32>,
    page_token: Option<String>,
    /// The name of a pool.
    pool: Option<String>,
}

/// Claims that hold a node, by name.
#[utoipa::path(get, path = "/v1/claims", tag = "claims", params(ClaimsQuery), responses(
    (status = 200, description = "The page", body = ref("#/components/schemas/ClaimPage")),
))]
async fn list_claims(State(app): State<App>, _: Actor, Query(query): Query<ClaimsQuery>) -> Result<Answer, Error> {
    let pool = query.pool.as_deref();
    let position = Position::of("claims", query.limit, query.page_token.as_deref(), pool.unwrap_or_default())?;
    let mut conn = app.pool.acquire().await?;
    let mut rows = db::claims::list(&mut conn, pool, &position.after, position.rows()).await?;
    let next_page_token = position.cut(&mut rows, |row| row.name.clone());
    let items = rows.into_iter().map(object).collect::<Result<Vec<_>, _>>()?;
    Answer::ok(&Page { items, next_page_token })
}

/// One claim: by name while it holds a node, by id for ever.
#[utoipa::path(get, path = "/v1/claims/{claim}", tag = "claims", params(("claim", description = "Name or id")), responses(
    (status = 200, description = "The claim; its generation is the ETag", body = ref("#/components/schemas/Claim")),
    (status = 404, description = "There is none", body = Problem, content_type = "application/problem+json"),
))]
async fn get_claim(State(app): State<App>, _: Actor, Path(claim): Path<String>) -> Result<Answer, Error> {
    let row = db::claims::find(&mut *app.pool.acquire().await?, &claim).await?;
    let object = object(row.ok_or_else(|| Error::NotFound(format!("claim {claim:?}")))?)?;
    Ok(Answer::ok(&object)?.etag(object.generation))
}

/// The row as it is answered.
fn object(row: ClaimRow) -> Result<Object<Value, ClaimStatus>, Error> {
    let state = match row.state.as_str() {
        "bound" => ClaimState::Bound,
        "releasing" => ClaimState::Releasing,
        "released" => ClaimState::Released,
        other => return Err(Error::internal(anyhow::anyhow!("claim {}: state {other:?}", row.id))),
    };
    let status = ClaimStatus {
        state,
        node: row.node_name,
        node_state: row.node_state,
        epoch: row.epoch,
        released_at: row.released_at.map(|at| at.to_jiff()),
        undo_until: row.undo_until.filter(|_| state == ClaimState::Releasing).map(|at| at.to_jiff()),
        // Once released, the node is busy with somebody else's.
        operation: row.operation.filter(|_| state != ClaimState::Released).map(|id| id.0),
    };
    Ok(Object {
        id: row.id.0,
        link: format!("/v1/claims/{}", row.name),
        name: row.name.parse().map_err(Error::internal)?,
        labels: Labels::new(),
        annotations: Labels::new(),
        spec: row.spec,
        status,
        generation: row.generation,
        created_at: row.created_at,
        updated_at: row.updated_at,
    })
}
