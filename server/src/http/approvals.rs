//! A second person for what one person may not do alone: to erase more disks in an hour than the limit, and to waive gates.

use axum::extract::State;
use jiff::{SignedDuration, Timestamp};
use muster_api::approvals::{Approval, ApprovalState};
use muster_api::claims::ReplaceClaim;
use muster_api::plans::ReleaseLimit;
use muster_api::pools::PoolSpec;
use muster_api::problem::Problem;
use muster_core::ids::{ClaimId, NodeId, ObjectId};
use serde_json::json;
use sqlx::PgConnection;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::answer::Answer;
use super::claims::release::Disks;
use super::claims::{release, replace};
use super::document;
use super::extract::{Path, Query};
use super::idempotency::IdempotencyKey;
use super::nodes::erasures;
use super::paging::{self, CountedPage, ListQuery};
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
pub(super) const WAITS: SignedDuration = SignedDuration::from_hours(24);

/// The routes of approvals.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list_approvals))
        .routes(routes!(get_approval))
        .routes(routes!(grant_approval))
        .routes(routes!(deny_approval))
}

/// What waits for a second person, oldest first unless `-created_at` is asked for. It is filtered by `node`, `claim`, `requested_by` and `action`, which is
/// `release`, `wipe`, `reinstall` or `waive`.
#[utoipa::path(get, path = "/v1/approvals", tag = "approvals", params(ListQuery), responses(
    (status = 200, description = "The page", body = CountedPage<Approval>),
))]
async fn list_approvals(
    State(app): State<App>,
    actor: Actor,
    Query(query): Query<ListQuery>,
) -> Result<Answer, Error> {
    let load = async |conn: &mut PgConnection, ids: &[Uuid]| {
        db::approvals::list_by_id(conn, ids)
            .await?
            .into_iter()
            .map(object)
            .collect()
    };
    let list = filter::approvals(app.clock.now());
    let mut conn = app.pool.acquire().await?;
    let also = (Vec::new(), &actor.sight());
    paging::page(
        &mut conn,
        &list,
        &query,
        also,
        load,
        |approval: &Approval| (approval.id, ""),
    )
    .await
}

