//! Rename and move: actions with a plan. The host name and the name in the scheduler are fixed
//! while a node is claimed.

use muster_api::nodes::{MoveNode, NodePlan, RenameNode};
use muster_core::values::{InvalidValue, Name};
use serde_json::{Value, json};
use sqlx::PgConnection;

use crate::app::App;
use crate::auth::Actor;
use crate::auth::access::Named;
use crate::db;
use crate::db::nodes::LockedNode;
use crate::document::{self, Document};
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::intents::dry_run;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::nodes::resolve::{REFERENCES, find_end};
use crate::intents::nodes::{blockers, budgets};
use crate::intents::nodes::{networks, write};
use crate::intents::references::Referrer;
use crate::intents::writing::{self, Effect};

/// Whether to carry out the action or to return the plan.
#[derive(Clone, Copy, Debug)]
pub struct DryRun {
    pub dry_run: bool,
}

impl DryRun {
    /// Reads `dry_run` of the request in progress.
    pub(crate) fn asked() -> Self {
        Self {
            dry_run: dry_run::asked(),
        }
    }
}

fn answer_plan(plan: &NodePlan) -> Result<Effect, Error> {
    Answer::ok(plan).map(Effect::Told)
}

/// The differing members, one sentence for each.
fn describe_changes(before: &Value, after: &Value) -> Vec<String> {
    let text = |value: &Value| match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    ["site", "rack", "rack_unit"]
        .into_iter()
        .filter(|member| before[*member] != after[*member])
        .map(|member| {
            format!(
                "{member}: {} → {}",
                text(&before[member]),
                text(&after[member])
            )
        })
        .collect()
}

/// Writes the finished operation and its event.
async fn record_done(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    node: &LockedNode,
    kind: &'static str,
    changes: &[String],
    reason: Option<&str>,
) -> Result<Effect, Error> {
    let now = app.clock.now();
    let because = reason
        .map(|reason| format!(": {reason}"))
        .unwrap_or_default();
    let outcome = if changes.is_empty() {
        "nothing to change".to_owned()
    } else {
        changes.join(", ")
    };
    let operation = actor.operation(now, kind, node.id, outcome.clone());
    db::operations::insert_done(conn, &operation).await?;
    let summary = format!("{}: {outcome}{because}", node.name);
    let event = actor
        .event(now, "node.placed", Some(node.id), summary)
        .under(Some(operation.id));
    db::events::insert(
        conn,
        event.with(json!({ "kind": kind, "changes": changes })),
    )
    .await?;
    Ok(Effect::Begun(operation.id))
}

/// Renames a node.
///
/// # Errors
/// 404, 409 when the node is claimed or the name is taken, 422.
pub async fn rename(
    app: &App,
    actor: &Actor,
    key: &str,
    idempotency: IdempotencyKey,
    how: DryRun,
    body: &RenameNode,
) -> Result<Answer, Error> {
    let wrong = |error: InvalidValue| Error::invalid("/name", "invalid_name", error.why);
    let name: Name = body.name.parse().map_err(wrong)?;
    writing::once(app, actor, idempotency, body, async |conn| {
        let node = write::find(conn, key).await?;
        let mut blockers = Vec::new();
        if node.claimed {
            blockers.push(format!(
                "{} is claimed: its host name and its name in the scheduler stay.",
                node.name
            ));
        }
        let changes = vec![format!("name: {} → {name}", node.name)];
        if how.dry_run {
            if name.as_str() != node.name
                && db::nodes::find_id(conn, name.as_str()).await?.is_some()
            {
                blockers.push(format!("The name {name} is taken."));
            }
            return answer_plan(&NodePlan {
                effect: "in_place".into(),
                changes,
                blockers,
            });
        }
        blockers::refuse(&blockers)?;
        db::nodes::set_name(conn, node.id, name.as_str(), app.clock.now()).await?;
        let reason = body.reason.as_deref();
        record_done(conn, app, actor, &node, "rename", &changes, reason).await
    })
    .await
}

/// Checks that the actor may move the locked node to the site and the rack. A plan needs the same
/// rights, because a plan shows the power budget of the rack.
async fn allow_ends(
    conn: &mut PgConnection,
    actor: &Actor,
    node: &LockedNode,
    spec: &Value,
) -> Result<(), Error> {
    let (kind, key) = ("node", node.name.as_str());
    actor.need(conn, "node.move", Named { kind, key }).await?;
    let referrer = Referrer::new(actor, "node.move", REFERENCES, Some(&node.spec));
    let mut faults = Vec::new();
    for kind in ["site", "rack"] {
        let (pointer, name) = (format!("/spec/{kind}"), spec[kind].as_str());
        find_end(conn, &referrer, &mut faults, &pointer, kind, name).await?;
    }
    match faults.is_empty() {
        true => Ok(()),
        false => Err(Error::Unprocessable(faults)),
    }
}

/// Moves a node to another site, rack or rack unit.
///
/// # Errors
/// 403, 404, 409 naming each blocker, 422.
pub async fn relocate(
    app: &App,
    actor: &Actor,
    key: &str,
    idempotency: IdempotencyKey,
    how: DryRun,
    body: &MoveNode,
) -> Result<Answer, Error> {
    writing::once(app, actor, idempotency, body, async |conn| {
        let node = write::find(conn, key).await?;
        let mut raw =
            json!({ "labels": node.labels, "annotations": node.annotations, "spec": node.spec });
        let site = body
            .site
            .clone()
            .map_or_else(|| node.spec["site"].clone(), Value::from);
        document::merge(
            &mut raw,
            &json!({ "spec": { "site": site, "rack": body.rack, "rack_unit": body.rack_unit } }),
        );
        allow_ends(conn, actor, &node, &raw["spec"]).await?;
        let changes = describe_changes(&node.spec, &raw["spec"]);
        let mut blockers = budgets::find_blockers(conn, &node, &body.rack).await?;
        let faults = networks::list_faults(conn, Some(&node.spec), &raw["spec"]).await?;
        blockers.extend(faults.into_iter().map(|fault| fault.detail));
        if how.dry_run {
            let effect = if changes.is_empty() {
                "none"
            } else {
                "in_place"
            };
            return answer_plan(&NodePlan {
                effect: effect.into(),
                changes,
                blockers,
            });
        }
        blockers::refuse(&blockers)?;
        let document = Document::read(raw)?;
        let id = node.id.to_string();
        let current = Some(node.clone());
        write::write(app, conn, actor, &id, current, document).await?;
        let reason = body.reason.as_deref();
        record_done(conn, app, actor, &node, "move", &changes, reason).await
    })
    .await
}
