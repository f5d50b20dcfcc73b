//! Limits of the work one person may do alone: releases, wipes and installations in an hour, for a
//! person and for a pool. Beyond a limit, a request waits for a second person.

use jiff::SignedDuration;
use muster_api::plans::ReleaseLimit;
use muster_api::pools::PoolSpec;
use muster_core::ids::ObjectId;
use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::app::App;
use crate::auth::Actor;
use crate::db::approvals::NewApproval;
use crate::db::claims::ClaimRow;
use crate::db::events::NewEvent;
use crate::error::Error;
use crate::intents::claims::disks::Disks;
use crate::{db, document};

pub(crate) const HOUR: SignedDuration = SignedDuration::from_hours(1);
/// How long a request waits for a second person.
pub(crate) const WAITS: SignedDuration = SignedDuration::from_hours(24);

/// A requested release or replacement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'claim> {
    pub claim: &'claim ClaimRow,
    /// For a replacement: the node named by the request, or none.
    pub replacement: Option<Option<&'claim str>>,
    /// For a release: the treatment of the disks.
    pub disks: Disks,
    /// The reason given by the request.
    pub reason: Option<&'claim str>,
    /// Why the actor needs a second person within the limits as well. `None`: for no reason.
    pub needs_consent: Option<&'claim str>,
}

/// A request waiting for a second person.
#[derive(Clone, Debug)]
pub(crate) struct PendingApproval {
    pub id: Uuid,
    /// The limit exceeded by the request.
    pub because: String,
}

impl PendingApproval {
    /// The refusal, naming the pending request.
    pub(crate) fn refusal(self) -> Error {
        Error::SecondPerson {
            id: self.id,
            because: self.because,
        }
    }
}

/// Requests an approval where a release exceeds the hourly limit of the person or of the pool, or
/// needs the consent of a second person anyway. Returns `None` where the person may release alone.
/// The caller holds the node's lock.
///
/// # Errors
/// 409 when another request for this claim waits for a second person; when the database fails.
pub(crate) async fn request_approval(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    wanted: Wanted<'_>,
    pool: &PoolSpec,
) -> Result<Option<PendingApproval>, Error> {
    let Wanted {
        claim,
        replacement,
        disks,
        reason,
        needs_consent,
    } = wanted;
    let of = LimitedPool {
        id: claim.pool_id,
        name: &claim.pool,
        spec: pool,
    };
    let limits = list(conn, app, actor, Some(of)).await?;
    let exceeded = describe_exceeded(&limits);
    let Some(because) = exceeded.or_else(|| needs_consent.map(str::to_owned)) else {
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
            "{because} Another request for {} waits for a second person: `muster approval list`.",
            claim.name
        );
        return Err(Error::conflict("approval_open", detail));
    }
    let summary = format!(
        "the {} of {} waits for a second person: {because}",
        describe_request(request.replaces, disks),
        claim.node_name
    );
    let event = approval_event(app, actor, "approval.requested", summary, claim, disks);
    db::events::insert(conn, event).await?;
    Ok(Some(PendingApproval { id, because }))
}

/// A pool with its spec, and so with an hourly limit of releases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitedPool<'pool> {
    pub id: ObjectId,
    pub name: &'pool str,
    pub spec: &'pool PoolSpec,
}

/// The limits of the person and of the pool, with the number of nodes each still allows within the
/// hour. Where a limit exists, other transactions counting for the same limit wait until this
/// transaction ends.
///
/// # Errors
/// When the database fails.
pub(crate) async fn list(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    pool: Option<LimitedPool<'_>>,
) -> Result<Vec<ReleaseLimit>, Error> {
    let of_pool = pool.and_then(|pool| pool.spec.releases_per_hour);
    if actor.releases_per_hour.is_none() && of_pool.is_none() {
        return Ok(Vec::new());
    }
    let since = app.clock.now() - HOUR;
    let of = pool.map(|pool| pool.id);
    let count = db::approvals::count_erased(conn, &actor.name, &actor.person, of, since).await?;
    let limit = |of: String, pool: Option<String>, per_hour: Option<u32>, count: i64| {
        let left =
            |per_hour: u32| per_hour.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
        per_hour.map(|per_hour| ReleaseLimit {
            of,
            pool,
            per_hour,
            left: left(per_hour),
        })
    };
    let person = limit(
        actor.name.clone(),
        None,
        actor.releases_per_hour,
        count.by_person,
    );
    let pool = pool.and_then(|pool| {
        let (of, name) = (format!("pool {}", pool.name), pool.name.to_owned());
        limit(of, Some(name), of_pool, count.of_pool)
    });
    Ok(person.into_iter().chain(pool).collect())
}

/// The sentence naming the exceeded limit; `None` while every limit allows another node.
pub(crate) fn describe_exceeded(limits: &[ReleaseLimit]) -> Option<String> {
    let spent = limits.iter().find(|limit| limit.left == 0)?;
    let count = spent.per_hour;
    Some(match &spent.pool {
        Some(pool) => {
            format!(
                "The limit of {count} released or reinstalled nodes per hour in pool {pool} is reached."
            )
        }
        None => format!(
            "{} has reached the limit of {count} released, wiped or reinstalled nodes per hour.",
            spent.of
        ),
    })
}

/// The refusal of a plan or dry run, because neither requests an approval.
pub(crate) fn would_need_approval(because: &str) -> Error {
    Error::conflict(
        "second_person",
        format!("{because} Another person would have to approve."),
    )
}

/// Loads the spec of a claim's pool.
pub(crate) async fn load_pool(conn: &mut PgConnection, pool: ObjectId) -> Result<PoolSpec, Error> {
    let row = db::objects::find_by_id(conn, pool).await?;
    let row =
        row.ok_or_else(|| Error::internal(anyhow::anyhow!("the pool {pool} of a claim is gone")))?;
    document::stored(&row)
}

/// The noun for a request: a release or a replacement.
pub(crate) fn describe_request(replaces: bool, disks: Disks) -> &'static str {
    match (replaces, disks) {
        (true, _) => "replacement",
        (false, Disks::Kept) => "release",
        (false, Disks::ErasedNow) => "release, with the disks erased at once,",
    }
}

/// An event of a request, in the history of the claim's node.
pub(crate) fn approval_event(
    app: &App,
    actor: &Actor,
    kind: &'static str,
    summary: String,
    claim: &ClaimRow,
    disks: Disks,
) -> NewEvent {
    let detail = json!({ "claim": claim.name, "erase_now": disks == Disks::ErasedNow });
    actor
        .event(app.clock.now(), kind, Some(claim.node), summary)
        .with(detail)
}
