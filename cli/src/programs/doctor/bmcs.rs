//! Reachability of BMCs from this host. BMCs often have a separate network.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::{Found, Host};

const PATIENCE: Duration = Duration::from_secs(3);
/// Number of tried BMCs: enough to distinguish a missing network from a missing board.
const TRIED: &str = "32";

pub(super) async fn check(host: &Host) -> Vec<Found> {
    let query = [("limit", TRIED), ("fields", "spec.power")];
    let Ok(page) = host.client.get_value(&["nodes"], &query).await else {
        return vec![Found::unknown(
            "the server's list of nodes is unavailable",
            "see the checks `server` and `token`",
        )];
    };
    let addresses: Vec<SocketAddr> = page["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(redfish)
        .collect();
    if addresses.is_empty() {
        return vec![Found::ok("no node with a Redfish BMC is declared yet")];
    }
    let mut trying = JoinSet::new();
    for address in &addresses {
        let address = *address;
        trying.spawn(async move {
            let tried = tokio::time::timeout(PATIENCE, TcpStream::connect(address)).await;
            (address, matches!(tried, Ok(Ok(_))))
        });
    }
    let mut silent = Vec::new();
    while let Some(Ok((address, answers))) = trying.join_next().await {
        if !answers {
            silent.push(address.to_string());
        }
    }
    silent.sort();
    let todo = "add a route and a firewall rule from this host to the BMC network, and check the addresses in the nodes' specs";
    vec![match silent.len() {
        0 => Found::ok(format!("{} BMCs answer", addresses.len())),
        all if all == addresses.len() => Found::fail(
            format!("none of {all} BMCs answers: {}", silent.join(", ")),
            todo,
        ),
        some => Found::warn(
            format!(
                "{some} of {} BMCs do not answer: {}",
                addresses.len(),
                silent.join(", ")
            ),
            todo,
        ),
    }]
}

/// IPMI uses UDP and does not answer unknown callers.
fn redfish(node: &Value) -> Option<SocketAddr> {
    let bmc = node.pointer("/spec/power/redfish/bmc")?;
    let address: IpAddr = bmc["address"].as_str()?.parse().ok()?;
    Some(SocketAddr::new(
        address,
        u16::try_from(bmc["port"].as_u64()?).ok()?,
    ))
}
