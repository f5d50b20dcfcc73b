//! The members of a cluster, for the job adding or removing a node.

use axum::extract::State;
use http::HeaderMap;
use muster_core::ids::JobId;
use muster_core::lifecycle::steps::Step;
use muster_core::wire::members::{AskMembers, ClusterMembers};
use muster_core::wire::orders::readable_members;

use super::Agent;
use super::jobs::{declared_orders, stale};
use crate::app::App;
use crate::db;
use crate::engine::orders;
use crate::error::Error;
use crate::http::extract::{Json, Path};

/// Returns the members only to the holder of such a job, at the current attempt.
pub(super) async fn list(
    State(app): State<App>,
    agent: Agent,
    Path(job): Path<JobId>,
    headers: HeaderMap,
    Json(request): Json<AskMembers>,
) -> Result<Json<ClusterMembers>, Error> {
    let mut tx = app.pool.begin().await?;
    agent.fence(&mut tx, request.epoch, &app).await?;
    let current = db::jobs::lock_current(&mut tx, job, agent.id, request.attempt)
        .await?
        .ok_or_else(stale)?;
    if !matches!(current.step, Step::Admit | Step::Remove) {
        return Err(Error::conflict(
            "other_step",
            format!("The job's step is {}.", current.step),
        ));
    }
    let cluster = db::specs::find_cluster(&mut tx, current.node).await?;
    let cluster = cluster
        .ok_or_else(|| Error::conflict("no_cluster", "The node's pool names no cluster."))?;
    let members = orders::members(&mut tx, &cluster).await?;
    tx.commit().await?;
    Ok(Json(readable_members(declared_orders(&headers), members)))
}
