//! The time service for nodes on the agent's host. The shipped stacks name the agent's address as
//! the server of chrony. The agent opens an installed chrony for the provisioning networks, and
//! asks the own addresses like a node.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::Stdio;
use std::time::Duration;

use muster_core::wire::calls::SiteConfig;
use tokio::net::UdpSocket;
use tokio::process::Command;
use tokio::sync::watch;

/// Port of NTP.
pub const NTP_PORT: u16 = 123;
/// Time limit of a question, and of a call of chronyc.
const PATIENCE: Duration = Duration::from_secs(3);
/// Interval of the look. A restarted chrony has forgotten the networks.
const EVERY: Duration = Duration::from_secs(600);

/// Bytes of a packet without extensions. Below: modes, leap indicator of a clock out of synchrony,
/// positions of the client's time in answer and question, version (RFC 5905, section 7.3).
const PACKET: usize = 48;
const CLIENT: u8 = 3;
const SERVER: u8 = 4;
const UNSYNCHRONISED: u8 = 3;
const ORIGIN: std::ops::Range<usize> = 24..32;
const TRANSMIT: std::ops::Range<usize> = 40..48;
const VERSION: u8 = 4;

/// The time service at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeService {
    /// Nodes can follow the clock.
    Serves,
    /// The service calls its own clock not synchronised, and nodes do not follow.
    Unsynchronised,
    /// No answer.
    Silent,
}

/// Asks for the time, like a client of NTP.
pub async fn ask_time(address: SocketAddrV4) -> TimeService {
    let asking = async {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await.ok()?;
        socket.connect(address).await.ok()?;
        let mark: [u8; 8] = rand::random();
        let mut question = [0; PACKET];
        question[0] = (VERSION << 3) | CLIENT;
        question[TRANSMIT].copy_from_slice(&mark);
        socket.send(&question).await.ok()?;
        let mut packet = [0; 512];
        loop {
            let length = socket.recv(&mut packet).await.ok()?;
            if let Some(found) = read_answer(&packet[..length], mark) {
                return Some(found);
            }
        }
    };
    let found = tokio::time::timeout(PATIENCE, asking).await;
    found.ok().flatten().unwrap_or(TimeService::Silent)
}

/// Returns the state in an answer to the question with the mark; `None` for another packet.
fn read_answer(packet: &[u8], mark: [u8; 8]) -> Option<TimeService> {
    let (first, stratum) = (*packet.first()?, *packet.get(1)?);
    let is_answer = first & 0b111 == SERVER && packet.get(ORIGIN)? == mark.as_slice();
    let follows = first >> 6 != UNSYNCHRONISED && (1..=15).contains(&stratum);
    match (is_answer && packet.len() >= PACKET, follows) {
        (false, _) => None,
        (true, true) => Some(TimeService::Serves),
        (true, false) => Some(TimeService::Unsynchronised),
    }
}

/// A provisioning network, with the agent's address.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Served {
    network: String,
    address: Ipv4Addr,
}

/// Opens chrony for the provisioning networks and reports each address without a time service,
/// until the sender of `configs` is dropped. A change of the site without a change of the networks
/// starts no new look.
pub(super) async fn serve(mut configs: watch::Receiver<Option<SiteConfig>>) {
    let mut reported = BTreeMap::new();
    loop {
        let served = list_served(configs.borrow().as_ref());
        for Served { network, address } in &served {
            allow(network).await;
            let found = ask_time(SocketAddrV4::new(*address, NTP_PORT)).await;
            if reported.insert(*address, found) != Some(found) {
                report(*address, found);
            }
        }
        let other = configs.wait_for(|config| list_served(config.as_ref()) != served);
        tokio::select! {
            changed = async { other.await.map(drop) } => if changed.is_err() { return },
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

fn list_served(site: Option<&SiteConfig>) -> Vec<Served> {
    let subnets = site.map(|site| site.subnets.as_slice()).unwrap_or_default();
    let served = subnets.iter().map(|subnet| Served {
        network: subnet.network.to_string(),
        address: subnet.agent_address,
    });
    served.collect()
}

/// Lets chrony answer a network until its next restart. Without chrony, or without the right, the
/// question afterwards shows the state.
async fn allow(network: &str) {
    let mut command = Command::new("chronyc");
    command
        .args(["-n", "allow", network])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let ended = tokio::time::timeout(PATIENCE, command.status()).await;
    if !matches!(ended, Ok(Ok(status)) if status.success()) {
        tracing::debug!(network, "chrony was not opened for the network");
    }
}

fn report(address: Ipv4Addr, found: TimeService) {
    match found {
        TimeService::Serves => tracing::info!(%address, "this host serves the time to nodes"),
        TimeService::Unsynchronised => tracing::warn!(
            %address,
            "the time service of this host is not synchronised, and nodes do not follow; name a server in chrony's configuration, or write `local stratum 10` there"
        ),
        TimeService::Silent => tracing::warn!(
            %address,
            "no time service answers nodes, so their clocks drift apart; install chrony on this host: apt install chrony"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an answer to the question, with leap indicator, stratum and mode.
    fn answer(question: &[u8], leap: u8, stratum: u8, mode: u8) -> Vec<u8> {
        let mut packet = vec![0; PACKET];
        packet[0] = (leap << 6) | (VERSION << 3) | mode;
        packet[1] = stratum;
        packet[ORIGIN].copy_from_slice(&question[TRANSMIT]);
        packet
    }

    /// Asks a service on this machine that sends the answers to a question.
    async fn ask_service(answers: impl Fn(&[u8]) -> Vec<Vec<u8>>) -> TimeService {
        let service = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, service.local_addr().unwrap().port());
        let answering = async {
            let mut question = [0; PACKET];
            let (length, from) = service.recv_from(&mut question).await.unwrap();
            assert_eq!((length, question[0]), (PACKET, 0x23));
            for packet in answers(&question) {
                service.send_to(&packet, from).await.unwrap();
            }
        };
        tokio::join!(ask_time(address), answering).0
    }

    #[tokio::test]
    async fn a_synchronised_service_is_one_that_nodes_follow() {
        for (leap, stratum, expected) in [
            (0, 2, TimeService::Serves),
            (1, 15, TimeService::Serves),
            (3, 2, TimeService::Unsynchronised),
            (0, 0, TimeService::Unsynchronised),
            (0, 16, TimeService::Unsynchronised),
        ] {
            let found = ask_service(|question| vec![answer(question, leap, stratum, SERVER)]).await;
            assert_eq!(found, expected, "leap {leap}, stratum {stratum}");
        }
    }

    #[tokio::test]
    async fn other_packets_are_no_answers() {
        let found = ask_service(|question| {
            let right = answer(question, 0, 2, SERVER);
            let short = right[..PACKET - 1].to_vec();
            let mut forged = right.clone();
            forged[ORIGIN.start] ^= 1;
            let echoed = answer(question, 0, 2, CLIENT);
            let last = answer(question, 3, 2, SERVER);
            vec![vec![], short, forged, echoed, last]
        });
        assert_eq!(found.await, TimeService::Unsynchronised, "the last packet");
    }

    #[tokio::test]
    async fn a_closed_port_is_silent() {
        let free = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        assert_eq!(ask_time(address).await, TimeService::Silent);
    }
}