/// One of them, also once it is decided: what a refused request links to.
#[utoipa::path(get, path = "/v1/approvals/{approval}", tag = "approvals", params(("approval", description = "Id")), responses(
    (status = 200, description = "It", body = Approval),
    (status = 404, description = "There is none", body = Problem, content_type = "application/problem+json"),
))]
async fn get_approval(
    State(app): State<App>,
    _: Actor,
    Path(id): Path<Uuid>,
) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    let found = db::approvals::list_by_id(&mut conn, &[id]).await?.pop();
    Answer::ok(&object(
        found.ok_or_else(|| Error::NotFound(format!("approval {id}")))?,
    )?)
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
        let subject = db::approvals::find_subject(conn, id)
            .await?
            .ok_or_else(missing)?;
        match (subject.claim, subject.waiver, subject.node) {
            (Some(claim), ..) => decide_release(conn, app, actor, (id, claim), decision).await?,
            (None, Some(waiver), _) => {
                decide_waiver(conn, app, actor, (id, waiver), decision).await?
            }
            (None, None, Some(node)) => {
                decide_erasure(conn, app, actor, (id, node), decision).await?
            }
            (None, None, None) => return Err(missing()),
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
    let row = db::approvals::lock(conn, id)
        .await?
        .ok_or_else(|| Error::NotFound(format!("approval {id}")))?;
    if row.state != "open" || row.expires_at <= now {
        return Err(Error::conflict(
            "decided",
            "It was decided, or waited too long; look again.",
        ));
    }
    if decision == Decision::Approve && actor.person == row.person {
        return Err(Error::Forbidden(format!(
            "{} asked for this; somebody else must agree.",
            row.requested_by
        )));
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
    let disks = if row.erase_now {
        Disks::ErasedNow
    } else {
        Disks::Kept
    };
    let what = told(row.replaces, disks);
    let (ended, kind, word) = match decision {
        Decision::Approve => {
            let asked = (actor, row.requested_by.as_str());
            let begun = match row.replaces {
                true => {
                    let body = ReplaceClaim {
                        node: row.spare.clone(),
                        reason: row.reason.clone(),
                    };
                    replace::approved(conn, app, asked, (&node, &claim), &body).await?
                }
                false => release::approved(conn, app, asked, (&node, &claim), disks).await?,
            };
            (("approved", Some(begun)), "approval.approved", "agreed to")
        }
        Decision::Deny => (("denied", None), "approval.denied", "turned down"),
    };
    db::approvals::decide(conn, id, &actor.name, ended, now).await?;
    let summary = format!(
        "{} {word} the {what} of {} that {} asked for",
        actor.name, claim.node_name, row.requested_by
    );
    db::events::insert(conn, event(app, actor, (kind, summary), &claim, disks)).await
}

async fn decide_erasure(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    (id, node): (Uuid, NodeId),
    decision: Decision,
) -> Result<(), Error> {
    let now = app.clock.now();
    let missing = || Error::NotFound(format!("approval {id}"));
    let node = db::nodes::find_for_update(conn, &node.to_string())
        .await?
        .ok_or_else(missing)?;
    let row = open(conn, actor, id, decision, now).await?;
    let (ended, kind, word) = match decision {
        Decision::Approve => {
            let begun = erasures::approved(conn, app, actor, &node, &row).await?;
            (("approved", Some(begun)), "approval.approved", "agreed")
        }
        Decision::Deny => (("denied", None), "approval.denied", "did not agree"),
    };
    let wish = erasures::wish(&row)?;
    db::approvals::decide(conn, id, &actor.name, ended, now).await?;
    let told = format!(
        "{} {word} to {wish} {}, as {} asked",
        actor.name, node.name, row.requested_by
    );
    let event = actor.event(now, kind, Some(node.id), told);
    db::events::insert(conn, event.with(json!({ "wish": wish.as_str() }))).await
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
        return Err(Error::conflict(
            "decided",
            "The waiver was ended meanwhile; look again.",
        ));
    }
    let (state, by, kind, word) = match decision {
        Decision::Approve => ("approved", Some(&*actor.name), "waiver.agreed", "agreed to"),
        Decision::Deny => ("denied", None, "waiver.denied", "turned down"),
    };
    db::approvals::decide(conn, id, &actor.name, (state, None), now).await?;
    db::waivers::decide(conn, waiver, by, now).await?;
    let told = format!(
        "{} {word} {} that {} asked for",
        actor.name,
        waivers::told(&asked),
        asked.requested_by
    );
    db::events::insert(conn, waivers::event(app, actor, kind, &asked, told)).await
}

/// What would be released.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'claim> {
    pub claim: &'claim ClaimRow,
    /// Of a replacement: the node that is named for it, if one is.
    pub replacement: Option<Option<&'claim str>>,
    /// Of a release: what becomes of its disks.
    pub disks: Disks,
    /// Why it is asked for, where that was said.
    pub reason: Option<&'claim str>,
}

/// Asks for a second person where a release is beyond what this one, or the pool, may do in an hour; the request. The caller holds the
/// node's lock.
///
/// # Errors
/// 409 when something else waits for a second person for this claim; the database's.
pub(super) async fn needed(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    wanted: Wanted<'_>,
    pool: &PoolSpec,
) -> Result<Option<(Uuid, String)>, Error> {
    let Wanted {
        claim,
        replacement,
        disks,
        reason,
    } = wanted;
    let of = Some((claim.pool_id, claim.pool.as_str(), pool));
    let Some(because) = beyond(&limits(conn, app, actor, of).await?) else {
        return Ok(None);
    };
    let now = app.clock.now();
    let request = NewApproval {
        claim: claim.id,
        replaces: replacement.is_some(),
        spare: replacement.flatten(),
        erase_now: disks == Disks::ErasedNow,
        reason,
        because: &because,
        requested_by: &actor.name,
        person: &actor.person,
        now,
        expires_at: now + WAITS,
    };
    let (id, same) = db::approvals::ask(conn, &request).await?;
    if !same {
        let detail = format!(
            "{because} Something else waits for a second person for {}: `muster approval list`.",
            claim.name
        );
        return Err(Error::conflict("approval_open", detail));
    }
    let what = told(request.replaces, disks);
    let summary = format!(
        "the {what} of {} waits for a second person: {because}",
        claim.node_name
    );
    db::events::insert(
        conn,
        event(app, actor, ("approval.asked", summary), claim, disks),
    )
    .await?;
    Ok(Some((id, because)))
}

