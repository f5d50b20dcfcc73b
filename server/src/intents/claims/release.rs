//! Releases a node: drain, removal from the scheduler, wipe, inspection. Deleting the claim begins
//! the release, and the claim ends when the node is clean.

use jiff::SignedDuration;
use muster_api::plans::ReleaseLimit;
use muster_api::pools::PoolSpec;
use muster_core::claims::ClaimState;
use muster_core::ids::{ClaimId, OperationId};
use serde_json::json;
use sqlx::PgConnection;

use crate::app::App;
use crate::auth::Actor;
use crate::auth::access::Named;
use crate::db;
use crate::db::claims::ClaimRow;
use crate::db::operations::NewOperation;
use crate::db::replacements::Replacement;
use crate::engine::releases::{self, Given};
use crate::engine::replacements::{self, By};
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::intents::approvals::limits::{self, LimitedPool, PendingApproval, Wanted};
use crate::intents::claims::disks::Disks;
use crate::intents::claims::locked::{LockedClaim, refuse_protected, refuse_released};
use crate::intents::preconditions::Preconditions;
use crate::intents::{dry_run, writing};

/// Releases for a page, with the generation shown on the page.
///
/// # Errors
/// The errors of the route `delete_claim`.
pub async fn release_claim(
    app: &App,
    actor: &Actor,
    key: &str,
    generation: i64,
    disks: Disks,
) -> Result<OperationId, Error> {
    submit(
        app,
        actor,
        key,
        Preconditions::generation(generation),
        disks,
    )
    .await
    .map(|(operation, _)| operation)
}

/// Requests the release in one transaction. Returns the operation and the answer.
pub(crate) async fn submit(
    app: &App,
    actor: &Actor,
    key: &str,
    preconditions: Preconditions,
    disks: Disks,
) -> Result<(OperationId, Answer), Error> {
    let written = writing::write(app, actor, async |conn| {
        let locked = LockedClaim::lock(conn, key).await?;
        preconditions.allow_erasure(locked.claim.generation)?;
        match request(conn, app, actor, &locked, disks).await? {
            Requested::Begun(operation) => {
                let answer = writing::answer_accepted(conn, operation).await?;
                Ok(Ok((operation, answer)))
            }
            // The transaction commits the request for an approval. The answer is a refusal naming
            // the request.
            Requested::NeedsApproval(pending) => Ok(Err(pending.refusal())),
        }
    });
    written.await?
}

/// The result of a request to release.
enum Requested {
    /// The operation of the release.
    Begun(OperationId),
    /// A second person must approve. The request for the approval is written.
    NeedsApproval(PendingApproval),
}

/// The next step of a requested release, by the state of the claim.
#[derive(Clone, Copy)]
enum Step {
    /// The claim is bound: begin the release.
    Begin,
    /// The release keeps the disks: end the undo window now.
    EraseNow(OperationId),
    /// The release is under way as requested.
    Continue(OperationId),
}

fn next_step(locked: &LockedClaim, disks: Disks) -> Result<Step, Error> {
    let LockedClaim { claim, node } = locked;
    match (claim.state, claim.operation) {
        _ if node.protected => Err(refuse_protected(node)),
        (ClaimState::Bound, _) => Ok(Step::Begin),
        (ClaimState::Releasing, Some(operation)) => {
            let erases = disks == Disks::ErasedNow && claim.undo_until.is_some();
            Ok(match erases {
                true => Step::EraseNow(operation),
                false => Step::Continue(operation),
            })
        }
        _ => Err(refuse_released(claim)),
    }
}

/// Begins a release within the actor's limits, or requests an approval beyond a limit. Ending the
/// undo window counts as a separate release, because another person may have released the claim
/// with its disks kept.
async fn request(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    locked: &LockedClaim,
    disks: Disks,
) -> Result<Requested, Error> {
    let step = next_step(locked, disks)?;
    if let Step::Continue(operation) = step {
        return Ok(Requested::Begun(operation));
    }
    let pool = limits::load_pool(conn, locked.claim.pool_id).await?;
    let needs_consent = describe_ended_window(conn, actor, &locked.claim, &pool, disks).await?;
    let wanted = Wanted {
        claim: &locked.claim,
        replacement: None,
        disks,
        reason: None,
        needs_consent: needs_consent.as_deref(),
    };
    if let Some(pending) = limits::request_approval(conn, app, actor, wanted, &pool).await? {
        return match dry_run::asked() {
            true => Err(limits::would_need_approval(&pending.because)),
            false => Ok(Requested::NeedsApproval(pending)),
        };
    }
    let operation = match step {
        Step::Begin => begin_release(conn, app, actor, locked, &pool, disks).await?,
        Step::EraseNow(operation) => {
            erase_now(conn, app, actor, &locked.claim, operation).await?;
            operation
        }
        Step::Continue(operation) => operation,
    };
    Ok(Requested::Begun(operation))
}

/// The sentence about an undo window that the release would end, when the actor may not shorten the
/// window of the pool either. `None` where the actor may end the window alone.
async fn describe_ended_window(
    conn: &mut PgConnection,
    actor: &Actor,
    claim: &ClaimRow,
    pool: &PoolSpec,
    disks: Disks,
) -> Result<Option<String>, Error> {
    let is_kept = match claim.state {
        ClaimState::Bound => pool.undo_window_s > 0,
        ClaimState::Releasing => claim.undo_until.is_some(),
        ClaimState::Released => false,
    };
    if disks == Disks::Kept || !is_kept {
        return Ok(None);
    }
    let key = claim.pool_id.to_string();
    let object = Named {
        kind: "pool",
        key: &key,
    };
    if actor.may(conn, "approval.decide", object).await? {
        return Ok(None);
    }
    Ok(Some(format!(
        "To erase the disks of {} at once ends the undo window of pool {}, which needs approval.decide for the pool.",
        claim.node_name, claim.pool
    )))
}

