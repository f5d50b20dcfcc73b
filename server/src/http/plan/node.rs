//! Plans of nodes.

use muster_api::nodes::NodeSpec;
use muster_api::object::Draft;
use muster_api::plans::{Desired, PlannedObject};
use muster_core::effects::Effect;
use serde_json::json;
use sqlx::PgConnection;

use super::{Change, diff, plan_parts, planned};
use crate::app::App;
use crate::auth::Actor;
use crate::auth::access::Named;
use crate::db;
use crate::document::Document;
use crate::error::Error;
use crate::intents::nodes::write::{Change as Written, write};

/// Plans the registration or the change of a node.
pub(super) async fn plan_node(
    app: &App,
    conn: &mut PgConnection,
    actor: &Actor,
    object: &Desired,
) -> Result<PlannedObject, Error> {
    actor.need_somewhere("node.write")?;
    let before = db::nodes::find_for_update(conn, &object.name).await?;
    if let Some(node) = &before {
        let key = node.id.to_string();
        let named = Named {
            kind: "node",
            key: &key,
        };
        actor.need(conn, "node.write", named).await?;
    }
    let was = before
        .as_ref()
        .map(|row| plan_parts(&json!(row.labels), &json!(row.annotations), &row.spec));
    let claimed = before.as_ref().is_some_and(|node| node.claimed);
    let raw = plan_parts(
        &json!(object.labels),
        &json!(object.annotations),
        &object.spec,
    );
    let document = Document::<Draft<NodeSpec>>::read(raw.clone())?;
    let accepted = document.typed().spec.accept;
    let written = write(app, conn, actor, &object.name, before, document).await?;
    let differences = diff::list_differences(was.as_ref(), &raw);
    let relabelled = differences
        .iter()
        .any(|difference| difference.pointer.starts_with("/labels"));
    let (change, effect) = match written.change {
        // An accepted node boots the live image for its inspection.
        Written::Registered if accepted => (Change::Created, Effect::Reboot),
        Written::Registered => (Change::Created, Effect::None),
        // A file of the node's stack may name a label.
        Written::Replaced if claimed && relabelled => (Change::Changed, Effect::InPlace),
        Written::Replaced => (Change::Changed, Effect::None),
        Written::None => (Change::Unchanged, Effect::None),
    };
    let planned = planned(object, change, differences);
    Ok(match effect {
        Effect::None => planned,
        effect => PlannedObject {
            effect: effect.to_string(),
            begins: change == Change::Created,
            nodes: vec![object.name.clone()],
            node_count: 1,
            ..planned
        },
    })
}
