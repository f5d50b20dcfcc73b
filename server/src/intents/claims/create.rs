//! Binds a node to a pool. The node, its new assignment epoch, the claim, the operation and the
//! event are written in one transaction.

use http::StatusCode;
use jiff::Timestamp;
use muster_api::claims::CreateClaim;
use muster_core::claims::WaitFor;
use muster_core::ids::{ClaimId, NodeId, ObjectId, OperationId};
use muster_core::lifecycle::state::State;
use muster_core::revisions::Revision;
use serde_json::{Value, json};
use sqlx::PgConnection;

use crate::app::App;
use crate::auth::Actor;
use crate::auth::access::Named;
use crate::db;
use crate::db::claims::{Fits, NewClaim};
use crate::db::nodes::LockedNode;
use crate::db::objects::ObjectRow;
use crate::db::operations::NewOperation;
use crate::document::Document;
use crate::engine::compatibility::{self, Onto};
use crate::engine::signatures;
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::references::Table;
use crate::intents::revisions;
use crate::intents::writing::{self, Effect};

/// The references of a claim. A claim needs `claim.create` at both ends, [`allow_claiming`].
pub(crate) const REFERENCES: Table = &[("/spec/pool", "pool"), ("/spec/node", "node")];

/// How often a free node is looked up and locked. Another transaction may claim the node in
/// between; beyond this number the caller must retry.
const ROUNDS: usize = 20;

/// A new claim, and the name of its node.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    pub claim: ClaimId,
    pub node: String,
}

/// Creates a claim inside the caller's transaction.
///
/// # Errors
/// The errors of the route `create_claim`.
pub(crate) async fn create(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    document: Document<CreateClaim>,
) -> Result<Bound, Error> {
    let (request, mut raw) = document.into_parts();
    let pool = db::objects::find_for_reference(conn, "pool", &request.spec.pool).await?;
    let missing = || format!("There is no pool called {:?}.", request.spec.pool);
    let pool = pool.ok_or_else(|| Error::unprocessable("/spec/pool", "not_found", missing()))?;
    allow_claiming(conn, actor, "pool", &pool.name, missing).await?;
    let profile = find_profile(conn, pool.id).await?;
    let node = match (&request.spec.node, &request.spec.selector) {
        (Some(name), None) => lock_named(conn, actor, "/spec/node", name, profile).await?,
        (None, Some(labels)) => lock_any(
            conn,
            &Fits {
                labels,
                profile,
                site: None,
            },
        )
        .await?
        .ok_or_else(|| {
            let detail = "No available node fits; see `muster node list --filter state=available`.";
            Error::conflict("no_node_available", detail)
        })?,
        _ => {
            return Err(Error::unprocessable(
                "/spec",
                "one_of",
                "Exactly one of node and selector.",
            ));
        }
    };
    let missing = || "No available node in your read scope fits.".to_owned();
    allow_claiming(conn, actor, "node", &node.name, missing).await?;
    // Only for a named node: with a selector the claim may get another node. The plan of the chosen
    // node lists each incompatibility, and its disk stays unwritten.
    if request.spec.node.is_some() {
        allow_stack(conn, &node, &pool).await?;
    }
    allow_image(conn, pool.id, app.clock.now()).await?;
    let id = ClaimId::new();
    let name = request
        .name
        .as_ref()
        .map_or_else(|| generate_name(&pool.name, id), ToString::to_string);
    let draft = Draft {
        id,
        name: &name,
        spec: raw.get_mut("spec").map(Value::take).unwrap_or_default(),
        wait_for: request.spec.wait_for.unwrap_or_default(),
        hold: request.spec.hold.unwrap_or_default(),
        replica: false,
    };
    bind(conn, app, actor, &node, draft, &pool).await?;
    Ok(Bound {
        claim: id,
        node: node.name,
    })
}

