//! Machines without service by the agent: rows stored before the API refused such addresses.

use muster_api::subnets::SubnetSpec;
use muster_server::db;
use muster_server::error::Error;

use super::{Found, Host, database};

/// Most MACs in a report.
const MOST: i64 = 50;

pub(super) async fn check(host: &Host) -> Vec<Found> {
    let (nodes, subnets) = (check_nodes(host).await, check_subnets(host).await);
    let mut found: Vec<Found> = nodes.into_iter().chain(subnets).collect();
    if found.is_empty() {
        found.push(Found::ok("the agents can serve every declared address"));
    }
    found
}

async fn check_nodes(host: &Host) -> Vec<Found> {
    let unknown = || {
        vec![Found::unknown(
            "the addresses of nodes cannot be read",
            "see the checks `database` and `schema`",
        )]
    };
    let Ok(pool) = database::connect(host).await else {
        return unknown();
    };
    let listed = async {
        let mut conn = pool.acquire().await?;
        db::dependents::list_unserved(&mut conn, MOST).await
    };
    let listed: Result<Vec<db::dependents::UnservedRow>, Error> = listed.await;
    let Ok(rows) = listed else {
        return unknown();
    };
    rows.into_iter()
        .map(|row| {
            let at = match (row.address, row.subnet) {
                (Some(address), Some(subnet)) => format!(" with {address} on {subnet}"),
                _ => String::new(),
            };
            Found::warn(
                format!("node {} has {}{at}, which no machine can use", row.node, row.mac),
                "the row stays valid as stored; write the MAC of the interface that boots, and an address outside of the agent, the gateway and the dynamic range",
            )
        })
        .collect()
}

async fn check_subnets(host: &Host) -> Vec<Found> {
    let Ok(subnets) = host.client.list_all::<SubnetSpec>(None).await else {
        return vec![Found::unknown(
            "the server's list of subnets is unavailable",
            "see the checks `server` and `token`",
        )];
    };
    let told = |name: &str, spec: &SubnetSpec| -> Vec<Found> {
        spec.list_unanswered()
            .into_iter()
            .map(|one| {
                Found::warn(
                    format!("subnet {name}, {}: {}", one.pointer, one.detail),
                    "the row stays valid as stored; write the subnet again with addresses of machines",
                )
            })
            .collect()
    };
    subnets
        .iter()
        .flat_map(|subnet| told(subnet.name.as_str(), &subnet.spec))
        .collect()
}
