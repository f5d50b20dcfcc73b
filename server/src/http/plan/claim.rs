//! Plans of claims and of releases.

use muster_api::claims::CreateClaim;
use muster_api::plans::{Desired, PlannedObject};
use muster_core::effects::Effect;
use muster_core::values::{InvalidValue, Name};
use serde_json::json;
use sqlx::PgConnection;

use super::{Change, diff, fit, planned, reach};
use crate::app::App;
use crate::auth::Actor;
use crate::auth::access::Named;
use crate::db;
use crate::db::claims::ClaimRow;
use crate::document::Document;
use crate::error::Error;
use crate::intents::claims::change;
use crate::intents::claims::change::Content;
use crate::intents::claims::create;
use crate::intents::claims::disks::Disks;
use crate::intents::claims::locked::LockedClaim;
use crate::intents::claims::release;

/// Plans a claim. A new claim binds a node, and a change of a claim affects no node.
pub(super) async fn plan_claim(
    app: &App,
    conn: &mut PgConnection,
    actor: &Actor,
    object: &Desired,
) -> Result<PlannedObject, Error> {
    actor.need_somewhere("claim.create")?;
    let content = Document::<Content>::read(json!({ "spec": object.spec }))?;
    match db::claims::find(conn, &object.name).await? {
        Some(row) => plan_change(app, conn, actor, object, &row, content).await,
        None => plan_creation(app, conn, actor, object).await,
    }
}

/// Plans the change of an existing claim. The permissions are checked under the name in the
/// request, because a refusal must not reveal the id of a claim outside the actor's read scope.
async fn plan_change(
    app: &App,
    conn: &mut PgConnection,
    actor: &Actor,
    object: &Desired,
    row: &ClaimRow,
    content: Document<Content>,
) -> Result<PlannedObject, Error> {
    let named = || Named {
        kind: "claim",
        key: &object.name,
    };
    actor.need(conn, "fleet.read", named()).await?;
    if row.spec == object.spec {
        return Ok(planned(object, Change::Unchanged, Vec::new()));
    }
    actor.need(conn, "claim.release", named()).await?;
    let LockedClaim { claim, .. } = LockedClaim::lock(conn, &row.id.to_string()).await?;
    let change = match change::change(conn, app, actor, &claim, content).await? {
        true => Change::Changed,
        false => Change::Unchanged,
    };
    let differences = diff::list_differences(
        Some(&json!({ "spec": claim.spec })),
        &json!({ "spec": object.spec }),
    );
    Ok(planned(object, change, differences))
}

/// Plans a new claim, with the node to be bound.
async fn plan_creation(
    app: &App,
    conn: &mut PgConnection,
    actor: &Actor,
    object: &Desired,
) -> Result<PlannedObject, Error> {
    let wrong = |error: InvalidValue| Error::invalid("/name", "invalid_name", error.why);
    let name: Name = object.name.parse().map_err(wrong)?;
    let claim = json!({ "name": name, "spec": object.spec });
    let claim = Document::<CreateClaim>::read(claim)?;
    let pool = claim.typed().spec.pool.clone();
    let bound = create::create(conn, app, actor, claim).await?;
    let pools: Vec<_> = db::objects::find(conn, "pool", &pool)
        .await?
        .into_iter()
        .map(|row| row.id)
        .collect();
    let differences = diff::list_differences(None, &json!({ "spec": object.spec }));
    let planned = planned(object, Change::Created, differences);
    let gates = reach::list_gates(conn, &pools).await?;
    let nodes = vec![bound.node];
    // The claim exists inside this transaction, so its node counts as held.
    let findings = fit::check_claimed(conn, &nodes).await?;
    Ok(PlannedObject {
        effect: Effect::Reinstall.to_string(),
        begins: true,
        nodes,
        node_count: 1,
        gates,
        findings,
        ..planned
    })
}

/// Plans the release of a claim. The release is begun and rolled back, so that limits and refusals
/// apply.
pub(super) async fn plan_release(
    app: &App,
    conn: &mut PgConnection,
    actor: &Actor,
    object: &Desired,
) -> Result<PlannedObject, Error> {
    actor.need_somewhere("claim.release")?;
    let nothing = planned(object, Change::Unchanged, Vec::new());
    let Some(claim) = db::claims::find(conn, &object.name).await? else {
        return Ok(nothing);
    };
    let named = Named {
        kind: "claim",
        key: &object.name,
    };
    match actor.need(conn, "claim.release", named).await {
        // A claim outside the actor's read scope is planned as a missing claim.
        Err(Error::NotFound(_)) => return Ok(nothing),
        allowed => allowed?,
    }
    let disks = if object.erase_now {
        Disks::ErasedNow
    } else {
        Disks::Kept
    };
    let Some(plan) = release::plan(app, conn, actor, &claim, disks).await? else {
        return Ok(nothing);
    };
    Ok(PlannedObject {
        change: "delete".into(),
        effect: Effect::Wipe.to_string(),
        begins: true,
        node_count: i64::try_from(plan.nodes.len()).unwrap_or(i64::MAX),
        nodes: plan.nodes,
        limits: plan.limits,
        ..nothing
    })
}
