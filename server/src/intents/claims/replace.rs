//! Replaces the node of a claim. An available node is bound first and brought to service beside the
//! current node. Then the claim takes the new node and releases the old one
//! (`engine/replacements.rs`). The limits of the release are checked here, before the replacement
//! begins.

use muster_api::claims::{ClaimSpec, ReplaceClaim};
use muster_api::nodes::NodePlan;
use muster_api::pools::PoolSpec;
use muster_core::claims::{ClaimState, WaitFor};
use muster_core::effects::Effect as Cost;
use muster_core::ids::{ClaimId, OperationId};
use serde_json::{Value, json};
use sqlx::PgConnection;

use crate::app::App;
use crate::auth::access::Named;
use crate::auth::{Actor, askers};
use crate::db::claims::{ClaimRow, Fits, NewClaim};
use crate::db::nodes::LockedNode;
use crate::db::operations::NewOperation;
use crate::db::replacements::Replacement;
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::intents::approvals::limits::{self, PendingApproval, Wanted};
use crate::intents::claims::create::{self, ClaimEvent};
use crate::intents::claims::disks::Disks;
use crate::intents::claims::locked::{LockedClaim, refuse_protected, refuse_released};
use crate::intents::claims::release;
use crate::intents::dry_run;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::preconditions::Preconditions;
use crate::intents::writing::{self, Effect};
use crate::{db, document};

/// The longest reason, in bytes.
const REASON: usize = 1000;

/// The result of a request to replace a node.
enum Requested {
    /// The operation bringing the new node to service, and the node's name.
    Begun {
        operation: OperationId,
        node: String,
    },
    /// A second person must approve first.
    NeedsApproval {
        pending: PendingApproval,
        node: String,
    },
}

/// Replaces the node of a claim, for the API and the pages.
///
/// # Errors
/// The errors of the route `replace_claim`.
pub async fn replace(
    app: &App,
    actor: &Actor,
    key: &str,
    idempotency: IdempotencyKey,
    preconditions: Preconditions,
    body: &ReplaceClaim,
) -> Result<Answer, Error> {
    writing::once(app, actor, idempotency, body, async |conn| {
        let locked = LockedClaim::lock(conn, key).await?;
        preconditions.allow_erasure(locked.claim.generation)?;
        let pool = limits::load_pool(conn, locked.claim.pool_id).await?;
        match request(conn, app, actor, &locked, &pool, body).await? {
            Requested::Begun { node, .. } if dry_run::asked() => {
                Answer::ok(&describe_plan(&locked.claim, &pool, &node)).map(Effect::Told)
            }
            Requested::Begun { operation, .. } => Ok(Effect::Begun(operation)),
            Requested::NeedsApproval { pending, .. } if dry_run::asked() => {
                Err(limits::would_need_approval(&pending.because))
            }
            // The transaction commits the request for an approval. The refusal is not stored under
            // the idempotency key.
            Requested::NeedsApproval { pending, .. } => Ok(Effect::Held(pending.refusal())),
        }
    })
    .await
}

/// Returns the plan of a replacement, for a page. The transaction is rolled back. Where a second
/// person must approve, the plan says so.
///
/// # Errors
/// The errors of the replacement, as listed for the route `replace_claim`.
pub async fn plan(
    app: &App,
    actor: &Actor,
    key: &str,
    body: &ReplaceClaim,
) -> Result<NodePlan, Error> {
    writing::plan_effect(app, async |conn| {
        let locked = LockedClaim::lock(conn, key).await?;
        let pool = limits::load_pool(conn, locked.claim.pool_id).await?;
        Ok(
            match request(conn, app, actor, &locked, &pool, body).await? {
                Requested::Begun { node, .. } => describe_plan(&locked.claim, &pool, &node),
                Requested::NeedsApproval { pending, node } => {
                    let because = pending.because;
                    let blockers = vec![format!("{because} Another person must approve first.")];
                    NodePlan {
                        blockers,
                        ..describe_plan(&locked.claim, &pool, &node)
                    }
                }
            },
        )
    })
    .await
}

