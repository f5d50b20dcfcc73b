//! Giving a node back: drain, out of the scheduler, wipe, inspection. Deleting the claim starts it; the claim ends when the node is clean.

use axum::extract::State;
use jiff::SignedDuration;
use muster_api::operations::Operation;
use muster_api::plans::ReleaseLimit;
use muster_api::pools::PoolSpec;
use muster_api::problem::Problem;
use muster_core::ids::{ClaimId, NodeId, OperationId};
use serde::Deserialize;
use serde_json::json;
use sqlx::PgConnection;
use utoipa::IntoParams;

use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::claims::ClaimRow;
use crate::db::nodes::LockedNode;
use crate::db::operations::NewOperation;
use crate::db::replacements::Replacement;
use crate::engine::releases::{self, Given};
use crate::engine::replacements::{self, By};
use crate::error::Error;
use crate::http::answer::Answer;
use crate::http::approvals::Wanted;
use crate::http::extract::{Path, Query};
use crate::http::preconditions::Preconditions;
use crate::http::{approvals, dry_run, writing};

/// A claim that changes nodes more often than this while it is looked at is a storm, and the caller tries again.
const ROUNDS: usize = 5;

/// How to release.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct ReleaseQuery {
    /// Erase the disks without the time in which the release can be undone.
    erase_now: bool,
}

/// Whether a release can be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disks {
    /// For as long as the pool says.
    Kept,
    ErasedNow,
}

