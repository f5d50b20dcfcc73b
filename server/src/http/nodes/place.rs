//! Another name, another rack: actions with a plan. Host name and scheduler's name are fixed while a node is claimed.

use axum::extract::State;
use http::StatusCode;
use muster_api::nodes::{MoveNode, NodePlan, RenameNode};
use muster_api::operations::Operation;
use muster_api::problem::Problem;
use muster_core::ids::OperationId;
use muster_core::values::{InvalidValue, Name};
use serde::Deserialize;
use serde_json::{Value, json};
use sqlx::PgConnection;
use utoipa::IntoParams;

use super::write;
use crate::app::App;
use crate::auth::{Actor, Operator};
use crate::db;
use crate::db::events::NewEvent;
use crate::db::nodes::LockedNode;
use crate::db::operations::NewOperation;
use crate::error::Error;
use crate::http::answer::Answer;
use crate::http::extract::{Json, Path, Query};
use crate::http::idempotency::{Begun, IdempotencyKey};
use crate::http::{document, operations, wake};

/// Whether to do it or to tell what it would do.
#[derive(Clone, Copy, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DryRun {
    /// `true`: answer the plan, change nothing.
    #[serde(default)]
    pub(super) dry_run: bool,
}

/// Gives a node another name. The id stays, and so does everything known under it.
#[utoipa::path(post, path = "/v1/nodes/{node}/actions/rename", tag = "nodes",
    params(("node", description = "Name or id"), DryRun, ("Idempotency-Key" = Option<String>, Header)),
    request_body(content = RenameNode), responses(
    (status = 200, description = "The plan", body = NodePlan),
    (status = 202, description = "Done; Location leads to the operation", body = Operation),
    (status = 409, description = "It is claimed, or the name is taken", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn rename_node(
    State(app): State<App>,
    Operator(actor): Operator,
    Path(key): Path<String>,
    Query(how): Query<DryRun>,
    idempotency: IdempotencyKey,
    Json(body): Json<RenameNode>,
) -> Result<Answer, Error> {
    let wrong = |error: InvalidValue| Error::invalid("/name", "invalid_name", error.why);
    let name: Name = body.name.parse().map_err(wrong)?;
    let mut tx = app.pool.begin().await?;
    let once = match idempotency.begin(&mut tx, &actor, &body).await? {
        Begun::Replay(answer) => return Ok(*answer),
        Begun::First(once) => once,
    };
    let node = write::find(&mut tx, &key).await?;
    let mut blockers = Vec::new();
    if node.claimed {
        blockers.push(format!("{} is claimed: its host name and its name in the scheduler stay.", node.name));
    }
    if name.as_str() != node.name && db::nodes::find_id(&mut tx, name.as_str()).await?.is_some() {
        blockers.push(format!("The name {name} is taken."));
    }
    let changes = vec![format!("name: {} → {name}", node.name)];
    if how.dry_run {
        return Answer::ok(&NodePlan { effect: "in_place".into(), changes, blockers });
    }
    refuse(&blockers)?;
    db::nodes::set_name(&mut tx, node.id, name.as_str(), app.clock.now()).await?;
    let operation = done(&mut tx, &app, &actor, &node, ("rename", &changes, body.reason.as_deref())).await?;
    let operation = operations::load(&mut tx, operation).await?;
    let answer = Answer::ok(&operation)?.status(StatusCode::ACCEPTED).location(operation.link.clone());
    once.store(&mut tx, &answer, app.clock.now()).await?;
    tx.commit().await?;
    wake(&app);
    Ok(answer)
}

/// Puts a node into another rack or unit. Its power goes with it: a rack that cannot feed it is refused.
#[utoipa::path(post, path = "/v1/nodes/{node}/actions/move", tag = "nodes",
    params(("node", description = "Name or id"), DryRun, ("Idempotency-Key" = Option<String>, Header)),
    request_body(content = MoveNode), responses(
    (status = 200, description = "The plan", body = NodePlan),
    (status = 202, description = "Done; Location leads to the operation", body = Operation),
    (status = 409, description = "The rack cannot feed it, or it is claimed and would leave its site", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "It cannot be meant: pointers say where", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn move_node(
    State(app): State<App>,
    Operator(actor): Operator,
    Path(key): Path<String>,
    Query(how): Query<DryRun>,
    idempotency: IdempotencyKey,
    Json(body): Json<MoveNode>,
) -> Result<Answer, Error> {
    let mut tx = app.pool.begin().await?;
    let once = match idempotency.begin(&mut tx, &actor, &body).await? {
        Begun::Replay(answer) => return Ok(*answer),
        Begun::First(once) => once,
    };
    let node = write::find(&mut tx, &key).await?;
    let mut raw = json!({ "labels": node.labels, "annotations": node.annotations, "spec": node.spec });
    let site = body.site.clone().map_or_else(|| node.spec["site"].clone(), Value::from);
    document::merge(&mut raw, &json!({ "spec": { "site": site, "rack": body.rack, "rack_unit": body.rack_unit } }));
    let changes = changes(&node.spec, &raw["spec"]);
    let blockers = no_power(&mut tx, &node, &body.rack).await?;
    if how.dry_run {
        let effect = if changes.is_empty() { "none" } else { "in_place" };
        return Answer::ok(&NodePlan { effect: effect.into(), changes, blockers });
    }
    refuse(&blockers)?;
    let draft = document::typed(&raw)?;
    let id = node.id.to_string();
    write::write(&app, &mut tx, &actor, (&id, Some(node.clone())), draft, raw).await?;
    let operation = done(&mut tx, &app, &actor, &node, ("move", &changes, body.reason.as_deref())).await?;
    let operation = operations::load(&mut tx, operation).await?;
    let answer = Answer::ok(&operation)?.status(StatusCode::ACCEPTED).location(operation.link.clone());
    once.store(&mut tx, &answer, app.clock.now()).await?;
    tx.commit().await?;
    wake(&app);
    Ok(answer)
}

fn changes(before: &Value, after: &Value) -> Vec<String> {
    let told = |value: &Value| match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    ["site", "rack", "rack_unit"]
        .into_iter()
        .filter(|member| before[*member] != after[*member])
        .map(|member| format!("{member}: {} → {}", told(&before[member]), told(&after[member])))
        .collect()
}

/// Why another rack cannot take the power that is reserved for the node. The rack is held until the transaction ends.
async fn no_power(conn: &mut PgConnection, node: &LockedNode, rack: &str) -> Result<Vec<String>, Error> {
    if node.power_reserved_w == 0 || node.spec["rack"] == rack {
        return Ok(Vec::new());
    }
    // A rack that does not exist is told with everything else that is wrong.
    let Some(row) = db::objects::find_for_reference(conn, "rack", rack).await? else { return Ok(Vec::new()) };
    let (budget, committed) = db::lifecycle::hold_rack(conn, row.id).await?;
    let wanted = i64::from(node.power_reserved_w);
    Ok(match budget.map(i64::from) {
        Some(budget) if committed + wanted > budget => vec![format!(
            "{rack}'s power budget: {committed} of {budget} W are committed, {} holds {wanted} W.",
            node.name
        )],
        _ => Vec::new(),
    })
}

fn refuse(blockers: &[String]) -> Result<(), Error> {
    match blockers.is_empty() {
        true => Ok(()),
        false => Err(Error::conflict("blocked", blockers.join(" "))),
    }
}

/// Writes down that it was done, in the transaction that did it.
async fn done(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    node: &LockedNode,
    (kind, changes, reason): (&'static str, &[String], Option<&str>),
) -> Result<OperationId, Error> {
    let now = app.clock.now();
    let because = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    let told = if changes.is_empty() { "nothing to change".to_owned() } else { changes.join(", ") };
    let operation = NewOperation {
        id: OperationId::new(),
        kind,
        node: Some(node.id),
        claim: None,
        actor: actor.name.clone(),
        request_id: actor.request_id.clone(),
        message: told.clone(),
        now,
    };
    db::operations::insert_done(conn, &operation).await?;
    let summary = format!("{}: {told}{because}", node.name);
    let event = NewEvent::node(now, actor.name.clone(), "node.placed", node.id, summary).under(Some(operation.id));
    let event = event.with(json!({ "kind": kind, "changes": changes }));
    db::events::insert(conn, NewEvent { request_id: actor.request_id.clone(), ..event }).await?;
    Ok(operation.id)
}