/// Begins a replacement approved by a second person. The operation and the events name the
/// requesting person.
///
/// # Errors
/// The errors of the route `replace_claim`, without the check of the limits.
pub(crate) async fn begin_approved(
    conn: &mut PgConnection,
    app: &App,
    approver: &Actor,
    asker: &Actor,
    locked: &LockedClaim,
    body: &ReplaceClaim,
) -> Result<OperationId, Error> {
    if let Some(coming) = find_under_way(conn, locked, body).await? {
        return Ok(coming.operation);
    }
    create::allow_image(conn, locked.claim.pool_id, app.clock.now()).await?;
    let requester = approver.acting_for(&asker.name);
    let spare = find_spare(conn, approver, &locked.claim, body).await?;
    let object = Named {
        kind: "node",
        key: &spare.name,
    };
    askers::need(asker, conn, "claim.create", object).await?;
    let reason = body.reason.as_deref();
    bind(conn, app, &requester, locked, &spare, reason).await
}

/// Begins the replacement, returns the replacement already under way, or requests an approval. The
/// caller holds the lock.
async fn request(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    locked: &LockedClaim,
    pool: &PoolSpec,
    body: &ReplaceClaim,
) -> Result<Requested, Error> {
    let reason = body
        .reason
        .as_deref()
        .map(str::trim)
        .filter(|reason| !reason.is_empty());
    if reason.is_some_and(|reason| reason.len() > REASON) {
        return Err(Error::unprocessable(
            "/reason",
            "out_of_range",
            format!("At most {REASON} bytes."),
        ));
    }
    if let Some(coming) = find_under_way(conn, locked, body).await? {
        return Ok(Requested::Begun {
            operation: coming.operation,
            node: coming.coming_node_name,
        });
    }
    create::allow_image(conn, locked.claim.pool_id, app.clock.now()).await?;
    let spare = find_spare(conn, actor, &locked.claim, body).await?;
    let wanted = Wanted {
        claim: &locked.claim,
        replacement: Some(body.node.as_deref()),
        disks: Disks::Kept,
        reason,
        needs_consent: None,
    };
    if let Some(pending) = limits::request_approval(conn, app, actor, wanted, pool).await? {
        return Ok(Requested::NeedsApproval {
            pending,
            node: spare.name,
        });
    }
    let operation = bind(conn, app, actor, locked, &spare, reason).await?;
    Ok(Requested::Begun {
        operation,
        node: spare.name,
    })
}

/// Finds the replacement already under way.
///
/// # Errors
/// 409 where the claim cannot get another node, or where another node than the requested one is
/// arriving.
async fn find_under_way(
    conn: &mut PgConnection,
    locked: &LockedClaim,
    body: &ReplaceClaim,
) -> Result<Option<Replacement>, Error> {
    let LockedClaim { claim, node } = locked;
    match claim.state {
        _ if node.protected => return Err(refuse_protected(node)),
        ClaimState::Bound => {}
        ClaimState::Releasing => {
            let detail = format!(
                "The claim {} is being released: it gets no other node.",
                claim.name
            );
            return Err(Error::conflict("releasing", detail));
        }
        ClaimState::Released => return Err(refuse_released(claim)),
    }
    if let Some(other) = &claim.replaces {
        let detail = format!(
            "{} is the replacement for the claim {other}, so it cannot be replaced.",
            claim.node_name
        );
        return Err(Error::conflict("replacing", detail));
    }
    let Some(one) = release::find_coming(conn, claim.id).await? else {
        return Ok(None);
    };
    if body
        .node
        .as_ref()
        .is_none_or(|name| *name == one.coming_node_name || *name == one.coming_node.to_string())
    {
        return Ok(Some(one));
    }
    let detail = format!(
        "{} is already the replacement for {}; `muster operation cancel {}` releases the node.",
        one.coming_node_name, claim.name, one.operation
    );
    Err(Error::conflict("replacing", detail))
}

