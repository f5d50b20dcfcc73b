//! What every route that writes has in common: one transaction with the effect and, under the request's key, its answer; then whoever may
//! care is woken. What is done inside, and who may, are the route's own.

use http::StatusCode;
use muster_core::ids::OperationId;
use serde::Serialize;
use sqlx::PgConnection;

use super::answer::Answer;
use super::idempotency::{Begun, IdempotencyKey};
use super::{operations, wake};
use crate::app::App;
use crate::auth::Actor;
use crate::error::Error;

/// What came of a request.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Nothing was written: the next request under the same key is the first.
    Told(Answer),
    /// It is done.
    Done(Answer),
    /// It has begun.
    Begun(OperationId),
}

/// Does all of it or nothing.
///
/// # Errors
/// The effect's own, and then nothing was written; the database's.
pub async fn write<T>(app: &App, effect: impl AsyncFnOnce(&mut PgConnection) -> Result<T, Error>) -> Result<T, Error> {
    let mut tx = app.pool.begin().await?;
    let done = effect(&mut tx).await?;
    tx.commit().await?;
    wake(app);
    Ok(done)
}

/// The same, once per idempotency key: asked again, it is answered again and not done again.
///
/// # Errors
/// As [`write`]; 422 when the key was used for another request.
pub async fn once(
    app: &App,
    actor: &Actor,
    key: IdempotencyKey,
    body: &impl Serialize,
    effect: impl AsyncFnOnce(&mut PgConnection) -> Result<Effect, Error>,
) -> Result<Answer, Error> {
    write(app, async |conn| {
        let once = match key.begin(conn, actor, body).await? {
            Begun::Replay(answer) => return Ok(*answer),
            Begun::First(once) => once,
        };
        let answer = match effect(conn).await? {
            Effect::Told(answer) => return Ok(answer),
            Effect::Done(answer) => answer,
            Effect::Begun(operation) => accepted(conn, operation).await?,
        };
        once.store(conn, &answer, app.clock.now()).await?;
        Ok(answer)
    })
    .await
}

/// 202: what was asked for goes on as an operation.
///
/// # Errors
/// 404, or the database's.
pub async fn accepted(conn: &mut PgConnection, operation: OperationId) -> Result<Answer, Error> {
    let operation = operations::load(conn, operation).await?;
    Ok(Answer::ok(&operation)?.status(StatusCode::ACCEPTED).location(operation.link))
}