/// Rejects a node incompatible with the stack of the pool's present revision.
async fn allow_stack(
    conn: &mut PgConnection,
    node: &LockedNode,
    pool: &ObjectRow,
) -> Result<(), Error> {
    let Some(present) = db::revisions::find_present(conn, pool.id).await? else {
        return Ok(());
    };
    let Revision { image, stack, .. } = revisions::parse(&present)?;
    let seen = db::specs::find_node(conn, node.id).await?;
    let found = compatibility::findings(conn, &seen, &stack, Some(&image), Onto::Image).await?;
    match compatibility::told(&node.name, &found) {
        None => Ok(()),
        Some(why) => Err(Error::conflict("incompatible", why)),
    }
}

/// Rejects a pool that asks for a signature while its present revision has an image without one.
///
/// # Errors
/// 409 `unsigned_image`, or `unreadable` for a revision of another version.
pub(crate) async fn allow_image(
    conn: &mut PgConnection,
    pool: ObjectId,
    now: Timestamp,
) -> Result<(), Error> {
    if !db::signing_keys::is_required(conn, pool).await? {
        return Ok(());
    }
    let Some(present) = db::revisions::find_present(conn, pool).await? else {
        return Ok(());
    };
    let image = revisions::parse(&present)?.image;
    let proof = signatures::need_proof(conn, pool, &image, now).await;
    proof.map(drop)
}

/// Checks whether the actor may claim this pool or node. An object outside the actor's read scope
/// is answered as missing.
pub(crate) async fn allow_claiming(
    conn: &mut PgConnection,
    actor: &Actor,
    kind: &str,
    key: &str,
    missing: impl FnOnce() -> String,
) -> Result<(), Error> {
    match actor.need(conn, "claim.create", Named { kind, key }).await {
        Err(Error::NotFound(_)) => Err(Error::unprocessable(
            format!("/spec/{kind}"),
            "not_found",
            missing(),
        )),
        other => other,
    }
}

/// A readable and unique name: the pool's name and the random end of the id.
pub(crate) fn generate_name(pool: &str, id: ClaimId) -> String {
    let id = id.0.simple().to_string();
    let pool: String = pool.chars().take(50).collect();
    format!("{}-{}", pool.trim_end_matches('-'), &id[id.len() - 12..])
}

/// The hardware profile required by the pool.
pub(crate) async fn find_profile(
    conn: &mut PgConnection,
    pool: ObjectId,
) -> Result<Option<ObjectId>, Error> {
    Ok(db::objects::find_target(conn, pool, "/spec/profile")
        .await?
        .map(|row| row.id))
}

/// Locks the named node. The actor needs the permission to claim the node, because a refusal tells
/// the state of the node.
///
/// # Errors
/// 403; 422 at `pointer` where the node does not exist or is hidden from the actor; 409 where the
/// node cannot be claimed now.
pub(crate) async fn lock_named(
    conn: &mut PgConnection,
    actor: &Actor,
    pointer: &'static str,
    name: &str,
    profile: Option<ObjectId>,
) -> Result<LockedNode, Error> {
    let missing = || {
        Error::unprocessable(
            pointer,
            "not_found",
            format!("There is no node called {name:?}."),
        )
    };
    let (kind, key) = ("node", name);
    match actor.need(conn, "claim.create", Named { kind, key }).await {
        Err(Error::NotFound(_)) => return Err(missing()),
        allowed => allowed?,
    }
    let node = db::nodes::find_for_update(conn, name).await?;
    let node = node.ok_or_else(missing)?;
    // Read again under the lock: an earlier holder of the lock may have claimed the node.
    let node = db::nodes::find_for_update(conn, &node.id.to_string())
        .await?
        .ok_or_else(missing)?;
    let refuse = |code, why: String| Err(Error::conflict(code, format!("{} {why}", node.name)));
    if node.protected {
        return refuse("protected", "is protected; clear that first.".into());
    }
    if node.claimed {
        let detail = format!("{} is claimed already.", node.name);
        return Err(Error::taken(
            "claims_node_key",
            node.id.to_string(),
            "node_claimed",
            detail,
        ));
    }
    if node.state != State::Available || node.action.is_some() {
        return refuse(
            "node_not_available",
            format!("is {}; only available nodes are claimed.", node.state),
        );
    }
    match (node.profile_id, profile) {
        (None, _) => refuse(
            "no_profile",
            "has no hardware profile, so its root disk is unknown.".into(),
        ),
        (Some(has), Some(wants)) if has != wants => {
            refuse("other_profile", "has another hardware profile.".into())
        }
        _ => Ok(node),
    }
}

