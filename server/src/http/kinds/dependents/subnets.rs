//! Subnets: the addresses of nodes stay hosts of the network, apart from the agent, the gateway and
//! the dynamic range. DHCP would otherwise give a node an address outside of its netmask, or its
//! own address as gateway.

use std::collections::BTreeMap;
use std::net::IpAddr;

use muster_api::subnets::SubnetSpec;
use sqlx::PgConnection;

use super::refusal;
use crate::auth::Actor;
use crate::db;
use crate::db::objects::ObjectRow;
use crate::document;
use crate::error::Error;
use crate::intents::nodes::addresses::find_conflict;

/// Rejects a changed subnet that takes the address of a node. An address already in conflict with
/// the former subnet may stay in the same conflict.
///
/// # Errors
/// 409 naming the nodes; when the database fails.
pub(in crate::http::kinds) async fn keep_addresses(
    conn: &mut PgConnection,
    actor: &Actor,
    before: &ObjectRow,
    row: &ObjectRow,
) -> Result<(), Error> {
    let new: SubnetSpec = document::stored(row)?;
    let former: Option<SubnetSpec> = document::stored(before).ok();
    let mut broken = BTreeMap::new();
    for reserved in db::dependents::list_reserved(conn, row.id).await? {
        let IpAddr::V4(address) = reserved.address else {
            continue;
        };
        let Some(conflict) = find_conflict(&new, address) else {
            continue;
        };
        let had = former
            .as_ref()
            .and_then(|former| find_conflict(former, address));
        if had != Some(conflict) {
            broken.insert(reserved.node, conflict.describe(&new, address));
        }
    }
    let rule = format!("The change takes the addresses of subnet {} from", row.name);
    let advice = "Give each node another address in `macs` first, or keep these addresses outside of \
                  the agent, the gateway and the range. Release a claimed node first.";
    refusal::refuse(conn, actor, &broken, &rule, advice).await
}
