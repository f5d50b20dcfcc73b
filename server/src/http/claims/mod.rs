//! Claims: binding nodes to pools, and giving them back.

pub(in crate::http) mod create; // Binding
pub mod release; // Giving back
pub mod undo; // Taking back what was given back

use axum::extract::State;
use muster_api::claims::ClaimStatus;
use muster_api::object::{Labels, Object};
use muster_api::problem::Problem;
use muster_core::claims::ClaimState;
use serde::Deserialize;
use serde_json::Value;
use sqlx::PgConnection;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::answer::Answer;
use super::extract::{Path, Query};
use super::paging::{self, ListQuery};
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::claims::ClaimRow;
use crate::db::filter::{CLAIMS, Term};
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
    /// 1 to 1000, 100 when absent.
    limit: Option<u32>,
    /// Of the page before.
    page_token: Option<String>,
    /// By `name`, `state`, `pool` and `node`: `pool=gpu AND node~"r1*"`.
    filter: Option<String>,
    /// `name`, `-name`, `created_at` or `-created_at`.
    sort: Option<String>,
    /// Parts of each item, as `status.node,spec.pool`; `id`, `name` and `self` are always there. All of it when absent.
    fields: Option<String>,
    /// `exact`, `estimate` or `none`: how many fit in all. `none` when absent.
    count: Option<String>,
    /// The name of a pool: short for `filter=pool=NAME`.
    pool: Option<String>,
}

/// Claims that hold a node, by name unless another sort is asked for. They are filtered by `name`, `state`, `pool` and `node`.
#[utoipa::path(get, path = "/v1/claims", tag = "claims", params(ClaimsQuery), responses(
    (status = 200, description = "The page", body = ref("#/components/schemas/ClaimPage")),
    (status = 422, description = "The filter names a field or value that does not exist", body = Problem, content_type = "application/problem+json"),
))]
async fn list_claims(State(app): State<App>, actor: Actor, Query(query): Query<ClaimsQuery>) -> Result<Answer, Error> {
    let only = query.pool.map(|pool| Term::equal("pool", pool)).into_iter().collect();
    let ClaimsQuery { limit, page_token, filter, sort, fields, count, .. } = query;
    let query = ListQuery { limit, page_token, filter, sort, fields, count };
    let load = async |conn: &mut PgConnection, ids: &[Uuid]| {
        db::claims::list_by_id(conn, ids).await?.into_iter().map(object).collect()
    };
    let mut conn = app.pool.acquire().await?;
    let only = (only, &actor.sight());
    paging::page(&mut conn, &CLAIMS, &query, only, load, |claim| (claim.id, claim.name.as_str())).await
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