/// Locks any available and fitting node.
pub(crate) async fn lock_any(
    conn: &mut PgConnection,
    fits: &Fits<'_>,
) -> Result<Option<LockedNode>, Error> {
    for _ in 0..ROUNDS {
        let Some(id) = db::claims::find_available(conn, fits).await? else {
            break;
        };
        let node = db::nodes::find_for_update(conn, &id.to_string()).await?;
        if let Some(node) = node.filter(|node| !node.claimed && node.state == State::Available) {
            return Ok(Some(node));
        }
    }
    Ok(None)
}

/// A claim to create.
#[derive(Debug)]
pub(crate) struct Draft<'claim> {
    pub id: ClaimId,
    pub name: &'claim str,
    pub spec: Value,
    pub wait_for: WaitFor,
    pub hold: bool,
    /// Whether the pool created the claim for its `replicas`.
    pub replica: bool,
}

/// Binds a node locked by the caller: writes the claim, its operation, the new epoch of the node
/// and the event.
///
/// # Errors
/// When the database fails or a constraint refuses.
pub(crate) async fn bind(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    node: &LockedNode,
    draft: Draft<'_>,
    pool: &ObjectRow,
) -> Result<(), Error> {
    let Draft {
        id,
        name,
        spec,
        wait_for,
        hold,
        replica,
    } = draft;
    let now = app.clock.now();
    let epoch = node.epoch + 1;
    let message = format!(
        "claimed {} {}",
        if replica { "as a replica of" } else { "for" },
        pool.name
    );
    let summary = format!("{} {message} by {name}", node.name);
    let new = NewOperation {
        claim: Some(id),
        ..actor.operation(now, "claim", node.id, message)
    };
    let operation = new.id;
    let claim = NewClaim {
        id,
        name: name.to_owned(),
        spec,
        wait_for,
        hold,
        replaces: None,
        replica,
        node: node.id,
        pool: pool.id,
        epoch,
        actor: actor.name.clone(),
        now,
    };
    db::claims::insert(conn, &claim).await?;
    db::operations::insert(conn, &new).await?;
    db::nodes::set_assignment(conn, node.id, epoch, operation, now).await?;
    let created = ClaimEvent {
        kind: "claim.created",
        summary,
        node: node.id,
        operation,
        claim: name,
    };
    record(conn, app, actor, created).await
}

/// An entry in the history of a claim's node.
#[derive(Debug)]
pub(crate) struct ClaimEvent<'claim> {
    pub kind: &'static str,
    pub summary: String,
    pub node: NodeId,
    pub operation: OperationId,
    /// The name of the claim.
    pub claim: &'claim str,
}

/// Writes an event into the history of a claim's node.
pub(crate) async fn record(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    entry: ClaimEvent<'_>,
) -> Result<(), Error> {
    let event = actor
        .event(app.clock.now(), entry.kind, Some(entry.node), entry.summary)
        .under(Some(entry.operation));
    db::events::insert(conn, event.with(json!({ "claim": entry.claim }))).await
}

/// Claims a node, once per idempotency key.
///
/// # Errors
/// 404, 409 when no node is free or the named node is not available, 422.
pub(crate) async fn submit(
    app: &App,
    actor: &Actor,
    idempotency: IdempotencyKey,
    document: Document<CreateClaim>,
) -> Result<Answer, Error> {
    let request = document.typed().clone();
    writing::once(app, actor, idempotency, &request, async |conn| {
        let bound = create(conn, app, actor, document).await?;
        let object = super::view::load(conn, &bound.claim.to_string()).await?;
        let answer = Answer::ok(&object)?
            .status(StatusCode::CREATED)
            .etag(object.generation);
        Ok(Effect::Done(answer.location(object.link)))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_name_is_a_name() {
        for pool in [
            "p",
            "a-pool",
            &"p".repeat(63),
            &format!("{}-x", "p".repeat(49)),
        ] {
            let name = generate_name(pool, ClaimId::new());
            assert!(name.parse::<muster_core::values::Name>().is_ok(), "{name}");
        }
    }
}
