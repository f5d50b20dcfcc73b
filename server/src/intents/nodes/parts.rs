//! Components by serial, and their replacement. The node keeps its id; earlier gate results are
//! void, and a new board or chassis is pinned in place of the old.

use jiff::Timestamp;
use muster_api::nodes::{Component, ReplaceParts, ReplacedPart};
use muster_core::ids::OperationId;
use muster_core::lifecycle::state::Action;
use muster_core::parts::PartKind;
use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::components::{ComponentRow, Exchange};
use crate::db::nodes::LockedNode;
use crate::engine::remains;
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::nodes::requests::{self, ActionRequest};
use crate::intents::nodes::write;
use crate::intents::writing::{self, Effect};

/// The largest number of parts in one request.
const MOST: usize = 64;

/// Records replaced parts, for the API and the pages.
///
/// # Errors
/// The errors of the route `replace_parts`.
pub async fn replace(
    app: &App,
    actor: &Actor,
    key: &str,
    idempotency: IdempotencyKey,
    body: &ReplaceParts,
) -> Result<Answer, Error> {
    writing::once(app, actor, idempotency, body, async |conn| {
        let node = write::find(conn, key).await?;
        record_parts(conn, app, actor, &node, body)
            .await
            .map(Effect::Begun)
    })
    .await
}

/// Requests the inspection of the node, and marks each old part as replaced.
///
/// # Errors
/// 422 for an old serial the node never had; 409 when the node does not allow the action.
async fn record_parts(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    node: &LockedNode,
    body: &ReplaceParts,
) -> Result<OperationId, Error> {
    if !(1..=MOST).contains(&body.parts.len()) {
        return Err(Error::unprocessable(
            "/parts",
            "out_of_range",
            format!("1 to {MOST} parts"),
        ));
    }
    let now = app.clock.now();
    let request = ActionRequest {
        action: Action::ReplaceParts,
        reason: Some(&body.reason),
        until: None,
        suite: None,
        override_budget: None,
    };
    requests::check(request, now)?;
    let operation = requests::write_action(conn, app, actor, node, request).await?;
    for (at, part) in body.parts.iter().enumerate() {
        check(at, part)?;
        let (kind, old, new) = (part.kind, part.old.trim(), part.new.trim());
        let exchange = Exchange { kind, old, new };
        if !db::components::replace(conn, node.id, exchange, &body.reason, now).await? {
            let detail = format!(
                "{} never had a {kind} with serial {old:?}; see its components.",
                node.name
            );
            return Err(Error::unprocessable(
                format!("/parts/{at}/old"),
                "not_found",
                detail,
            ));
        }
        forget_part(conn, node, exchange, &body.reason, now).await?;
        let summary = format!(
            "{}: {kind} {old} was replaced by {new}: {}",
            node.name, body.reason
        );
        let event = actor
            .event(now, "node.part_replaced", Some(node.id), summary)
            .under(Some(operation));
        db::events::insert(
            conn,
            event.with(json!({ "kind": kind, "old": old, "new": new })),
        )
        .await?;
    }
    db::gates::void_runs(conn, node.id, now).await?;
    let summary = format!(
        "{}: every earlier disk was replaced; no disk is left to wipe",
        node.name
    );
    if disks_gone(conn, node).await? {
        remains::end_data(conn, node.id).await?;
        let event = actor.event(now, "node.disks_removed", Some(node.id), summary);
        db::events::insert(conn, event.under(Some(operation))).await?;
    }
    Ok(operation)
}

/// Forgets the pins of a removed board or chassis. A removed disk takes the data out of the node,
/// and the next node with the disk is marked.
async fn forget_part(
    conn: &mut PgConnection,
    node: &LockedNode,
    exchange: Exchange<'_>,
    reason: &str,
    now: Timestamp,
) -> Result<(), Error> {
    match exchange.kind {
        PartKind::Chassis | PartKind::Board => {
            db::components::repin(conn, node.id, exchange.old, exchange.new).await
        }
        PartKind::Disk => remains::keep_disk(conn, node.id, exchange.old, reason, now).await,
        PartKind::Gpu | PartKind::Nic | PartKind::Dimm => Ok(()),
    }
}

fn check(at: usize, part: &ReplacedPart) -> Result<(), Error> {
    let fits = |text: &str| (1..=128).contains(&text.trim().len());
    let fault = |member: &str, code, detail| {
        Error::unprocessable(format!("/parts/{at}/{member}"), code, detail)
    };
    match (fits(&part.old), fits(&part.new)) {
        (false, _) => Err(fault("old", "out_of_range", "1 to 128 bytes")),
        (_, false) => Err(fault("new", "out_of_range", "1 to 128 bytes")),
        _ if part.old.trim() == part.new.trim() => Err(fault(
            "new",
            "same",
            "The new part has the serial of the old part.",
        )),
        _ => Ok(()),
    }
}

/// Marks the node as sanitised where an unclaimed node holds none of its earlier disks, because no
/// data is left to wipe. Disks without a serial cannot be distinguished, so a node with such a disk
/// stays marked. Returns whether the mark changed.
async fn disks_gone(conn: &mut PgConnection, node: &LockedNode) -> Result<bool, Error> {
    let facts = db::facts::latest_live(conn, node.id).await?;
    let all_named = facts.is_some_and(|facts| facts.disks.iter().all(|disk| disk.serial.is_some()));
    Ok(!node.claimed && all_named && db::components::clear_unsanitised(conn, node.id).await?)
}

pub(crate) async fn load(conn: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<Component>, Error> {
    Ok(db::components::list_by_id(conn, ids)
        .await?
        .into_iter()
        .map(render_component)
        .collect())
}

pub(crate) fn render_component(row: ComponentRow) -> Component {
    Component {
        id: row.id,
        node: row.node_name,
        kind: row.kind.to_string(),
        serial: row.serial,
        slot: row.slot,
        model: row.model,
        first_seen: row.first_seen,
        last_seen: row.last_seen,
        replaced_at: row.replaced_at.map(|at| at.to_jiff()),
        replaced_by: row.replaced_by,
        replaced_reason: row.replaced_reason,
    }
}
