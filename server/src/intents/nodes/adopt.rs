//! Adoption of a running machine: the node comes into service with its present system, without a
//! reboot, an installation or a drain. The plan lists each file the adoption writes.

use muster_api::nodes::{AdoptNode, NodePlan};
use muster_core::ids::{ClaimId, OperationId};
use muster_core::lifecycle::state::{Action, State};
use muster_core::values::Name;
use sqlx::PgConnection;

use crate::app::App;
use crate::auth::Actor;
use crate::auth::access::Named;
use crate::db;
use crate::db::adoptions::Adoption;
use crate::db::nodes::LockedNode;
use crate::db::objects::ObjectRow;
use crate::document::fault;
use crate::error::{Error, Fault};
use crate::intents::answer::Answer;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::nodes::place::DryRun;
use crate::intents::nodes::requests::{self, ActionRequest};
use crate::intents::nodes::resolve::find_target;
use crate::intents::nodes::write;
use crate::intents::references::missing_fault;
use crate::intents::writing::{self, Effect};

/// Adopts a machine or returns the plan, for the API and the pages.
///
/// # Errors
/// The errors of the route `adopt_node`.
pub async fn adopt(
    app: &App,
    actor: &Actor,
    key: &str,
    idempotency: IdempotencyKey,
    how: DryRun,
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

/// Writes the adoption: the requested action, the claim and the new assignment of the node.
async fn begin(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    node: &LockedNode,
    adoption: &Adoption,
    reason: Option<&str>,
) -> Result<OperationId, Error> {
    let request = ActionRequest {
        action: Action::Adopt,
        reason,
        until: None,
        suite: None,
        override_budget: None,
    };
    requests::check(request, app.clock.now())?;
    let operation = requests::write_action(conn, app, actor, node, request).await?;
    db::adoptions::set(conn, adoption, app.clock.now()).await?;
    // The marker and the certificates of the machine belong to the new assignment.
    db::nodes::set_assignment(conn, node.id, node.epoch + 1, operation, app.clock.now()).await?;
    Ok(operation)
}

/// Resolves the request: the pool, the credential and the name of the claim.
///
/// # Errors
/// 422 with every fault of the request.
async fn resolve(
    conn: &mut PgConnection,
    actor: &Actor,
    node: &LockedNode,
    body: &AdoptNode,
) -> Result<Adoption, Error> {
    let mut faults: Vec<Fault> = Vec::new();
    let pool = find_pool(conn, actor, &mut faults, &body.pool).await?;
    let credential = find_credential(conn, &mut faults, &body.credential).await?;
    check_host_key(&mut faults, body.host_key.as_deref());
    let claim_name = name_claim(&mut faults, node, body.claim.as_deref());
    if node.profile_id.is_none() {
        let detail = format!("{} has no hardware profile to compare with.", node.name);
        faults.push(fault("/pool", "no_profile", detail));
    }
    actor.need_everywhere("credential.use")?;
    match (pool, credential, faults.is_empty()) {
        (Some(pool), Some(credential), true) => Ok(Adoption {
            node: node.id,
            claim: ClaimId::new(),
            claim_name,
            pool: pool.id,
            pool_name: pool.name,
            credential: credential.id,
            host_key: body.host_key.clone(),
            actor: actor.name.clone(),
        }),
        _ => Err(Error::Unprocessable(faults)),
    }
}

/// Finds the pool of the new claim. The actor needs the permission to claim for the pool. A hidden
/// pool adds the fault of a missing pool.
async fn find_pool(
    conn: &mut PgConnection,
    actor: &Actor,
    faults: &mut Vec<Fault>,
    name: &str,
) -> Result<Option<ObjectRow>, Error> {
    let (kind, key) = ("pool", name);
    let row = find_target(conn, faults, "/pool", kind, Some(name)).await?;
    if row.is_none() {
        return Ok(None);
    }
    match actor.need(conn, "claim.create", Named { kind, key }).await {
        Err(Error::NotFound(_)) => {
            faults.push(missing_fault("/pool", kind, name));
            Ok(None)
        }
        allowed => allowed.map(|()| row),
    }
}

/// Finds the credential for the login at the machine. A credential with another purpose adds a
/// fault.
async fn find_credential(
    conn: &mut PgConnection,
    faults: &mut Vec<Fault>,
    name: &str,
) -> Result<Option<ObjectRow>, Error> {
    let row = find_target(conn, faults, "/credential", "credential", Some(name)).await?;
    if row
        .as_ref()
        .is_some_and(|row| row.spec["purpose"] != "adopt")
    {
        faults.push(fault(
            "/credential",
            "wrong_purpose",
            "A credential whose purpose is adopt.",
        ));
    }
    Ok(row)
}

/// Checks the form of a given host key: `SHA256:` and 43 characters, as printed by `ssh-keygen -l`.
fn check_host_key(faults: &mut Vec<Fault>, host_key: Option<&str>) {
    let fingerprint = |text: &str| {
        text.strip_prefix("SHA256:")
            .is_some_and(|hash| hash.len() == 43)
    };
    if host_key.is_some_and(|text| !fingerprint(text)) {
        faults.push(fault(
            "/host_key",
            "invalid_value",
            "A fingerprint as ssh-keygen -l prints it: SHA256:…",
        ));
    }
}

/// The name of the new claim: the requested name, or the name of the node.
fn name_claim(faults: &mut Vec<Fault>, node: &LockedNode, requested: Option<&str>) -> String {
    match requested.map(str::parse::<Name>) {
        None => node.name.clone(),
        Some(Ok(name)) => name.to_string(),
        Some(Err(error)) => {
            faults.push(fault("/claim", "invalid_name", error.why));
            String::new()
        }
    }
}

/// Builds the plan: the files written on the machine, and the new state of the node.
fn plan(node: &LockedNode, adoption: &Adoption, body: &AdoptNode) -> NodePlan {
    let mut blockers = Vec::new();
    if node.state != State::Discovered {
        blockers.push(format!(
            "{} is {}; only a discovered node is adopted.",
            node.name, node.state
        ));
    }
    if body.host_key.is_none() {
        blockers.push(
            "No host key was confirmed: the adoption shows the key of the machine and stops."
                .into(),
        );
    }
    NodePlan {
        effect: "in_place".into(),
        changes: vec![
            format!(
                "/root/.ssh/authorized_keys: one line that trusts Muster's CA for assignment {}",
                node.epoch + 1
            ),
            "/etc/muster/marker.json: the assignment of the machine".into(),
            "/usr/local/sbin/muster-node: the program that reads the inventory; it opens no port"
                .into(),
            format!(
                "{} is claimed for {} by {} and in service, protected",
                node.name, adoption.pool_name, adoption.claim_name
            ),
            "the secret of the credential is deleted".into(),
        ],
        blockers,
    }
}
