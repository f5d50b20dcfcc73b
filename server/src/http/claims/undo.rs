//! Taking a release back, for as long as the disks are kept: the claim is bound again, and the node returns to service, through the gates where
//! the scheduler has let it go already.

use axum::extract::State;
use http::StatusCode;
use muster_api::operations::Operation;
use muster_api::problem::Problem;
use muster_core::ids::OperationId;
use sqlx::PgConnection;

use crate::app::App;
use crate::auth::{Actor, Operator};
use crate::db;
use crate::db::claims::ClaimRow;
use crate::db::operations::NewOperation;
use crate::error::Error;
use crate::http::answer::Answer;
use crate::http::extract::Path;
use crate::http::{operations, wake};

/// Takes a release back. The same call again leads to the same operation.
#[utoipa::path(post, path = "/v1/claims/{claim}/undo", tag = "claims", params(("claim", description = "Name or id")), responses(
    (status = 202, description = "The way back is the operation", body = Operation),
    (status = 409, description = "It is not being released, or its disks are not kept any more", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn undo_release(
    State(app): State<App>,
    Operator(actor): Operator,
    Path(key): Path<String>,
) -> Result<Answer, Error> {
    let operation = undo(&app, &actor, &key).await?;
    let operation = operations::load(&mut *app.pool.acquire().await?, operation).await?;
    Ok(Answer::ok(&operation)?.status(StatusCode::ACCEPTED).location(operation.link.clone()))
}

/// Takes it back, as the API and the pages do.
///
/// # Errors
/// As [`undo_release`] answers.
pub async fn undo(app: &App, actor: &Actor, key: &str) -> Result<OperationId, Error> {
    let mut tx = app.pool.begin().await?;
    let missing = || Error::NotFound(format!("claim {key:?}"));
    let found = db::claims::find(&mut tx, key).await?.ok_or_else(missing)?;
    // The node's lock orders releases, undos and turns; the claim is read again under it.
    let node = db::nodes::find_for_update(&mut tx, &found.node.to_string()).await?.ok_or_else(missing)?;
    let claim = db::claims::find(&mut tx, &found.id.to_string()).await?.ok_or_else(missing)?;
    if let ("bound", Some(operation)) = (claim.state.as_str(), claim.operation)
        && operations::load(&mut tx, operation).await?.kind == "undo"
    {
        return Ok(operation);
    }
    let epoch = node.epoch + 1;
    if !db::claims::set_bound_again(&mut tx, claim.id, epoch, app.clock.now()).await? {
        let detail = format!("The claim {} is not being released, or its node is being wiped already.", claim.name);
        return Err(Error::conflict("not_undoable", detail));
    }
    let operation = write(&mut tx, app, actor, &claim, epoch).await?;
    tx.commit().await?;
    wake(app);
    Ok(operation)
}

async fn write(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    claim: &ClaimRow,
    epoch: i64,
) -> Result<OperationId, Error> {
    let now = app.clock.now();
    let operation = OperationId::new();
    if let Some(former) = claim.operation {
        let message = format!("undone (operation {operation})");
        db::operations::end(conn, former, "cancelled", &message, now).await?;
    }
    let new = NewOperation {
        id: operation,
        kind: "undo",
        node: Some(claim.node),
        claim: Some(claim.id),
        actor: actor.name.clone(),
        request_id: actor.request_id.clone(),
        message: format!("the release of {} is undone", claim.name),
        now,
    };
    db::operations::insert(conn, &new).await?;
    db::nodes::set_assignment(conn, claim.node, epoch, operation, now).await?;
    db::lifecycle::drop_wish(conn, claim.node).await?;
    if claim.node_state == "in_service" {
        db::operations::end(conn, operation, "succeeded", "it had not left service yet", now).await?;
    }
    let summary = format!("{} is kept: the release of the claim {} was undone", claim.node_name, claim.name);
    super::create::record(conn, app, actor, claim.node, operation, ("claim.undone", summary), &claim.name).await?;
    Ok(operation)
}
