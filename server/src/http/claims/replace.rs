//! Another node for a claim: an available one is bound first and brought to service beside the one that is there; then the claim takes it, and the other is
//! released (`engine/replacements.rs`). What that release needs is looked at here, before anything begins.

use axum::extract::State;
use http::StatusCode;
use muster_api::claims::{ClaimSpec, ReplaceClaim};
use muster_api::nodes::NodePlan;
use muster_api::operations::Operation;
use muster_api::pools::PoolSpec;
use muster_api::problem::Problem;
use muster_core::claims::WaitFor;
use muster_core::effects::Effect as Cost;
use muster_core::ids::{ClaimId, OperationId};
use serde_json::{Value, json};
use sqlx::PgConnection;
use uuid::Uuid;

use super::release::Disks;
use super::{create, release};
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::claims::{ClaimRow, Fits, NewClaim};
use crate::db::nodes::LockedNode;
use crate::db::operations::NewOperation;
use crate::error::Error;
use crate::http::answer::Answer;
use crate::http::approvals::{self, Wanted};
use crate::http::document;
use crate::http::dry_run;
use crate::http::extract::{OptionalJson, Path};
use crate::http::idempotency::IdempotencyKey;
use crate::http::preconditions::Preconditions;
use crate::http::writing::{self, Effect};

/// The longest reason, in bytes.
const REASON: usize = 1000;

/// What came of asking.
enum Asked {
    /// This operation brings the node.
    Begun {
        operation: OperationId,
        node: String,
    },
    /// A second person must agree first.
    Waits {
        approval: Uuid,
        because: String,
        node: String,
    },
}

