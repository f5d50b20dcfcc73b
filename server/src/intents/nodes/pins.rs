//! The pinned certificate of a node's BMC, at the write of a node. The pin stays when the address
//! changes: an agent sends no password to a BMC with another certificate. After a check, a person
//! accepts the new certificate by writing the digest into the spec.

use std::net::SocketAddr;

use muster_api::nodes::{NodePower, NodeSpec};
use muster_core::ids::NodeId;
use muster_core::values::Digest;
use serde_json::{Value, json};
use sqlx::PgConnection;

use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::nodes::Content;
use crate::document;
use crate::error::Error;

/// Returns the certificate that a write accepts: the member of the new spec, if the member changes.
/// An unchanged member has no effect, because the pin of a replaced board is observed again.
pub(crate) fn find_accepted(former: Option<&Value>, spec: &Value) -> Option<Digest> {
    let new = read_certificate(spec)?;
    (former.and_then(read_certificate) != Some(new)).then_some(new)
}

fn read_certificate(spec: &Value) -> Option<Digest> {
    match document::stored_spec::<NodeSpec>(spec).ok()?.power {
        NodePower::Redfish { bmc } => bmc.certificate,
        NodePower::Ipmi { .. } | NodePower::Manual { .. } => None,
    }
}

fn read_place(spec: &Value) -> Option<SocketAddr> {
    let power = document::stored_spec::<NodeSpec>(spec).ok()?.power;
    let bmc = power.find_bmc()?;
    Some(SocketAddr::new(bmc.address, bmc.port))
}

/// Emits an event for a changed address of the BMC, and for an accepted certificate.
pub(crate) async fn record_changes(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    id: NodeId,
    former: &Value,
    content: &Content,
) -> Result<(), Error> {
    let now = app.clock.now();
    let (old, new) = (read_place(former), read_place(&content.spec));
    if let (Some(old), Some(new)) = (old, new)
        && old != new
    {
        let summary = format!(
            "the BMC's address changes from {old} to {new}; a pinned certificate stays pinned"
        );
        let event = actor.event(now, "bmc.address_changed", Some(id), summary);
        let detail = json!({ "from": old.to_string(), "to": new.to_string() });
        db::events::insert(conn, event.with(detail)).await?;
    }
    if let Some(certificate) = &content.certificate {
        let summary = format!("the BMC's certificate {certificate} is accepted");
        let event = actor.event(now, "bmc.certificate_accepted", Some(id), summary);
        let detail = json!({ "certificate": certificate });
        db::events::insert(conn, event.with(detail)).await?;
    }
    Ok(())
}