/// Of how many nodes this one, and whoever else of the pool, may still erase the disks within the hour. From here until its transaction ends, the
/// caller alone does where there is a limit.
///
/// # Errors
/// When the database fails.
pub(super) async fn limits(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    pool: Option<(ObjectId, &str, &PoolSpec)>,
) -> Result<Vec<ReleaseLimit>, Error> {
    let of_pool = pool.and_then(|(.., spec)| spec.releases_per_hour);
    if actor.releases_per_hour.is_none() && of_pool.is_none() {
        return Ok(Vec::new());
    }
    let since = app.clock.now() - HOUR;
    let by = (actor.name.as_str(), actor.person.as_str());
    let count = db::approvals::count_erased(conn, by, pool.map(|(id, ..)| id), since).await?;
    let limit = |of: String, per_hour: Option<u32>, count: i64| {
        let left =
            |per_hour: u32| per_hour.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
        per_hour.map(|per_hour| ReleaseLimit {
            of,
            per_hour,
            left: left(per_hour),
        })
    };
    let person = limit(actor.name.clone(), actor.releases_per_hour, count.by_person);
    let pool = pool.and_then(|(_, name, _)| limit(format!("pool {name}"), of_pool, count.of_pool));
    Ok(person.into_iter().chain(pool).collect())
}

/// Why it needs a second person, if it does.
pub(super) fn beyond(limits: &[ReleaseLimit]) -> Option<String> {
    let spent = limits.iter().find(|limit| limit.left == 0)?;
    let count = spent.per_hour;
    Some(match spent.of.strip_prefix("pool ") {
        Some(pool) => {
            format!(
                "{count} nodes of the pool {pool} may be released or installed anew in an hour, and were."
            )
        }
        None => format!(
            "{} may release, wipe or install anew {count} nodes in an hour, and has.",
            spent.of
        ),
    })
}

/// What is told without asking anybody for it.
pub(super) fn alone(because: &str) -> Error {
    Error::conflict(
        "second_person",
        format!("{because} Somebody else would be asked to agree."),
    )
}

/// The spec of a claim's pool.
pub(super) async fn pool_of(conn: &mut PgConnection, pool: ObjectId) -> Result<PoolSpec, Error> {
    let row = db::objects::find_by_id(conn, pool).await?;
    let row =
        row.ok_or_else(|| Error::internal(anyhow::anyhow!("the pool {pool} of a claim is gone")))?;
    document::stored(&row)
}

/// What a request of a claim is for.
fn told(replaces: bool, disks: Disks) -> &'static str {
    match (replaces, disks) {
        (true, _) => "replacement",
        (false, Disks::Kept) => "release",
        (false, Disks::ErasedNow) => "release, with the disks erased at once,",
    }
}

fn event(
    app: &App,
    actor: &Actor,
    (kind, summary): (&'static str, String),
    claim: &ClaimRow,
    disks: Disks,
) -> NewEvent {
    let detail = json!({ "claim": claim.name, "erase_now": disks == Disks::ErasedNow });
    actor
        .event(app.clock.now(), kind, Some(claim.node), summary)
        .with(detail)
}

fn object(row: ApprovalRow) -> Result<Approval, Error> {
    let state = match row.state.as_str() {
        "open" => ApprovalState::Open,
        "approved" => ApprovalState::Approved,
        "denied" => ApprovalState::Denied,
        other => {
            return Err(Error::internal(anyhow::anyhow!(
                "approval {}: state {other:?}",
                row.id
            )));
        }
    };
    Ok(Approval {
        id: row.id,
        claim: row.claim_name,
        node: row.node_name,
        replaces: row.replaces,
        erase_now: row.erase_now,
        action: row.wish,
        reason: row.reason,
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