/// Locks an available node for the claim: the named node, or any node fitting the pool and the
/// selector.
async fn find_spare(
    conn: &mut PgConnection,
    actor: &Actor,
    claim: &ClaimRow,
    body: &ReplaceClaim,
) -> Result<LockedNode, Error> {
    let profile = create::find_profile(conn, claim.pool_id).await?;
    let spare = match &body.node {
        Some(name) if *name == claim.node_name || *name == claim.node.to_string() => {
            return Err(Error::unprocessable(
                "/node",
                "same",
                format!("{} has this node.", claim.name),
            ));
        }
        Some(name) => create::lock_named(conn, actor, "/node", name, profile).await?,
        None => {
            let unreadable = |why| {
                let detail = format!(
                    "The spec of the claim {} cannot be read ({why}). Write pool and node again with PATCH, or name a node here.",
                    claim.name
                );
                Error::conflict("unreadable", detail)
            };
            let spec: ClaimSpec = document::stored_spec(&claim.spec).map_err(unreadable)?;
            let labels = spec.selector.unwrap_or_default();
            let found = create::lock_any(
                conn,
                &Fits {
                    labels: &labels,
                    profile,
                    site: None,
                },
            )
            .await?;
            found.ok_or_else(|| Error::conflict("no_spare", no_spare(claim, &json!(labels))))?
        }
    };
    let missing = || "No available node in your read scope fits.".to_owned();
    match create::allow_claiming(conn, actor, "node", &spare.name, missing).await {
        Err(Error::Unprocessable(_)) => Err(Error::unprocessable("/node", "not_found", missing())),
        other => other.map(|()| spare),
    }
}

/// The refusal where no available node fits, with the ways to get a node.
fn no_spare(claim: &ClaimRow, labels: &Value) -> String {
    let fits = match labels.as_object().filter(|labels| !labels.is_empty()) {
        Some(_) => format!(
            "of the pool {}'s hardware profile with the labels {labels}",
            claim.pool
        ),
        None => format!("of the pool {}'s hardware profile", claim.pool),
    };
    format!(
        "No node is to spare for {}: it takes an available one {fits}; see `muster node list --filter state=available`. Accept or release one, or name \
         another with --node; {} keeps {} meanwhile.",
        claim.name, claim.name, claim.node_name
    )
}

/// Binds the spare node to a separate claim, with a reference to the claim receiving the node.
async fn bind(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    locked: &LockedClaim,
    spare: &LockedNode,
    reason: Option<&str>,
) -> Result<OperationId, Error> {
    let LockedClaim { claim, node } = locked;
    let (now, id) = (app.clock.now(), ClaimId::new());
    let because = reason
        .map(|reason| format!(": {reason}"))
        .unwrap_or_default();
    let message = format!(
        "{} joins the claim {} as the replacement for {}{because}",
        spare.name, claim.name, node.name
    );
    let new = NewOperation {
        claim: Some(claim.id),
        ..actor.operation(now, "replace", spare.id, message.clone())
    };
    let operation = new.id;
    let coming = NewClaim {
        id,
        name: create::generate_name(&claim.name, id),
        spec: json!({ "pool": claim.pool, "node": spare.name }),
        wait_for: WaitFor::default(),
        hold: claim.hold,
        replaces: Some(claim.id),
        replica: false,
        node: spare.id,
        pool: claim.pool_id,
        epoch: spare.epoch + 1,
        actor: actor.author().to_owned(),
        now,
    };
    db::claims::insert(conn, &coming).await?;
    db::operations::insert(conn, &new).await?;
    db::nodes::set_assignment(conn, spare.id, spare.epoch + 1, operation, now).await?;
    let created = ClaimEvent {
        kind: "claim.created",
        summary: format!(
            "{} claimed for {} by {}",
            spare.name, claim.pool, coming.name
        ),
        node: spare.id,
        operation,
        claim: &coming.name,
    };
    create::record(conn, app, actor, created).await?;
    let replacing = ClaimEvent {
        kind: "claim.replacing",
        summary: message,
        node: node.id,
        operation,
        claim: &claim.name,
    };
    create::record(conn, app, actor, replacing).await?;
    Ok(operation)
}

/// The plan of a replacement, one sentence for each node and for the claim.
fn describe_plan(claim: &ClaimRow, pool: &PoolSpec, spare: &str) -> NodePlan {
    let kept = match pool.undo_window_s {
        0 => String::new(),
        seconds => {
            format!("its disks are kept for {seconds} s, so that the release can be undone, and ")
        }
    };
    let (name, node) = (&claim.name, &claim.node_name);
    NodePlan {
        effect: Cost::Wipe.to_string(),
        changes: vec![
            format!(
                "{spare}: its root disk is written with the image {}, and it passes the gates of {}",
                pool.image, pool.suite
            ),
            format!("{name}: has {node} until {spare} is in service, and {spare} from then on"),
            format!(
                "{node}: is then drained and taken out of its cluster; {kept}all of its disks are wiped"
            ),
        ],
        blockers: Vec::new(),
    }
}
