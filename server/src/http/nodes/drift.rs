//! The drift of a node: the differences from its stack, their cost, and the findings of the rules.

use crate::db::facts::Source;
use axum::extract::State;
use muster_api::problem::Problem;
use muster_api::stacks::{DriftItem, NodeDrift};
use muster_core::firmware::Compared;
use muster_core::stacks::diff::{Class, class_of};
use muster_core::stacks::rules::{self, Finding, Level};
use muster_core::stacks::{ItemOutcome, ItemReport, StackSpec};
use sqlx::PgConnection;

use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::specs::OrderNode;
use crate::engine::compatibility::{self, Onto};
use crate::error::Error;
use crate::http::extract::Path;
use crate::intents::answer::Answer;

/// Returns the differences of a node from its stack, as of the latest check.
///
/// The action `check-drift` requests another check.
#[utoipa::path(get, path = "/v1/nodes/{node}/drift",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "node={node}" }))),
    tag = "nodes", params(("node", description = "Name or id")), responses(
    (status = 200, description = "The differing items, the most expensive class first", body = NodeDrift),
    (status = 404, description = "No such node, or the node was never checked against a stack", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn get_node_drift(
    State(app): State<App>,
    _: Actor,
    Path(node): Path<String>,
) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    let id = db::nodes::find_id(&mut conn, &node)
        .await?
        .ok_or_else(|| Error::NotFound(format!("node {node:?}")))?;
    let look = db::drift::find_look(&mut conn, id).await?;
    let look = look.ok_or_else(|| Error::NotFound(format!("a drift check of node {node:?}")))?;
    let spec = db::specs::find_node(&mut conn, id).await?;
    let firmware = compare_firmware(&mut conn, &spec).await?;
    let findings = list_findings(&mut conn, &spec, &firmware).await?;
    let items = list_items(&look.report.items, &firmware, spec.stack.as_ref());
    let lock = spec
        .stack
        .as_ref()
        .and_then(|stack| stack.lock.as_ref())
        .map(|lock| lock.digest());
    Answer::ok(&NodeDrift {
        node: spec.name,
        stack: db::drift::find_stack(&mut conn, id).await?,
        lock: look.report.lock,
        current: lock == Some(look.report.lock),
        observed_at: look.observed_at,
        checked: look.report.items.len() + firmware.len(),
        class: items
            .iter()
            .map(|item| item.class)
            .max()
            .unwrap_or(Class::None),
        items,
        reboot_for: look.report.reboot_for,
        findings,
    })
}

/// Compares the firmware required by the stack with the last inventory of the BMC.
async fn compare_firmware(
    conn: &mut PgConnection,
    spec: &OrderNode,
) -> Result<Vec<Compared>, Error> {
    let facts = db::facts::find_machine(conn, spec.id).await?;
    let seen = db::firmware::latest(conn, spec.id).await?;
    let seen = seen.as_ref().map(|seen| &seen.inventory);
    let compare = |stack: &StackSpec| stack.compare_firmware(facts.as_ref(), seen);
    Ok(spec.stack.as_ref().map(compare).unwrap_or_default())
}

/// The findings of the rules: compatibility, expectations of the stack, and firmware without a
/// known version.
async fn list_findings(
    conn: &mut PgConnection,
    spec: &OrderNode,
    firmware: &[Compared],
) -> Result<Vec<Finding>, Error> {
    let mut findings = Vec::new();
    if let Some(stack) = &spec.stack {
        let image = spec.image.as_ref();
        findings.extend(compatibility::findings(conn, spec, stack, image, Onto::System).await?);
        if let Some(seen) = db::facts::latest(conn, spec.id).await? {
            findings.extend(rules::expectations(
                stack,
                &seen.facts,
                seen.source == Source::Installed,
            ));
        }
    }
    let missing = firmware.iter().filter(|one| one.found.is_none());
    findings.extend(missing.map(describe_unknown));
    Ok(findings)
}

/// The differing items, the most expensive class first.
fn list_items(
    reports: &[ItemReport],
    firmware: &[Compared],
    stack: Option<&StackSpec>,
) -> Vec<DriftItem> {
    let mut items = list_drifted(reports, stack);
    let differs = firmware.iter().filter(|one| one.differs());
    items.extend(differs.map(|one| DriftItem {
        item: one.item.clone(),
        found: one.found.clone(),
        wanted: Some(one.wanted.clone()),
        class: stack.map_or(Class::Reboot, |stack| class_of(&one.item, [stack, stack])),
    }));
    items.sort_by(|a, b| b.class.cmp(&a.class).then_with(|| a.item.cmp(&b.item)));
    items
}

/// The finding for firmware without a version in the BMC's report.
fn describe_unknown(one: &Compared) -> Finding {
    Finding {
        rule: "firmware".into(),
        level: Level::Unknown,
        sentence: one.to_string(),
        source: String::new(),
        about: one.item.clone(),
    }
}

/// The items of the last check with a difference from the stack.
fn list_drifted(reports: &[ItemReport], stack: Option<&StackSpec>) -> Vec<DriftItem> {
    let class = |item: &str| stack.map_or(Class::None, |stack| class_of(item, [stack, stack]));
    let differs = reports
        .iter()
        .filter(|report| report.outcome == ItemOutcome::Differs);
    differs
        .map(|report| DriftItem {
            item: report.item.clone(),
            found: report.before.clone(),
            wanted: report.after.clone(),
            class: class(&report.item),
        })
        .collect()
}
