//! Changes a claim while the claim holds its node: `spec.hold` and `spec.wait_for`. The node does
//! not change.

use muster_api::claims::ClaimSpec;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::PgConnection;

use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::claims::{Changeable, ClaimRow};
use crate::document::{self, Document};
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::intents::claims::locked::{LockedClaim, refuse_released};
use crate::intents::claims::view;
use crate::intents::preconditions::Preconditions;
use crate::intents::writing;

/// The part of a claim owned by clients.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Content {
    spec: ClaimSpec,
}

/// Whether a spec keeps the fixed members: pool, node and selector. An unreadable stored spec can
/// be repaired by a spec with the claim's pool and with no other node.
fn keeps_node(claim: &ClaimRow, wanted: &ClaimSpec) -> bool {
    let fixed = |spec: &ClaimSpec| (spec.pool.clone(), spec.node.clone(), spec.selector.clone());
    match document::stored_spec::<ClaimSpec>(&claim.spec) {
        Ok(was) => fixed(&was) == fixed(wanted),
        Err(_) => {
            let mut nodes = wanted.node.iter();
            wanted.pool == claim.pool && nodes.all(|node| *node == claim.node_name)
        }
    }
}

/// Changes a claim inside the caller's transaction. The caller has locked the node. Returns whether
/// the spec differs.
///
/// # Errors
/// The errors of the route `patch_claim`.
pub(crate) async fn change(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    claim: &ClaimRow,
    document: Document<Content>,
) -> Result<bool, Error> {
    let (Content { spec: wanted }, mut raw) = document.into_parts();
    if !keeps_node(claim, &wanted) {
        let detail = "Of a claim, hold and wait_for can be changed: for all else, release it and make another. \
                      `muster claim replace` gives it another node.";
        return Err(Error::conflict("immutable", detail));
    }
    let spec = raw.get_mut("spec").map(Value::take).unwrap_or_default();
    if spec == claim.spec {
        return Ok(false);
    }
    let (now, hold) = (app.clock.now(), wanted.hold.unwrap_or_default());
    let to = Changeable {
        spec: &spec,
        wait_for: wanted.wait_for.unwrap_or_default(),
        hold,
    };
    if !db::claims::set_spec(conn, claim.id, to, now).await? {
        return Err(refuse_released(claim));
    }
    let what = match (claim.hold, hold) {
        (false, true) => "is on hold: automation does not change the software of its node",
        (true, false) => "is no longer on hold",
        _ => "was changed",
    };
    let event = actor.event(
        now,
        "claim.changed",
        Some(claim.node),
        format!("the claim {} {what}", claim.name),
    );
    db::events::insert(
        conn,
        event.with(json!({ "claim": claim.name, "hold": hold })),
    )
    .await?;
    Ok(true)
}

/// Changes the hold of a claim, and `wait_for`.
///
/// # Errors
/// 404, 409, 412, 422.
pub(crate) async fn patch(
    app: &App,
    actor: &Actor,
    key: &str,
    preconditions: Preconditions,
    patch: &Value,
) -> Result<Answer, Error> {
    writing::write(app, actor, async |conn| {
        let LockedClaim { claim, .. } = LockedClaim::lock(conn, key).await?;
        preconditions.allow_write(Some(claim.generation))?;
        let mut raw = json!({ "spec": claim.spec });
        document::merge(&mut raw, patch);
        change(conn, app, actor, &claim, Document::read(raw)?).await?;
        let object = view::load(conn, &claim.id.to_string()).await?;
        Ok(Answer::ok(&object)?.etag(object.generation))
    })
    .await
}
