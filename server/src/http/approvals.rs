//! A second person for what one person may not do alone: releases beyond the hourly limit, and waivers of gates.

use axum::extract::State;
use jiff::{SignedDuration, Timestamp};
use muster_api::approvals::{Approval, ApprovalState};
use muster_api::object::Page;
use muster_api::plans::ReleaseLimit;
use muster_api::pools::PoolSpec;
use muster_api::problem::Problem;
use muster_core::ids::{ClaimId, ObjectId};
use serde_json::json;
use sqlx::PgConnection;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::answer::Answer;
use super::claims::release;
use super::extract::Path;
use super::idempotency::IdempotencyKey;
use super::waivers;
use super::writing::{self, Effect};
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::approvals::{ApprovalRow, NewApproval};
use crate::db::claims::ClaimRow;
use crate::db::events::NewEvent;
use crate::db::filter;
use crate::error::Error;

const HOUR: SignedDuration = SignedDuration::from_hours(1);
/// How long a request waits.
const WAITS: SignedDuration = SignedDuration::from_hours(24);

/// The routes of approvals.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list_approvals))
        .routes(routes!(grant_approval))
        .routes(routes!(deny_approval))
}

/// What waits for a second person, oldest first.
#[utoipa::path(get, path = "/v1/approvals", tag = "approvals", responses(
    (status = 200, description = "All that are open", body = Page<Approval>),
))]
async fn list_approvals(State(app): State<App>, actor: Actor) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    // What is open is of a claim that holds its node: it lies where that does.
    let nodes = filter::seen(&mut conn, &filter::NODES, &actor.sight()).await?;
    let rows = db::approvals::list_open(&mut conn, nodes.as_deref(), app.clock.now()).await?;
    let items = rows.into_iter().map(object).collect::<Result<Vec<_>, _>>()?;
    Answer::ok(&Page { items, next_page_token: None })
}

/// Agrees to what another person asked for, and begins it.
#[utoipa::path(post, path = "/v1/approvals/{approval}/approve", tag = "approvals",
    params(("approval", description = "Id"), ("Idempotency-Key" = Option<String>, Header)), responses(
    (status = 200, description = "It has begun, or counts from now on", body = Approval),
    (status = 403, description = "Asked for by the same person", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "It is decided, or too old", body = Problem, content_type = "application/problem+json"),
))]
async fn grant_approval(
    State(app): State<App>,
    actor: Actor,
    Path(id): Path<Uuid>,
    idempotency: IdempotencyKey,
) -> Result<Answer, Error> {
    decide(&app, &actor, id, Decision::Approve, idempotency).await
}

/// Turns down what was asked for.
#[utoipa::path(post, path = "/v1/approvals/{approval}/deny", tag = "approvals",
    params(("approval", description = "Id"), ("Idempotency-Key" = Option<String>, Header)), responses(
    (status = 200, description = "It will not be done", body = Approval),
    (status = 409, description = "It is decided, or too old", body = Problem, content_type = "application/problem+json"),
))]
async fn deny_approval(
    State(app): State<App>,
    actor: Actor,
    Path(id): Path<Uuid>,
    idempotency: IdempotencyKey,
) -> Result<Answer, Error> {
    decide(&app, &actor, id, Decision::Deny, idempotency).await
}

/// What a second person says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Approve,
    Deny,
}

/// Decides, as the API and the pages do. Who asked may turn it down, and not agree.
///
/// # Errors
/// 403 to the person who asked, 404, 409 when it is decided or too old; what a release can end with.
pub async fn decide(
    app: &App,
    actor: &Actor,
    id: Uuid,
    decision: Decision,
    idempotency: IdempotencyKey,
) -> Result<Answer, Error> {
    let missing = || Error::NotFound(format!("approval {id}"));
    writing::once(app, actor, idempotency, &(), async |conn| {
        let subject = db::approvals::find_subject(conn, id).await?.ok_or_else(missing)?;
        match (subject.claim, subject.waiver) {
            (Some(claim), _) => decide_release(conn, app, actor, (id, claim), decision).await?,
            (None, Some(waiver)) => decide_waiver(conn, app, actor, (id, waiver), decision).await?,
            (None, None) => return Err(missing()),
        }
        let decided = db::approvals::lock(conn, id).await?.ok_or_else(missing)?;
        Answer::ok(&object(decided)?).map(Effect::Done)
    })
    .await
}

/// The request, locked, if this one may decide so.
async fn open(
    conn: &mut PgConnection,
    actor: &Actor,
    id: Uuid,
    decision: Decision,
    now: Timestamp,
) -> Result<ApprovalRow, Error> {
    let row = db::approvals::lock(conn, id).await?.ok_or_else(|| Error::NotFound(format!("approval {id}")))?;
    if row.state != "open" || row.expires_at <= now {
        return Err(Error::conflict("decided", "It was decided, or waited too long; look again."));
    }
    if decision == Decision::Approve && actor.person == row.person {
        return Err(Error::Forbidden(format!("{} asked for this; somebody else must agree.", row.requested_by)));
    }
    Ok(row)
}