/// Releases a node. The same call again leads to the same operation; with `erase_now` it ends the time in which it can be undone.
#[utoipa::path(delete, path = "/v1/claims/{claim}", tag = "claims",
    params(("claim", description = "Name or id"), ("If-Match" = String, Header), ReleaseQuery), responses(
    (status = 202, description = "The release is the operation", body = Operation),
    (status = 409, description = "The node is protected, the claim is over, or a second person must agree: `second_person`, and Link leads to the approval",
        body = Problem, content_type = "application/problem+json"),
    (status = 428, description = "If-Match is missing", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn delete_claim(
    State(app): State<App>,
    actor: Actor,
    Path(key): Path<String>,
    Query(query): Query<ReleaseQuery>,
    preconditions: Preconditions,
) -> Result<Answer, Error> {
    let disks = if query.erase_now {
        Disks::ErasedNow
    } else {
        Disks::Kept
    };
    begin(&app, &actor, &key, preconditions, disks)
        .await
        .map(|(_, answer)| answer)
}

/// Releases as a page does, which says the generation it showed.
///
/// # Errors
/// As [`delete_claim`] answers.
pub async fn release_claim(
    app: &App,
    actor: &Actor,
    key: &str,
    generation: i64,
    disks: Disks,
) -> Result<OperationId, Error> {
    begin(
        app,
        actor,
        key,
        Preconditions::generation(generation),
        disks,
    )
    .await
    .map(|(operation, _)| operation)
}

async fn begin(
    app: &App,
    actor: &Actor,
    key: &str,
    preconditions: Preconditions,
    disks: Disks,
) -> Result<(OperationId, Answer), Error> {
    let written = writing::write(app, actor, async |conn| {
        let (node, claim) = locked(conn, key).await?;
        preconditions.allow_removal(claim.generation)?;
        let operation = match (claim.state.as_str(), claim.operation) {
            _ if node.protected => return Err(protected(&node)),
            ("bound", _) => {
                let pool = approvals::pool_of(conn, claim.pool_id).await?;
                let wanted = Wanted {
                    claim: &claim,
                    replacement: None,
                    disks,
                    reason: None,
                };
                match approvals::needed(conn, app, actor, wanted, &pool).await? {
                    Some((_, because)) if dry_run::asked() => {
                        return Err(approvals::alone(&because));
                    }
                    // The request stays, and the answer says that it is one.
                    Some((id, because)) => return Ok(Err(Error::SecondPerson { id, because })),
                    None => release(conn, app, actor, (&node, &claim), &pool, disks).await?,
                }
            }
            ("releasing", Some(operation)) => {
                if disks == Disks::ErasedNow && claim.undo_until.is_some() {
                    // As a release of its own: what was released to be kept, perhaps by somebody else, is not erased beyond a limit either.
                    let pool = approvals::pool_of(conn, claim.pool_id).await?;
                    let wanted = Wanted {
                        claim: &claim,
                        replacement: None,
                        disks,
                        reason: None,
                    };
                    match approvals::needed(conn, app, actor, wanted, &pool).await? {
                        Some((_, because)) if dry_run::asked() => {
                            return Err(approvals::alone(&because));
                        }
                        Some((id, because)) => return Ok(Err(Error::SecondPerson { id, because })),
                        None => erase_now(conn, app, actor, &claim, operation).await?,
                    }
                }
                operation
            }
            _ => return Err(over(&claim)),
        };
        Ok(Ok((operation, writing::accepted(conn, operation).await?)))
    });
    written.await?
}

/// What a release would do.
#[derive(Clone, Debug)]
pub(in crate::http) struct Released {
    /// How many more the limits allow, before this one.
    pub limits: Vec<ReleaseLimit>,
    /// The names of the nodes that go: the claim's, and the one that is on its way to take its place.
    pub nodes: Vec<String>,
}

/// Releases inside the caller's transaction, which takes it back. `None` where it is being released already.
///
/// # Errors
/// What refuses the release, as [`delete_claim`] answers.
pub(in crate::http) async fn plan(
    app: &App,
    conn: &mut PgConnection,
    actor: &Actor,
    claim: &ClaimRow,
    disks: Disks,
) -> Result<Option<Released>, Error> {
    let (node, claim) = locked(conn, &claim.id.to_string()).await?;
    match claim.state.as_str() {
        _ if node.protected => Err(protected(&node)),
        "bound" => {
            let pool = approvals::pool_of(conn, claim.pool_id).await?;
            let of = Some((claim.pool_id, claim.pool.as_str(), &pool));
            let limits = approvals::limits(conn, app, actor, of).await?;
            if let Some(because) = approvals::beyond(&limits) {
                return Err(approvals::alone(&because));
            }
            let coming = coming(conn, claim.id)
                .await?
                .map(|one| one.coming_node_name);
            release(conn, app, actor, (&node, &claim), &pool, disks).await?;
            Ok(Some(Released {
                limits,
                nodes: [claim.node_name].into_iter().chain(coming).collect(),
            }))
        }
        _ => Ok(None),
    }
}

/// Begins a release that a second person agreed to, for whoever asked, and as they asked for it.
///
/// # Errors
/// 409 when the node is protected or the claim is over.
pub(in crate::http) async fn approved(
    conn: &mut PgConnection,
    app: &App,
    (by, asked): (&Actor, &str),
    (node, claim): (&LockedNode, &ClaimRow),
    disks: Disks,
) -> Result<OperationId, Error> {
    match claim.state.as_str() {
        _ if node.protected => Err(protected(node)),
        "bound" => {
            let pool = approvals::pool_of(conn, claim.pool_id).await?;
            let asker = Actor {
                name: asked.to_owned(),
                ..by.clone()
            };
            release(conn, app, &asker, (node, claim), &pool, disks).await
        }
        // It was being released when somebody asked for its disks to be erased at once.
        "releasing" if disks == Disks::ErasedNow => {
            let operation = claim.operation.ok_or_else(|| over(claim))?;
            let asker = Actor {
                name: asked.to_owned(),
                ..by.clone()
            };
            erase_now(conn, app, &asker, claim, operation).await?;
            Ok(operation)
        }
        _ => Err(over(claim)),
    }
}

/// The claim, under the lock of its node, which orders releases; and of the node that is on its way for it, if one is. Which nodes these are can change until
/// they are locked.
pub(in crate::http) async fn locked(
    conn: &mut PgConnection,
    key: &str,
) -> Result<(LockedNode, ClaimRow), Error> {
    let missing = || Error::NotFound(format!("claim {key:?}"));
    let mut found = db::claims::find(conn, key).await?.ok_or_else(missing)?;
    for _ in 0..ROUNDS {
        let coming = db::replacements::find_coming(conn, found.id).await?;
        let mut nodes: Vec<NodeId> = [found.node]
            .into_iter()
            .chain(coming.map(|(_, node)| node))
            .collect();
        // In one order, as whoever holds two of them.
        nodes.sort_by_key(|node| node.0);
        let mut own = None;
        for id in nodes {
            let node = db::nodes::find_for_update(conn, &id.to_string())
                .await?
                .ok_or_else(missing)?;
            own = own.or(Some(node).filter(|node| node.id == found.node));
        }
        let again = db::claims::find(conn, &found.id.to_string())
            .await?
            .ok_or_else(missing)?;
        let stays = again.node == found.node
            && db::replacements::find_coming(conn, again.id).await? == coming;
        match own.filter(|_| stays) {
            Some(node) => return Ok((node, again)),
            None => found = again,
        }
    }
    Err(Error::conflict(
        "contended",
        format!("The claim {} is changing nodes; try again.", found.name),
    ))
}

/// What brings another node for a claim, while it comes.
pub(super) async fn coming(
    conn: &mut PgConnection,
    claim: ClaimId,
) -> Result<Option<Replacement>, Error> {
    match db::replacements::find_coming(conn, claim).await? {
        Some((coming, _)) => db::replacements::find(conn, coming).await,
        None => Ok(None),
    }
}

/// Keeps the disks of what is being released no longer.
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
        "the disks of {} are kept no longer: the claim {} is erased at once",
        claim.node_name, claim.name
    );
    let event = actor
        .event(now, "claim.erase_now", Some(claim.node), summary)
        .under(Some(operation));
    db::events::insert(conn, event.with(json!({ "claim": claim.name }))).await
}

pub(super) fn protected(node: &LockedNode) -> Error {
    Error::conflict(
        "protected",
        format!("{} is protected; clear that first.", node.name),
    )
}

pub(super) fn over(claim: &ClaimRow) -> Error {
    Error::conflict("released", format!("The claim {} is over.", claim.name))
}

async fn release(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    (node, claim): (&LockedNode, &ClaimRow),
    pool: &PoolSpec,
    disks: Disks,
) -> Result<OperationId, Error> {
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
    if let Some(one) = coming(conn, claim.id).await? {
        let by = By {
            actor: &actor.name,
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
        false => Err(over(claim)),
    }
}
