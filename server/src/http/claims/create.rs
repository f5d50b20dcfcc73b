//! Binding a node to a pool: the node, its new assignment epoch, the claim, the operation and the event in one transaction.

use axum::extract::State;
use http::StatusCode;
use muster_api::claims::CreateClaim;
use muster_api::problem::Problem;
use muster_core::claims::WaitFor;
use muster_core::ids::{ClaimId, NodeId, ObjectId, OperationId};
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
use crate::engine::compatibility::{self, Onto};
use crate::error::Error;
use crate::http::answer::Answer;
use crate::http::document::Document;
use crate::http::idempotency::IdempotencyKey;
use crate::http::writing::{self, Effect};

/// A node that looked free may have been taken between look and lock; more rounds than this mean a storm, and the caller tries again.
const ROUNDS: usize = 20;

/// Binds a node to a pool: the one that is named, or any available one that fits.
#[utoipa::path(post, path = "/v1/claims", tag = "claims", params(("Idempotency-Key" = Option<String>, Header)),
    request_body = CreateClaim, responses(
    (status = 201, description = "Bound; the work is the operation in its status", body = ref("#/components/schemas/Claim")),
    (status = 409, description = "No such node is available, or the pool's stack cannot go onto the one that is named", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "It cannot be meant: pointers say where", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn create_claim(
    State(app): State<App>,
    actor: Actor,
    idempotency: IdempotencyKey,
    document: Document<CreateClaim>,
) -> Result<Answer, Error> {
    let request = document.typed().clone();
    writing::once(&app, &actor, idempotency, &request, async |conn| {
        create(conn, &app, &actor, document).await.map(Effect::Done)
    })
    .await
}

/// Binds inside the caller's transaction.
///
/// # Errors
/// As [`create_claim`] answers.
pub(in crate::http) async fn create(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    document: Document<CreateClaim>,
) -> Result<Answer, Error> {
    let (request, mut raw) = document.into_parts();
    let pool = db::objects::find_for_reference(conn, "pool", &request.spec.pool).await?;
    let missing = || format!("There is no pool called {:?}.", request.spec.pool);
    let pool = pool.ok_or_else(|| Error::unprocessable("/spec/pool", "not_found", missing()))?;
    both(conn, actor, "pool", &pool.name, missing).await?;
    let profile = profile(conn, pool.id).await?;
    let node = match (&request.spec.node, &request.spec.selector) {
        (Some(name), None) => named(conn, ("/spec/node", name), profile).await?,
        (None, Some(labels)) => any(
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
    let missing = || "No node of yours fits.".to_owned();
    both(conn, actor, "node", &node.name, missing).await?;
    // Of any node that fits, another one may be had; its plan says so, and nothing is written to this one's disk.
    if request.spec.node.is_some() {
        compatible(conn, &node, &pool).await?;
    }
    let id = ClaimId::new();
    let name = request
        .name
        .as_ref()
        .map_or_else(|| generated(&pool.name, id), ToString::to_string);
    let made = Made {
        id,
        name: &name,
        spec: raw.get_mut("spec").map(Value::take).unwrap_or_default(),
        wait_for: request.spec.wait_for.unwrap_or_default(),
        hold: request.spec.hold.unwrap_or_default(),
        replica: false,
    };
    bind(conn, app, actor, &node, made, &pool).await?;
    let object = super::view::load(conn, &id.to_string()).await?;
    let answer = Answer::ok(&object)?
        .status(StatusCode::CREATED)
        .etag(object.generation);
    Ok(answer.location(object.link))
}

/// Whether the pool's stack can go onto the node.
async fn compatible(
    conn: &mut PgConnection,
    node: &LockedNode,
    pool: &ObjectRow,
) -> Result<(), Error> {
    let Some((stack, image)) = compatibility::of_pool(conn, pool.id).await? else {
        return Ok(());
    };
    let seen = db::specs::find_node(conn, node.id).await?;
    let found = compatibility::findings(conn, &seen, (&stack, image.as_ref()), Onto::Image).await?;
    match compatibility::told(&node.name, &found) {
        None => Ok(()),
        Some(why) => Err(Error::conflict("incompatible", why)),
    }
}

/// Both ends are the claimer's to bind. What they may not even read does not exist for them.
pub(super) async fn both(
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

/// A name that people can read and nobody has: the pool's, and the random end of the id.
pub(super) fn generated(pool: &str, id: ClaimId) -> String {
    let id = id.0.simple().to_string();
    let pool: String = pool.chars().take(50).collect();
    format!("{}-{}", pool.trim_end_matches('-'), &id[id.len() - 12..])
}

/// The hardware profile that nodes of the pool have, if it asks for one.
pub(super) async fn profile(
    conn: &mut PgConnection,
    pool: ObjectId,
) -> Result<Option<ObjectId>, Error> {
    Ok(db::objects::find_target(conn, pool, "/spec/profile")
        .await?
        .map(|row| row.id))
}

/// The node that is named, if it can be had now.
pub(super) async fn named(
    conn: &mut PgConnection,
    (pointer, name): (&'static str, &str),
    profile: Option<ObjectId>,
) -> Result<LockedNode, Error> {
    let node = db::nodes::find_for_update(conn, name).await?;
    let missing = || {
        Error::unprocessable(
            pointer,
            "not_found",
            format!("There is no node called {name:?}."),
        )
    };
    let node = node.ok_or_else(missing)?;
    // Read again under the lock: whoever held it may just have claimed the node.
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
            ("claims_node_key", node.id.to_string()),
            "node_claimed",
            detail,
        ));
    }
    if node.state != "available" || node.wish.is_some() {
        return refuse(
            "node_not_available",
            format!("is {}; only available nodes are claimed.", node.state),
        );
    }
    match (node.profile_id, profile) {
        (None, _) => refuse(
            "no_profile",
            "has no hardware profile, so its root disk cannot be told.".into(),
        ),
        (Some(has), Some(wants)) if has != wants => {
            refuse("other_profile", "is of another hardware profile.".into())
        }
        _ => Ok(node),
    }
}

/// Any node that fits; none when there is none.
pub(super) async fn any(
    conn: &mut PgConnection,
    fits: &Fits<'_>,
) -> Result<Option<LockedNode>, Error> {
    for _ in 0..ROUNDS {
        let Some(id) = db::claims::find_available(conn, fits).await? else {
            break;
        };
        let node = db::nodes::find_for_update(conn, &id.to_string()).await?;
        if let Some(node) = node.filter(|node| !node.claimed && node.state == "available") {
            return Ok(Some(node));
        }
    }
    Ok(None)
}

/// A claim to make.
#[derive(Debug)]
pub(super) struct Made<'claim> {
    pub id: ClaimId,
    pub name: &'claim str,
    pub spec: Value,
    pub wait_for: WaitFor,
    pub hold: bool,
    /// Its pool makes it.
    pub replica: bool,
}

/// Binds a node that the caller holds, with all that goes with it.
///
/// # Errors
/// When the database fails or a constraint refuses.
pub(super) async fn bind(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    node: &LockedNode,
    Made {
        id,
        name,
        spec,
        wait_for,
        hold,
        replica,
    }: Made<'_>,
    pool: &ObjectRow,
) -> Result<(), Error> {
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
    record(
        conn,
        app,
        actor,
        node.id,
        operation,
        ("claim.created", summary),
        name,
    )
    .await
}

/// Writes what happened to a claim into its node's history.
pub(super) async fn record(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    node: NodeId,
    operation: OperationId,
    (kind, summary): (&'static str, String),
    claim: &str,
) -> Result<(), Error> {
    let event = actor
        .event(app.clock.now(), kind, Some(node), summary)
        .under(Some(operation));
    db::events::insert(conn, event.with(json!({ "claim": claim }))).await
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
            let name = generated(pool, ClaimId::new());
            assert!(name.parse::<muster_core::values::Name>().is_ok(), "{name}");
        }
    }
}
