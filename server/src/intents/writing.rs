//! The one transaction of a request: the effect and, under the request's idempotency key, its answer. Readers and agents are woken after the commit.
//! The intents check what the actor may do, and what the request means.

use http::StatusCode;
use muster_api::nodes::NodePlan;
use muster_core::effects::{self, Effect as Cost};
use muster_core::ids::{NodeId, OperationId};
use muster_core::lifecycle::state::{State, Wish};
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

/// What came of a request.
#[derive(Debug)]
pub enum Effect {
    /// Nothing was written: the next request under the same key is the first.
    Told(Answer),
    /// It is done.
    Done(Answer),
    /// It is done, and the answer holds a secret.
    Secret(Answer),
    /// It has begun.
    Begun(OperationId),
    /// It waits for somebody: what was written stays, and the answer is this refusal. The next request under the same key is the first.
    Held(Error),
}

/// Does all of it or nothing; and nothing where it was only asked what it would do, after everything that could refuse it has had its say. A refusal
/// because something else has what was wanted says what that is.
///
/// # Errors
/// The effect's own, and then nothing was written; the database's.
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
            return Err(taken::named(&mut *app.pool.acquire().await?, actor, error).await);
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

/// Does all of it, and takes it back: what it would have done.
///
/// # Errors
/// The effect's own; the database's.
pub async fn tell<T>(
    app: &App,
    effect: impl AsyncFnOnce(&mut PgConnection) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut tx = app.pool.begin().await?;
    let told = effect(&mut tx).await?;
    tx.rollback().await?;
    Ok(told)
}

/// As [`write()`], once per idempotency key: asked again, it is answered again and not done again.
///
/// # Errors
/// As [`write()`]; 422 when the key was used for another request.
pub async fn once(
    app: &App,
    actor: &Actor,
    key: IdempotencyKey,
    body: &impl Serialize,
    effect: impl AsyncFnOnce(&mut PgConnection) -> Result<Effect, Error>,
) -> Result<Answer, Error> {
    // Only told: no answer under the key yet, and none that was given before.
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
            Effect::Begun(operation) => accepted(conn, operation).await?,
        };
        once.store(conn, &answer, app.clock.now()).await?;
        Ok(Ok(answer))
    });
    written.await?
}

/// 202: what was asked for goes on as an operation. 200 with the plan of it where that is all that was asked for.
///
/// # Errors
/// 404, or the database's.
pub async fn accepted(conn: &mut PgConnection, operation: OperationId) -> Result<Answer, Error> {
    if dry_run::asked() {
        return Answer::ok(&plan(conn, operation).await?);
    }
    let operation = view::load(conn, operation).await?;
    Ok(Answer::ok(&operation)?
        .status(StatusCode::ACCEPTED)
        .location(operation.link))
}

/// What an operation that was just written down would do to its node.
async fn plan(conn: &mut PgConnection, operation: OperationId) -> Result<NodePlan, Error> {
    let operation = view::load(conn, operation).await?;
    let node: Vec<NodeId> = operation
        .target
        .iter()
        .map(|target| NodeId(target.id))
        .collect();
    let row = db::nodes::list(conn, &node).await?.pop();
    let state = |word: Option<&str>| word.and_then(|word| word.parse::<State>().ok());
    let now = state(row.as_ref().map(|row| row.state.as_str()));
    let failed = state(row.as_ref().and_then(|row| row.failed_phase.as_deref()));
    let effect = match (operation.kind.as_str(), operation.kind.parse::<Wish>(), now) {
        ("claim", _, _) => Cost::Reinstall,
        (_, Ok(wish), Some(now)) => effects::of_wish(wish, now, failed),
        // Kept, renamed, moved: nothing is done to the machine but to let it back in.
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