/// Gives a claim another node: an available one of its pool and selector, or the one that is named, is installed and passes its gates; only once it serves
/// does the claim take it, and the node it had is released. Until then the claim keeps that node, and cancelling the operation leaves it so. The same call
/// again leads to the same operation.
#[utoipa::path(post, path = "/v1/claims/{claim}/actions/replace", tag = "claims",
    params(("claim", description = "Name or id"), ("If-Match" = String, Header), ("Idempotency-Key" = Option<String>, Header)),
    request_body(content = ReplaceClaim), responses(
    (status = 202, description = "The node that comes is the operation's; it is over once the claim has it", body = Operation),
    (status = 409, description = "No node is to spare, the node is protected, the claim is over, or a second person must agree: `second_person`, and Link leads to the approval",
        body = Problem, content_type = "application/problem+json"),
    (status = 412, description = "The claim was changed since it was read", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "There is no such node", body = Problem, content_type = "application/problem+json"),
    (status = 428, description = "If-Match is missing", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn replace_claim(
    State(app): State<App>,
    actor: Actor,
    Path(key): Path<String>,
    idempotency: IdempotencyKey,
    preconditions: Preconditions,
    OptionalJson(body): OptionalJson<ReplaceClaim>,
) -> Result<Answer, Error> {
    replace(&app, &actor, &key, (idempotency, preconditions), &body).await
}

/// Replaces, as the API and the pages do.
///
/// # Errors
/// As [`replace_claim`] answers.
pub async fn replace(
    app: &App,
    actor: &Actor,
    key: &str,
    (idempotency, preconditions): (IdempotencyKey, Preconditions),
    body: &ReplaceClaim,
) -> Result<Answer, Error> {
    let answer = writing::once(app, actor, idempotency, body, async |conn| {
        let (node, claim) = release::locked(conn, key).await?;
        preconditions.allow_removal(claim.generation)?;
        let pool = approvals::pool_of(conn, claim.pool_id).await?;
        match ask(conn, app, actor, (&node, &claim), (&pool, body)).await? {
            Asked::Begun { node, .. } if dry_run::asked() => {
                Answer::ok(&told(&claim, &pool, &node)).map(Effect::Told)
            }
            Asked::Begun { operation, .. } => Ok(Effect::Begun(operation)),
            Asked::Waits { because, .. } if dry_run::asked() => Err(approvals::alone(&because)),
            // The request stays, and the answer says that it is one; it is not the answer to keep under the request's key.
            Asked::Waits {
                approval, because, ..
            } => {
                let waits = Answer::ok(&json!({ "approval": approval, "because": because }))?;
                Ok(Effect::Told(waits.status(StatusCode::CONFLICT)))
            }
        }
    })
    .await?;
    if answer.status != StatusCode::CONFLICT {
        return Ok(answer);
    }
    let text = |name: &str| answer.body[name].as_str().unwrap_or_default().to_owned();
    Err(Error::SecondPerson {
        id: text("approval").parse().map_err(Error::internal)?,
        because: text("because"),
    })
}

/// What replacing would do, for a page: nothing stays.
///
/// # Errors
/// What refuses it, as [`replace_claim`] answers; that a second person must agree is told in the plan.
pub async fn plan(
    app: &App,
    actor: &Actor,
    key: &str,
    body: &ReplaceClaim,
) -> Result<NodePlan, Error> {
    writing::tell(app, async |conn| {
        let (node, claim) = release::locked(conn, key).await?;
        let pool = approvals::pool_of(conn, claim.pool_id).await?;
        Ok(
            match ask(conn, app, actor, (&node, &claim), (&pool, body)).await? {
                Asked::Begun { node, .. } => told(&claim, &pool, &node),
                Asked::Waits { because, node, .. } => {
                    let blockers =
                        vec![format!("{because} Somebody else is asked to agree first.")];
                    NodePlan {
                        blockers,
                        ..told(&claim, &pool, &node)
                    }
                }
            },
        )
    })
    .await
}

/// Begins a replacement that a second person agreed to, for whoever asked.
///
/// # Errors
/// As [`replace_claim`] answers; never that somebody must agree.
pub(in crate::http) async fn approved(
    conn: &mut PgConnection,
    app: &App,
    (by, asked): (&Actor, &str),
    (node, claim): (&LockedNode, &ClaimRow),
    body: &ReplaceClaim,
) -> Result<OperationId, Error> {
    if let Some((operation, _)) = under_way(conn, (node, claim), body).await? {
        return Ok(operation);
    }
    let asker = Actor {
        name: asked.to_owned(),
        ..by.clone()
    };
    let spare = find_spare(conn, by, claim, body).await?;
    bind(
        conn,
        app,
        &asker,
        (node, claim),
        &spare,
        body.reason.as_deref(),
    )
    .await
}

/// Begins, or finds that it has begun, or asks for a second person. The caller holds the claim's node.
async fn ask(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    (node, claim): (&LockedNode, &ClaimRow),
    (pool, body): (&PoolSpec, &ReplaceClaim),
) -> Result<Asked, Error> {
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
    if let Some((operation, node)) = under_way(conn, (node, claim), body).await? {
        return Ok(Asked::Begun { operation, node });
    }
    let spare = find_spare(conn, actor, claim, body).await?;
    let wanted = Wanted {
        claim,
        replacement: Some(body.node.as_deref()),
        disks: Disks::Kept,
        reason,
    };
    if let Some((approval, because)) = approvals::needed(conn, app, actor, wanted, pool).await? {
        return Ok(Asked::Waits {
            approval,
            because,
            node: spare.name,
        });
    }
    let operation = bind(conn, app, actor, (node, claim), &spare, reason).await?;
    Ok(Asked::Begun {
        operation,
        node: spare.name,
    })
}

/// What brings a node for the claim already, with that node; an error where the claim cannot have another one, or another one than asked for comes.
async fn under_way(
    conn: &mut PgConnection,
    (node, claim): (&LockedNode, &ClaimRow),
    body: &ReplaceClaim,
) -> Result<Option<(OperationId, String)>, Error> {
    match claim.state.as_str() {
        _ if node.protected => return Err(release::protected(node)),
        "bound" => {}
        "releasing" => {
            let detail = format!(
                "The claim {} is being released: it gets no other node.",
                claim.name
            );
            return Err(Error::conflict("releasing", detail));
        }
        _ => return Err(release::over(claim)),
    }
    if let Some(other) = &claim.replaces {
        let detail = format!(
            "{} is on its way for the claim {other}: it is not replaced itself.",
            claim.node_name
        );
        return Err(Error::conflict("replacing", detail));
    }
    let Some(one) = release::coming(conn, claim.id).await? else {
        return Ok(None);
    };
    if body
        .node
        .as_ref()
        .is_none_or(|name| *name == one.coming_node_name || *name == one.coming_node.to_string())
    {
        return Ok(Some((one.operation, one.coming_node_name)));
    }
    let detail = format!(
        "{} is on its way for {} already; `muster operation cancel {}` gives it back.",
        one.coming_node_name, claim.name, one.operation
    );
    Err(Error::conflict("replacing", detail))
}

/// An available node that fits the claim, locked: the one that is named, or any of its pool and selector.
async fn find_spare(
    conn: &mut PgConnection,
    actor: &Actor,
    claim: &ClaimRow,
    body: &ReplaceClaim,
) -> Result<LockedNode, Error> {
    let profile = create::profile(conn, claim.pool_id).await?;
    let spare = match &body.node {
        Some(name) if *name == claim.node_name || *name == claim.node.to_string() => {
            return Err(Error::unprocessable(
                "/node",
                "same",
                format!("{} has this node.", claim.name),
            ));
        }
        Some(name) => create::named(conn, ("/node", name), profile).await?,
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
            let found = create::any(
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
    let missing = || "No node of yours fits.".to_owned();
    match create::both(conn, actor, "node", &spare.name, missing).await {
        Err(Error::Unprocessable(_)) => Err(Error::unprocessable("/node", "not_found", missing())),
        other => other.map(|()| spare),
    }
}

/// What to do where nothing is to spare.
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

/// Binds the node that comes: to a claim of its own, which names the one that it is for.
async fn bind(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    (node, claim): (&LockedNode, &ClaimRow),
    spare: &LockedNode,
    reason: Option<&str>,
) -> Result<OperationId, Error> {
    let (now, id) = (app.clock.now(), ClaimId::new());
    let because = reason
        .map(|reason| format!(": {reason}"))
        .unwrap_or_default();
    let message = format!(
        "{} comes for the claim {} in the place of {}{because}",
        spare.name, claim.name, node.name
    );
    let new = NewOperation {
        claim: Some(claim.id),
        ..actor.operation(now, "replace", spare.id, message.clone())
    };
    let operation = new.id;
    let coming = NewClaim {
        id,
        name: create::generated(&claim.name, id),
        spec: json!({ "pool": claim.pool, "node": spare.name }),
        wait_for: WaitFor::default(),
        hold: claim.hold,
        replaces: Some(claim.id),
        replica: false,
        node: spare.id,
        pool: claim.pool_id,
        epoch: spare.epoch + 1,
        actor: actor.name.clone(),
        now,
    };
    db::claims::insert(conn, &coming).await?;
    db::operations::insert(conn, &new).await?;
    db::nodes::set_assignment(conn, spare.id, spare.epoch + 1, operation, now).await?;
    let told = (
        "claim.created",
        format!(
            "{} claimed for {} by {}",
            spare.name, claim.pool, coming.name
        ),
    );
    create::record(conn, app, actor, spare.id, operation, told, &coming.name).await?;
    create::record(
        conn,
        app,
        actor,
        node.id,
        operation,
        ("claim.replacing", message),
        &claim.name,
    )
    .await?;
    Ok(operation)
}

/// The plan in sentences.
fn told(claim: &ClaimRow, pool: &PoolSpec, spare: &str) -> NodePlan {
    let kept = match pool.undo_window_s {
        0 => String::new(),
        seconds => format!("its disks are kept for {seconds} s, in which that can be undone, and "),
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