/// The effect of a planned release.
#[derive(Clone, Debug)]
pub(crate) struct ReleasePlan {
    /// The releases each limit still allows, before this release.
    pub limits: Vec<ReleaseLimit>,
    /// The names of the released nodes: the claim's node, and the node of an arriving replacement.
    pub nodes: Vec<String>,
}

/// Plans a release inside a transaction; the caller rolls the transaction back. Returns `None`
/// where the claim is not bound.
///
/// # Errors
/// The errors of the release, as listed for the route `delete_claim`.
pub(crate) async fn plan(
    app: &App,
    conn: &mut PgConnection,
    actor: &Actor,
    claim: &ClaimRow,
    disks: Disks,
) -> Result<Option<ReleasePlan>, Error> {
    let locked = LockedClaim::lock(conn, &claim.id.to_string()).await?;
    let LockedClaim { claim, node } = &locked;
    if node.protected {
        return Err(refuse_protected(node));
    }
    if claim.state != ClaimState::Bound {
        return Ok(None);
    }
    let pool = limits::load_pool(conn, claim.pool_id).await?;
    let of = LimitedPool {
        id: claim.pool_id,
        name: &claim.pool,
        spec: &pool,
    };
    let limits = limits::list(conn, app, actor, Some(of)).await?;
    let needs_consent = describe_ended_window(conn, actor, claim, &pool, disks).await?;
    if let Some(because) = limits::describe_exceeded(&limits).or(needs_consent) {
        return Err(limits::would_need_approval(&because));
    }
    let coming = find_coming(conn, claim.id)
        .await?
        .map(|one| one.coming_node_name);
    begin_release(conn, app, actor, &locked, &pool, disks).await?;
    let nodes = [locked.claim.node_name].into_iter().chain(coming).collect();
    Ok(Some(ReleasePlan { limits, nodes }))
}

/// Begins a release approved by a second person. The operation and the events name the requesting
/// person.
///
/// # Errors
/// 409 when the node is protected or the claim is over.
pub(crate) async fn begin_approved(
    conn: &mut PgConnection,
    app: &App,
    approver: &Actor,
    requested_by: &str,
    locked: &LockedClaim,
    disks: Disks,
) -> Result<OperationId, Error> {
    let LockedClaim { claim, node } = locked;
    let requester = approver.acting_for(requested_by);
    match (claim.state, claim.operation) {
        _ if node.protected => Err(refuse_protected(node)),
        (ClaimState::Bound, _) => {
            let pool = limits::load_pool(conn, claim.pool_id).await?;
            begin_release(conn, app, &requester, locked, &pool, disks).await
        }
        // The release was already under way; the request was to erase the disks now.
        (ClaimState::Releasing, Some(operation)) if disks == Disks::ErasedNow => {
            erase_now(conn, app, &requester, claim, operation).await?;
            Ok(operation)
        }
        _ => Err(refuse_released(claim)),
    }
}

/// Finds the arriving replacement of a claim.
pub(crate) async fn find_coming(
    conn: &mut PgConnection,
    claim: ClaimId,
) -> Result<Option<Replacement>, Error> {
    match db::replacements::find_coming(conn, claim).await? {
        Some((coming, _)) => db::replacements::find(conn, coming).await,
        None => Ok(None),
    }
}

/// Ends the undo window of a release: the engine wipes the disks next.
async fn erase_now(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    claim: &ClaimRow,
    operation: OperationId,
) -> Result<(), Error> {
    let now = app.clock.now();
    db::claims::end_undo(conn, claim.id).await?;
    db::lifecycle::make_due(conn, claim.node, now).await?;
    let summary = format!(
        "the undo window of {} ends: the disks of the claim {} are erased now",
        claim.node_name, claim.name
    );
    let event = actor
        .event(now, "claim.erase_now", Some(claim.node), summary)
        .under(Some(operation));
    db::events::insert(conn, event.with(json!({ "claim": claim.name }))).await
}

/// Writes a release: the operation and the event. An arriving replacement is released with the
/// claim.
async fn begin_release(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    locked: &LockedClaim,
    pool: &PoolSpec,
    disks: Disks,
) -> Result<OperationId, Error> {
    let LockedClaim { claim, node } = locked;
    let now = app.clock.now();
    let message = format!("released by deleting the claim {}", claim.name);
    let new = NewOperation {
        claim: Some(claim.id),
        ..actor.operation(now, "release", claim.node, message)
    };
    let window = SignedDuration::from_secs(i64::from(pool.undo_window_s));
    let given = Given {
        claim: claim.id,
        claim_name: &claim.name,
        node: claim.node,
        epoch: node.epoch,
        former: claim.operation,
        undo_until: (disks == Disks::Kept && !window.is_zero()).then(|| now + window),
    };
    if let Some(one) = find_coming(conn, claim.id).await? {
        let by = By {
            actor: actor.author(),
            request_id: actor.request_id.as_deref(),
        };
        let why = format!("the claim {} is released", claim.name);
        replacements::give_back(conn, &one, by, &why, now).await?;
    }
    let summary = format!(
        "{} is released: the claim {} was deleted",
        claim.node_name, claim.name
    );
    let event = actor.event(now, "claim.releasing", Some(claim.node), summary);
    match releases::begin(conn, &given, &new, event).await? {
        true => Ok(new.id),
        false => Err(refuse_released(claim)),
    }
}
