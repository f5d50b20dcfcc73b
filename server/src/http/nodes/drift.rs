//! A node held against its stack: what differs, what mending it costs, and what the rules say.

use axum::extract::State;
use muster_api::problem::Problem;
use muster_api::stacks::{DriftItem, NodeDrift};
use muster_core::firmware::Compared;
use muster_core::stacks::diff::{Class, class_of};
use muster_core::stacks::rules::{self, Finding, Level};
use muster_core::stacks::{ItemOutcome, ItemReport, StackSpec};

use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::engine::compatibility::{self, Onto};
use crate::error::Error;
use crate::http::answer::Answer;
use crate::http::extract::Path;

/// What the newest look found that differs from the node's stack. `check-drift` asks for another look.
#[utoipa::path(get, path = "/v1/nodes/{node}/drift", tag = "nodes", params(("node", description = "Name or id")), responses(
    (status = 200, description = "What differs, the dearest first", body = NodeDrift),
    (status = 404, description = "No such node, or it was never held against a stack", body = Problem, content_type = "application/problem+json"),
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
    let look = look.ok_or_else(|| Error::NotFound(format!("a look at node {node:?}")))?;
    let declared = db::specs::find_node(&mut conn, id).await?;
    let seen = db::facts::latest(&mut conn, id).await?;
    let facts = db::facts::latest_live(&mut conn, id).await?;
    let said = db::firmware::latest(&mut conn, id).await?;
    let wanted = declared
        .stack
        .as_ref()
        .map(|stack| stack.firmware_of(facts.as_ref()))
        .unwrap_or_default();
    let firmware = wanted.compare(said.as_ref().map(|said| &said.inventory));
    let mut findings = match &declared.stack {
        Some(stack) => {
            let image = declared.image.as_ref();
            let mut findings =
                compatibility::findings(&mut conn, &declared, stack, image, Onto::System).await?;
            findings.extend(
                seen.as_ref()
                    .map(|seen| rules::expectations(stack, &seen.facts, &seen.source))
                    .unwrap_or_default(),
            );
            findings
        }
        None => Vec::new(),
    };
    findings.extend(
        firmware
            .iter()
            .filter(|one| one.found.is_none())
            .map(unknown),
    );
    let mut items = items(&look.report.items, declared.stack.as_ref());
    items.extend(firmware.iter().filter(|one| one.differs()).map(|one| {
        DriftItem {
            item: one.item.clone(),
            found: one.found.clone(),
            wanted: Some(one.wanted.clone()),
            class: declared
                .stack
                .as_ref()
                .map_or(Class::Reboot, |stack| class_of(&one.item, [stack, stack])),
        }
    }));
    items.sort_by(|a, b| b.class.cmp(&a.class).then_with(|| a.item.cmp(&b.item)));
    let lock = declared
        .stack
        .as_ref()
        .and_then(|stack| stack.lock.as_ref())
        .map(|lock| lock.digest());
    Answer::ok(&NodeDrift {
        node: declared.name,
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

/// What the BMC says nothing of is neither right nor wrong.
fn unknown(one: &Compared) -> Finding {
    Finding {
        rule: "firmware".into(),
        level: Level::Unknown,
        sentence: one.to_string(),
        source: String::new(),
        about: one.item.clone(),
    }
}

/// What differed when it was looked at, and was left so.
fn items(reports: &[ItemReport], stack: Option<&StackSpec>) -> Vec<DriftItem> {
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