async fn decide_release(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    (id, claim): (Uuid, ClaimId),
    decision: Decision,
) -> Result<(), Error> {
    let now = app.clock.now();
    let (node, claim) = release::locked(conn, &claim.to_string()).await?;
    let row = open(conn, actor, id, decision, now).await?;
    let (ended, kind, word) = match decision {
        Decision::Approve => {
            let begun = release::approved(conn, app, (actor, &row.requested_by), &node, &claim).await?;
            (("approved", Some(begun)), "approval.approved", "agreed to")
        }
        Decision::Deny => (("denied", None), "approval.denied", "turned down"),
    };
    db::approvals::decide(conn, id, &actor.name, ended, now).await?;
    let told = format!("{} {word} the release of {} that {} asked for", actor.name, claim.node_name, row.requested_by);
    db::events::insert(conn, event(app, actor, (kind, told), &claim)).await
}

async fn decide_waiver(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    (id, waiver): (Uuid, Uuid),
    decision: Decision,
) -> Result<(), Error> {
    let now = app.clock.now();
    let missing = || Error::NotFound(format!("waiver {waiver}"));
    let asked = db::waivers::lock(conn, waiver).await?.ok_or_else(missing)?;
    open(conn, actor, id, decision, now).await?;
    if asked.state != "asked" {
        return Err(Error::conflict("decided", "The waiver was ended meanwhile; look again."));
    }
    let (state, by, kind, word) = match decision {
        Decision::Approve => ("approved", Some(&*actor.name), "waiver.agreed", "agreed to"),
        Decision::Deny => ("denied", None, "waiver.denied", "turned down"),
    };
    db::approvals::decide(conn, id, &actor.name, (state, None), now).await?;
    db::waivers::decide(conn, waiver, by, now).await?;
    let told = format!("{} {word} {} that {} asked for", actor.name, waivers::told(&asked), asked.requested_by);
    db::events::insert(conn, waivers::event(app, actor, kind, &asked, told)).await
}

/// Asks for a second person where a release is beyond what this one, or the pool, may do in an hour; the request. The caller holds the
/// node's lock.
///
/// # Errors
/// When the database fails.
pub(super) async fn needed(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    claim: &ClaimRow,
    pool: &PoolSpec,
) -> Result<Option<(Uuid, String)>, Error> {
    let Some(because) = beyond(&limits(conn, app, actor, claim, pool).await?) else { return Ok(None) };
    let now = app.clock.now();
    let request = NewApproval {
        claim: claim.id,
        because: &because,
        requested_by: &actor.name,
        person: &actor.person,
        now,
        expires_at: now + WAITS,
    };
    let id = db::approvals::ask(conn, &request).await?;
    let summary = format!("the release of {} waits for a second person: {because}", claim.node_name);
    db::events::insert(conn, event(app, actor, ("approval.asked", summary), claim)).await?;
    Ok(Some((id, because)))
}

/// How many nodes this one, and whoever else of the pool, may still release within the hour. From here until its transaction ends, the caller
/// alone releases where there is a limit.
///
/// # Errors
/// When the database fails.
pub(super) async fn limits(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    claim: &ClaimRow,
    pool: &PoolSpec,
) -> Result<Vec<ReleaseLimit>, Error> {
    if actor.releases_per_hour.is_none() && pool.releases_per_hour.is_none() {
        return Ok(Vec::new());
    }
    let since = app.clock.now() - HOUR;
    let count = db::approvals::count_released(conn, &actor.name, &actor.person, claim.id, since).await?;
    let limit = |of: String, per_hour: Option<u32>, count: i64| {
        let left = |per_hour: u32| per_hour.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
        per_hour.map(|per_hour| ReleaseLimit { of, per_hour, left: left(per_hour) })
    };
    let person = limit(actor.name.clone(), actor.releases_per_hour, count.by_person);
    let pool = limit(format!("pool {}", claim.pool), pool.releases_per_hour, count.of_pool);
    Ok(person.into_iter().chain(pool).collect())
}

/// Why a release needs a second person, if it does.
pub(super) fn beyond(limits: &[ReleaseLimit]) -> Option<String> {
    let spent = limits.iter().find(|limit| limit.left == 0)?;
    Some(match spent.of.strip_prefix("pool ") {
        Some(pool) => format!("{} nodes of the pool {pool} may be released in an hour, and were.", spent.per_hour),
        None => format!("{} may release {} nodes in an hour, and has.", spent.of, spent.per_hour),
    })
}

/// The spec of a claim's pool.
pub(super) async fn pool_of(conn: &mut PgConnection, pool: ObjectId) -> Result<PoolSpec, Error> {
    let row = db::objects::find_by_id(conn, pool).await?;
    let row = row.ok_or_else(|| Error::internal(anyhow::anyhow!("the pool {pool} of a claim is gone")))?;
    serde_json::from_value(row.spec).map_err(Error::internal)
}

fn event(app: &App, actor: &Actor, (kind, summary): (&'static str, String), claim: &ClaimRow) -> NewEvent {
    actor.event(app.clock.now(), kind, Some(claim.node), summary).with(json!({ "claim": claim.name }))
}

fn object(row: ApprovalRow) -> Result<Approval, Error> {
    let state = match row.state.as_str() {
        "open" => ApprovalState::Open,
        "approved" => ApprovalState::Approved,
        "denied" => ApprovalState::Denied,
        other => return Err(Error::internal(anyhow::anyhow!("approval {}: state {other:?}", row.id))),
    };
    Ok(Approval {
        id: row.id,
        claim: row.claim_name,
        node: row.node_name,
        waiver: row.waiver,
        because: row.because,
        requested_by: row.requested_by,
        requested_at: row.requested_at,
        expires_at: row.expires_at,
        state,
        decided_by: row.decided_by,
        operation: row.operation.map(|id| id.0),
    })
}
