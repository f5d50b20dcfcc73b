//! Giving a node back: drain, out of the scheduler, wipe, inspection. Deleting the claim starts it; the claim ends when the node is clean.

use axum::extract::State;
use http::StatusCode;
use muster_api::operations::Operation;
use muster_api::problem::Problem;
use muster_core::ids::OperationId;
use muster_core::lifecycle::state::Wish;
use sqlx::PgConnection;

use crate::app::App;
use crate::auth::{Actor, Operator};
use crate::db;
use crate::db::claims::ClaimRow;
use crate::db::operations::NewOperation;
use crate::error::Error;
use crate::http::answer::Answer;
use crate::http::extract::Path;
use crate::http::preconditions::Preconditions;
use crate::http::{operations, wake};

/// Releases a node. The same call again leads to the same operation.
#[utoipa::path(delete, path = "/v1/claims/{claim}", tag = "claims",
    params(("claim", description = "Name or id"), ("If-Match" = String, Header)), responses(
    (status = 202, description = "The release is the operation", body = Operation),
    (status = 409, description = "The node is protected, or the claim is over", body = Problem, content_type = "application/problem+json"),
    (status = 428, description = "If-Match is missing", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn delete_claim(
    State(app): State<App>,
    Operator(actor): Operator,
    Path(key): Path<String>,
    preconditions: Preconditions,
) -> Result<Answer, Error> {
    let mut tx = app.pool.begin().await?;
    let operation = begin(&mut tx, &app, &actor, &key, preconditions).await?;
    let operation = operations::load(&mut tx, operation).await?;
    let answer = Answer::ok(&operation)?.status(StatusCode::ACCEPTED).location(operation.link.clone());
    tx.commit().await?;
    wake(&app);
    Ok(answer)
}

/// Releases as a page does, which says the generation it showed.
///
/// # Errors
/// As [`delete_claim`] answers.
pub async fn release_claim(app: &App, actor: &Actor, key: &str, generation: i64) -> Result<OperationId, Error> {
    let mut tx = app.pool.begin().await?;
    let operation = begin(&mut tx, app, actor, key, Preconditions::generation(generation)).await?;
    tx.commit().await?;
    wake(app);
    Ok(operation)
}

async fn begin(
    tx: &mut PgConnection,
    app: &App,
    actor: &Actor,
    key: &str,
    preconditions: Preconditions,
) -> Result<OperationId, Error> {
    let missing = || Error::NotFound(format!("claim {key:?}"));
    let found = db::claims::find(tx, key).await?.ok_or_else(missing)?;
    // The node's lock orders releases; the claim is read again under it.
    let node = db::nodes::find_for_update(tx, &found.node.to_string()).await?.ok_or_else(missing)?;
    let claim = db::claims::find(tx, &found.id.to_string()).await?.ok_or_else(missing)?;
    preconditions.allow_removal(claim.generation)?;
    if node.protected {
        return Err(Error::conflict("protected", format!("{} is protected; clear that first.", node.name)));
    }
    match (claim.state.as_str(), claim.operation) {
        ("bound", former) => release(tx, app, actor, &claim, node.epoch + 1, former).await,
        ("releasing", Some(operation)) => Ok(operation),
        _ => Err(Error::conflict("released", format!("The claim {} is over.", claim.name))),
    }
}

async fn release(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    claim: &ClaimRow,
    epoch: i64,
    former: Option<OperationId>,
) -> Result<OperationId, Error> {
    let now = app.clock.now();
    let operation = OperationId::new();
    if let Some(former) = former {
        let message = format!("overtaken by release (operation {operation})");
        db::operations::end(conn, former, "cancelled", &message, now).await?;
    }
    if !db::claims::set_releasing(conn, claim.id, epoch, now).await? {
        return Err(Error::conflict("released", format!("The claim {} is over.", claim.name)));
    }
    let new = NewOperation {
        id: operation,
        kind: "release",
        node: Some(claim.node),
        claim: Some(claim.id),
        actor: actor.name.clone(),
        request_id: actor.request_id.clone(),
        message: format!("released by deleting the claim {}", claim.name),
        now,
    };
    db::operations::insert(conn, &new).await?;
    db::nodes::set_assignment(conn, claim.node, epoch, operation, now).await?;
    db::nodes::set_wish(conn, claim.node, Wish::Release, None, operation, now).await?;
    let summary = format!("{} is released: the claim {} was deleted", claim.node_name, claim.name);
    super::create::record(conn, app, actor, claim.node, operation, ("claim.releasing", summary), &claim.name).await?;
    Ok(operation)
}
