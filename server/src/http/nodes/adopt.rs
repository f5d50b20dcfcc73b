//! Adopting a machine that runs already: it comes into service as it is. Nothing is rebooted, installed or drained; what is written there is told
//! before.

use axum::extract::State;
use muster_api::nodes::{AdoptNode, NodePlan};
use muster_api::operations::Operation;
use muster_api::problem::Problem;
use muster_core::ids::{ClaimId, OperationId};
use muster_core::lifecycle::state::Wish;
use muster_core::values::Name;
use sqlx::PgConnection;

use super::actions::{self, Asked};
use super::place::DryRun;
use super::write::{self, target};
use crate::app::App;
use crate::auth::Actor;
use crate::auth::access::Named;
use crate::db;
use crate::db::adoptions::Adoption;
use crate::db::nodes::LockedNode;
use crate::error::{Error, Fault};
use crate::http::answer::Answer;
use crate::http::declared::fault;
use crate::http::extract::{Json, Path};
use crate::http::idempotency::IdempotencyKey;
use crate::http::writing::{self, Effect};

/// Takes a discovered node that runs already into service for a pool, as it is.
#[utoipa::path(post, path = "/v1/nodes/{node}/actions/adopt", tag = "nodes",
    params(("node", description = "Name or id"), ("Idempotency-Key" = Option<String>, Header)),
    request_body(content = AdoptNode), responses(
    (status = 200, description = "The plan", body = NodePlan),
    (status = 202, description = "Asked; Location leads to the operation", body = Operation),
    (status = 409, description = "The node's state does not allow it, or it is busy", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "It cannot be meant: pointers say where", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn adopt_node(
    State(app): State<App>,
    actor: Actor,
    Path(key): Path<String>,
    idempotency: IdempotencyKey,
    Json(body): Json<AdoptNode>,
) -> Result<Answer, Error> {
    adopt(&app, &actor, &key, (idempotency, DryRun::asked()), &body).await
}

/// Adopts, or tells the plan, as the API and the pages do.
///
/// # Errors
/// As [`adopt_node`] answers.
pub async fn adopt(
    app: &App,
    actor: &Actor,
    key: &str,
    (idempotency, how): (IdempotencyKey, DryRun),
    body: &AdoptNode,
) -> Result<Answer, Error> {
    writing::once(app, actor, idempotency, body, async |conn| {
        let node = write::find(conn, key).await?;
        let adoption = resolve(conn, actor, &node, body).await?;
        if how.dry_run {
            return Ok(Effect::Told(Answer::ok(&plan(&node, &adoption, body))?));
        }
        begin(conn, app, actor, &node, &adoption, body.reason.as_deref())
            .await
            .map(Effect::Begun)
    })
    .await
}

async fn begin(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    node: &LockedNode,
    adoption: &Adoption,
    reason: Option<&str>,
) -> Result<OperationId, Error> {
    let asked = Asked {
        wish: Wish::Adopt,
        reason,
        until: None,
        suite: None,
    };
    actions::check(asked, app.clock.now())?;
    let operation = actions::write_wish(conn, app, actor, node, asked).await?;
    db::adoptions::set(conn, adoption, app.clock.now()).await?;
    // Its marker and its certificates are of the assignment that begins.
    db::nodes::set_assignment(conn, node.id, node.epoch + 1, operation, app.clock.now()).await?;
    Ok(operation)
}

async fn resolve(
    conn: &mut PgConnection,
    actor: &Actor,
    node: &LockedNode,
    body: &AdoptNode,
) -> Result<Adoption, Error> {
    let mut faults: Vec<Fault> = Vec::new();
    let pool = target(conn, &mut faults, "/pool", "pool", Some(&body.pool)).await?;
    let credential = target(
        conn,
        &mut faults,
        "/credential",
        "credential",
        Some(&body.credential),
    )
    .await?;
    if credential
        .as_ref()
        .is_some_and(|row| row.spec["purpose"] != "adopt")
    {
        faults.push(fault(
            "/credential",
            "wrong_purpose",
            "A credential whose purpose is adopt.",
        ));
    }
    let fingerprint = |text: &str| {
        text.strip_prefix("SHA256:")
            .is_some_and(|hash| hash.len() == 43)
    };
    if body
        .host_key
        .as_deref()
        .is_some_and(|text| !fingerprint(text))
    {
        faults.push(fault(
            "/host_key",
            "invalid_value",
            "A fingerprint as ssh-keygen -l prints it: SHA256:…",
        ));
    }
    let claim = match &body.claim {
        None => node.name.clone(),
        Some(name) => match name.parse::<Name>() {
            Ok(name) => name.to_string(),
            Err(error) => {
                faults.push(fault("/claim", "invalid_name", error.why));
                String::new()
            }
        },
    };
    if node.profile_id.is_none() {
        faults.push(fault(
            "/pool",
            "no_profile",
            format!("{} has no hardware profile to be held against.", node.name),
        ));
    }
    if let Some(pool) = &pool {
        actor
            .need(
                conn,
                "claim.create",
                Named {
                    kind: "pool",
                    key: &pool.name,
                },
            )
            .await?;
    }
    actor.need_everywhere("credential.use")?;
    match (pool, credential, faults.is_empty()) {
        (Some(pool), Some(credential), true) => Ok(Adoption {
            node: node.id,
            claim: ClaimId::new(),
            claim_name: claim,
            pool: pool.id,
            pool_name: pool.name,
            credential: credential.id,
            host_key: body.host_key.clone(),
            actor: actor.name.clone(),
        }),
        _ => Err(Error::Unprocessable(faults)),
    }
}

/// All that is written on the machine, and what becomes of the node.
fn plan(node: &LockedNode, adoption: &Adoption, body: &AdoptNode) -> NodePlan {
    let mut blockers = Vec::new();
    if node.state != "discovered" {
        blockers.push(format!(
            "{} is {}; only a discovered node is adopted.",
            node.name, node.state
        ));
    }
    if body.host_key.is_none() {
        blockers
            .push("No host key was confirmed: adopting shows which one the machine has, and goes no further.".into());
    }
    NodePlan {
        effect: "in_place".into(),
        changes: vec![
            format!("/root/.ssh/authorized_keys: one line that trusts Muster's CA for assignment {}", node.epoch + 1),
            "/etc/muster/marker.json: whose the machine is".into(),
            "/usr/local/sbin/muster-node: the program that reads the inventory; it listens to nobody".into(),
            format!(
                "{} is claimed for {} by {} and in service, protected",
                node.name, adoption.pool_name, adoption.claim_name
            ),
            "the credential's secret is forgotten".into(),
        ],
        blockers,
    }
}
