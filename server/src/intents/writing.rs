//! The single transaction of a request: the effect and, under the request's idempotency key, the
//! answer. Readers and agents are woken after the commit. Permissions and the meaning of a request
//! are checked by the intents.

use http::StatusCode;
use muster_api::nodes::NodePlan;
use muster_core::effects::{self, Effect as Cost};
use muster_core::ids::{NodeId, OperationId};
use muster_core::lifecycle::state::Action;
use serde::Serialize;
use sqlx::PgConnection;

use crate::app::{App, wake};
use crate::auth::Actor;
use crate::db;
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::intents::idempotency::{Begun, IdempotencyKey};
use crate::intents::operations::view;
use crate::intents::{dry_run, taken};

/// The result of a request.
#[derive(Debug)]
pub enum Effect {
    /// A plan or another answer without a write. The answer is not stored under the key.
    Told(Answer),
    /// The request is done.
    Done(Answer),
    /// The request is done, and the answer holds a secret.
    Secret(Answer),
    /// The request has begun an operation.
    Begun(OperationId),
    /// The request waits for a second person. The written rows are committed, and the answer is
    /// this refusal. The refusal is not stored under the key.
    Held(Error),
}

/// Runs `effect` in one transaction: commits all rows, or none after an error. A dry run is rolled
/// back after all checks and constraints have passed. A conflict with a taken key names the holder.
///
/// # Errors
/// The errors of the effect, after the rollback; the errors of the database.
pub async fn write<T>(
    app: &App,
    actor: &Actor,
    effect: impl AsyncFnOnce(&mut PgConnection) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut tx = app.pool.begin().await?;
    let done = match effect(&mut tx).await {
        Ok(done) => done,
        Err(error) => {
            tx.rollback().await?;
            return Err(taken::name_holder(&mut *app.pool.acquire().await?, actor, error).await);
        }
    };
    if dry_run::asked() {
        db::check_constraints(&mut tx).await?;
        tx.rollback().await?;
        return Ok(done);
    }
    tx.commit().await?;
    wake(app);
    Ok(done)
}

/// Runs `effect` and rolls back. Returns the result as a plan.
///
/// # Errors
/// The errors of the effect; the errors of the database.
pub async fn plan_effect<T>(
    app: &App,
    effect: impl AsyncFnOnce(&mut PgConnection) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut tx = app.pool.begin().await?;
    let told = effect(&mut tx).await?;
    tx.rollback().await?;
    Ok(told)
}

/// Runs `effect` like [`write()`], once per idempotency key. A repeated request receives the stored
/// answer, without a second effect.
///
/// # Errors
/// The errors of [`write()`]; 422 when the key was used for another request.
pub async fn once(
    app: &App,
    actor: &Actor,
    key: IdempotencyKey,
    body: &impl Serialize,
    effect: impl AsyncFnOnce(&mut PgConnection) -> Result<Effect, Error>,
) -> Result<Answer, Error> {
    // A dry run neither stores an answer under the key nor replays a stored answer.
    let key = if dry_run::asked() {
        IdempotencyKey::none()
    } else {
        key
    };
    let written = write(app, actor, async |conn| {
        let once = match key.begin(app, conn, actor, body).await? {
            Begun::Replay(answer) => return Ok(Ok(*answer)),
            Begun::First(once) => once,
        };
        let answer = match effect(conn).await? {
            Effect::Told(answer) => return Ok(Ok(answer)),
            Effect::Held(refusal) => return Ok(Err(refusal)),
            Effect::Done(answer) => answer,
            Effect::Secret(answer) => {
                once.store_sealed(app, conn, &answer).await?;
                return Ok(Ok(answer));
            }
            Effect::Begun(operation) => answer_accepted(conn, operation).await?,
        };
        once.store(conn, &answer, app.clock.now()).await?;
        Ok(Ok(answer))
    });
    written.await?
}

/// 202 with the operation of the requested work. A dry run returns 200 with the plan.
///
/// # Errors
/// 404, or the error of the database.
pub async fn answer_accepted(
    conn: &mut PgConnection,
    operation: OperationId,
) -> Result<Answer, Error> {
    if dry_run::asked() {
        return Answer::ok(&plan(conn, operation).await?);
    }
    let operation = view::load(conn, operation).await?;
    Ok(Answer::ok(&operation)?
        .status(StatusCode::ACCEPTED)
        .location(operation.link))
}

/// The plan of a newly written operation: the effect on the node.
async fn plan(conn: &mut PgConnection, operation: OperationId) -> Result<NodePlan, Error> {
    let operation = view::load(conn, operation).await?;
    let node: Vec<NodeId> = operation
        .target
        .iter()
        .map(|target| NodeId(target.id))
        .collect();
    let row = db::nodes::list(conn, &node).await?.pop();
    let now = row.as_ref().map(|row| row.state);
    let failed = row.and_then(|row| row.failed_phase);
    let effect = match (
        operation.kind.as_str(),
        operation.kind.parse::<Action>(),
        now,
    ) {
        ("claim", _, _) => Cost::Reinstall,
        (_, Ok(action), Some(now)) => effects::of_action(action, now, failed),
        // Keep, rename, move: the machine is unchanged, except for the return to its scheduler.
        _ => Cost::InPlace,
    };
    let name = operation
        .target
        .as_ref()
        .map_or("", |target| target.name.as_str());
    let told = if operation.progress.message.is_empty() {
        &operation.kind
    } else {
        &operation.progress.message
    };
    let change = if name.is_empty() {
        told.clone()
    } else {
        format!("{name}: {told}")
    };
    Ok(NodePlan {
        effect: effect.to_string(),
        changes: vec![change],
        blockers: Vec::new(),
    })
}
