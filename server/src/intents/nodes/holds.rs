//! Legal holds of nodes, as requested by the API. An administrator on the server's host has the
//! same acts (`muster admin hold-records`).

use http::StatusCode;
use muster_api::holds::{HoldRecords, NodeHold};
use muster_api::tokens::FIRST;
use serde_json::json;
use sqlx::PgConnection;

use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::legal_holds::HeldRow;
use crate::db::nodes::LockedNode;
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::nodes::write;
use crate::intents::preconditions::Preconditions;
use crate::intents::writing::{self, Effect};

/// Longest reason, in bytes.
const REASON: usize = 500;

/// Returns the legal hold of a node.
///
/// # Errors
/// 404 for a node without a hold; the errors of the database.
pub async fn show(app: &App, key: &str) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    let node = db::nodes::find_id(&mut conn, key).await?;
    let node = node.ok_or_else(|| Error::NotFound(format!("node {key:?}")))?;
    let held = db::legal_holds::find(&mut conn, node).await?;
    Ok(Answer::ok(&describe(held.ok_or_else(|| missing(key))?))?.etag(FIRST))
}

/// Puts a node under a legal hold.
///
/// # Errors
/// 404, 409 for a discovered machine without an act of a person, 422.
pub async fn hold(
    app: &App,
    actor: &Actor,
    key: &str,
    idempotency: IdempotencyKey,
    body: &HoldRecords,
) -> Result<Answer, Error> {
    let reason = read_reason("/reason", Some(body.reason.as_str()))?;
    writing::once(app, actor, idempotency, body, async |conn| {
        // The lock of removals comes before the lock of the node, as on the server's host. A wait
        // for a removal then blocks no other work on the node.
        db::retention::lock(conn).await?;
        let node = write::find(conn, key).await?;
        // The server forgets such machines after a time.
        if db::legal_holds::find_node(conn, &node.name).await?.is_none() {
            let detail = format!(
                "{} is a discovered machine that no person has acted on; accept or reject it first.",
                node.name
            );
            return Err(Error::conflict("discovered", detail));
        }
        let now = app.clock.now();
        let is_new =
            db::legal_holds::insert(conn, node.id, reason, actor.author(), now).await?;
        if is_new {
            let summary = format!(
                "the records of {} are kept by a legal hold: {reason}",
                node.name
            );
            let told = Told { kind: "records.held", reason, summary };
            record(app, conn, actor, &node, told).await?;
        }
        let held = db::legal_holds::find(conn, node.id).await?;
        let held = describe(held.ok_or_else(|| missing(key))?);
        let answer = Answer::ok(&held)?.etag(FIRST);
        Ok(Effect::Done(match is_new {
            true => answer
                .status(StatusCode::CREATED)
                .location(format!("/v1/nodes/{}/hold", node.name)),
            false => answer,
        }))
    })
    .await
}

/// Ends the legal hold of a node.
///
/// # Errors
/// 404 for a node without a hold, 412, 422 without a reason, 428.
pub async fn release(
    app: &App,
    actor: &Actor,
    key: &str,
    preconditions: Preconditions,
    reason: Option<&str>,
) -> Result<(), Error> {
    writing::write(app, actor, async |conn| {
        preconditions.allow_removal(FIRST)?;
        let reason = read_reason("reason", reason)?;
        let node = write::find(conn, key).await?;
        if !db::legal_holds::delete(conn, node.id).await? {
            return Err(missing(key));
        }
        let summary = format!("the legal hold of {} is over: {reason}", node.name);
        let told = Told {
            kind: "records.released",
            reason,
            summary,
        };
        record(app, conn, actor, &node, told).await
    })
    .await
}

/// The event of a hold.
struct Told<'a> {
    kind: &'static str,
    reason: &'a str,
    summary: String,
}

async fn record(
    app: &App,
    conn: &mut PgConnection,
    actor: &Actor,
    node: &LockedNode,
    told: Told<'_>,
) -> Result<(), Error> {
    let event = actor.event(app.clock.now(), told.kind, Some(node.id), told.summary);
    db::events::insert(conn, event.with(json!({ "reason": told.reason }))).await
}

fn read_reason<'a>(pointer: &'static str, reason: Option<&'a str>) -> Result<&'a str, Error> {
    let reason = reason.unwrap_or_default().trim();
    match (1..=REASON).contains(&reason.len()) {
        true => Ok(reason),
        false => {
            let detail = format!("Write the reason, in at most {REASON} bytes: `case 2026-114`.");
            Err(Error::unprocessable(pointer, "required", detail))
        }
    }
}

fn missing(key: &str) -> Error {
    Error::NotFound(format!("legal hold of node {key:?}"))
}

fn describe(row: HeldRow) -> NodeHold {
    NodeHold {
        node: row.node,
        reason: row.reason,
        held_by: row.held_by,
        held_at: row.held_at,
    }
}
