//! The time service for nodes on the agent's host.

use std::net::{Ipv4Addr, SocketAddrV4};

use muster_agent::work::time_service::{NTP_PORT, TimeService, ask_time};
use tokio::task::JoinSet;

use super::{Found, Host, addresses};

pub(super) async fn check(host: &Host) -> Vec<Found> {
    let addresses = addresses::known(host);
    if addresses.is_empty() {
        return vec![Found::unknown(
            "this host knows no provisioning network",
            "give the subnet's agent address with --address",
        )];
    }
    let mut asked: JoinSet<Found> = addresses
        .into_iter()
        .map(|address| async move {
            let found = ask_time(SocketAddrV4::new(address, NTP_PORT)).await;
            describe(address, found)
        })
        .collect();
    let mut found = Vec::new();
    while let Some(ended) = asked.join_next().await {
        found.extend(ended);
    }
    found
}

fn describe(address: Ipv4Addr, found: TimeService) -> Found {
    match found {
        TimeService::Serves => Found::ok(format!("{address} serves the time to nodes")),
        TimeService::Unsynchronised => Found::warn(
            format!("the time service at {address} is not synchronised, and nodes do not follow"),
            "name a server in /etc/chrony/chrony.conf, or write `local stratum 10` there",
        ),
        TimeService::Silent => Found::warn(
            format!("no time service answers at {address}, so the clocks of nodes drift apart"),
            "apt install chrony; the agent opens chrony for its networks if the agent runs as root, otherwise write `allow NETWORK` into /etc/chrony/chrony.conf",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn only_a_synchronised_service_is_well() {
        let services = [
            TimeService::Serves,
            TimeService::Unsynchronised,
            TimeService::Silent,
        ];
        let verdicts = services.map(|found| describe(Ipv4Addr::LOCALHOST, found).0);
        assert_eq!(verdicts, [Verdict::Ok, Verdict::Warn, Verdict::Warn]);
    }
}
