//! Declared cables compared with the LLDP neighbours of nodes, for a rack and for one of its nodes.

use std::collections::BTreeMap;

use axum::extract::State;
use jiff::Timestamp;
use muster_api::problem::Problem;
use muster_api::racks::{Cabling, FoundCable, RackSpec};
use muster_core::cabling::{CableFinding, findings, sentences};
use sqlx::PgConnection;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::Path;
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::cabling::PlanRow;
use crate::db::filter;
use crate::document;
use crate::error::Error;
use crate::intents::answer::Answer;

/// The routes of cabling.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(get_rack_cabling))
        .routes(routes!(get_node_cabling))
}

/// Compares the declared cables of a rack with the observed ones.
///
/// Each node reports the switch ports received by LLDP on its interfaces. Two cables in each
/// other's ports are reported as swapped. Only nodes of the rack are compared.
#[utoipa::path(get, path = "/v1/racks/{rack}/cabling",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "rack={rack}" }))),
    tag = "racks", params(("rack", description = "Name or id")), responses(
    (status = 200, description = "Every declared cable; an empty list for a rack without a plan", body = Cabling),
    (status = 404, description = "No such rack", body = Problem, content_type = "application/problem+json"),
))]
async fn get_rack_cabling(
    State(app): State<App>,
    actor: Actor,
    Path(rack): Path<String>,
) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    let row = db::objects::find(&mut conn, "rack", &rack).await?;
    let row = row.ok_or_else(|| Error::NotFound(format!("rack {rack:?}")))?;
    let spec: RackSpec = document::stored(&row)?;
    let plan = PlanRow {
        rack: row.id,
        name: row.name,
        cables: spec.cables,
    };
    Answer::ok(&cabling(&mut conn, &actor, plan, None).await?)
}

/// Compares the declared cables of a node with the observed ones.
///
/// The plan comes from the node's rack.
#[utoipa::path(get, path = "/v1/nodes/{node}/cabling",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "node={node}" }))),
    tag = "nodes", params(("node", description = "Name or id")), responses(
    (status = 200, description = "The node's cables; an empty list for a node outside the plan", body = Cabling),
    (status = 404, description = "No such node, or the node has no rack", body = Problem, content_type = "application/problem+json"),
))]
async fn get_node_cabling(
    State(app): State<App>,
    actor: Actor,
    Path(node): Path<String>,
) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    let none = || Error::NotFound(format!("node {node:?}"));
    let id = db::nodes::find_id(&mut conn, &node)
        .await?
        .ok_or_else(none)?;
    let found = db::cabling::find_plan_of(&mut conn, id).await?;
    let (name, plan) =
        found.ok_or_else(|| Error::NotFound(format!("a rack that node {node:?} stands in")))?;
    Answer::ok(&cabling(&mut conn, &actor, plan, Some(&name)).await?)
}

/// Compares the whole plan of a rack, because the other end of a swap is on another node. Returns
/// the cables of one node, or of all nodes. For an actor with a limited read scope, other nodes are
/// left out first.
async fn cabling(
    conn: &mut PgConnection,
    actor: &Actor,
    mut plan: PlanRow,
    own: Option<&str>,
) -> Result<Cabling, Error> {
    let nodes = filter::list_visible(conn, &filter::NODES, &actor.sight()).await?;
    let rows = db::cabling::list_heard(conn, nodes.as_deref(), &[plan.rack]).await?;
    if nodes.is_some() {
        plan.cables.retain(|cable| {
            own == Some(cable.node.as_str()) || rows.iter().any(|row| row.node == cable.node)
        });
    }
    let seen: BTreeMap<String, Timestamp> = rows
        .iter()
        .map(|row| (row.node.clone(), row.observed_at))
        .collect();
    let heard = rows
        .into_iter()
        .map(|row| (row.node, row.neighbours))
        .collect();
    let mut found = findings(&plan.cables, &heard);
    found.retain(|finding| own.is_none_or(|own| finding.cable.node == own));
    Ok(Cabling {
        rack: plan.name,
        wrong: found.iter().filter(|finding| finding.state.wrong()).count(),
        findings: sentences(&found),
        cables: found
            .into_iter()
            .map(|finding| found_cable(finding, &seen))
            .collect(),
    })
}

fn found_cable(finding: CableFinding, seen: &BTreeMap<String, Timestamp>) -> FoundCable {
    let CableFinding { cable, state, told } = finding;
    let observed_at = seen.get(&cable.node).copied();
    FoundCable {
        node: cable.node,
        nic: cable.nic,
        switch: cable.switch,
        port: cable.port,
        state,
        told,
        observed_at,
    }
}
