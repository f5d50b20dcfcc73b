//! DHCP on the provisioning networks. Depending on the subnet, the server is authoritative, works
//! beside the DHCP server of the site, or is off.

pub mod client; // Detects the kind of boot client
pub mod decide; // The answer, as a pure function
pub mod leases; // Address leases
pub mod wire; // Encodes and decodes messages
pub mod yielding; // Delays answers of an unsure agent

#[cfg(test)]
mod tests;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use muster_core::wire::calls::{DhcpMode, Seen};
use tokio::net::UdpSocket;
use tracing::Span;

use self::client::{Client, machine_uuid};
use self::decide::{Destination, Question, Reply, Via, decide, requested};
use self::wire::{Kind, Message, Op, code};
use crate::boot::Shared;
use crate::boot::links::{ListenError, interface_of, udp_on};
use crate::boot::lookout::Identity;
use crate::contact::Tenure;

/// A DHCP listener for an interface, with the features needed by the subnets of the interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DhcpLink {
    /// Addresses of the agent on the interface, named by the subnets. Never empty.
    pub addresses: Vec<Ipv4Addr>,
    /// Some subnet needs address leases.
    pub authoritative: bool,
    /// Some subnet works beside the DHCP server of the site.
    pub proxy: bool,
}

/// Serves DHCP on an interface until the socket fails. `up` is called after the listener is ready.
pub async fn serve(
    shared: Arc<Shared>,
    link: DhcpLink,
    up: impl FnOnce(),
) -> Result<(), ListenError> {
    let address = *link
        .addresses
        .first()
        .ok_or(ListenError::NoInterface(Ipv4Addr::UNSPECIFIED))?;
    let interface = interface_of(address)?;
    let ports = shared.ports;
    let server = udp_on(&interface, "DHCP", ports.dhcp_server)?;
    let boot_server = link
        .proxy
        .then(|| udp_on(&interface, "PXE boot server", ports.pxe))
        .transpose()?;
    // Beside the DHCP server of the site, offers of other servers are expected.
    let client_port = match (link.authoritative && !link.proxy)
        .then(|| udp_on(&interface, "DHCP client", ports.dhcp_client))
        .transpose()
    {
        Ok(socket) => socket,
        Err(error) => {
            tracing::warn!(%error, "DHCP client port not available: another DHCP server is detected only when a machine chooses its offer");
            None
        }
    };
    up();
    let here = Here {
        shared: &shared,
        link: &link,
        interface: &interface,
    };
    let boot_server = async {
        match &boot_server {
            Some(socket) => answer_all(&here, socket, Via::BootServer).await,
            None => Ok(()),
        }
    };
    let rogues = async {
        match &client_port {
            Some(socket) => watch_for_rogues(&here, socket).await,
            None => Ok(()),
        }
    };
    let ended = tokio::try_join!(answer_all(&here, &server, Via::Server), boot_server, rogues);
    ended.map(|_| ()).map_err(|source| ListenError::Io {
        what: "DHCP",
        at: interface.clone(),
        source,
    })
}

struct Here<'a> {
    shared: &'a Shared,
    link: &'a DhcpLink,
    interface: &'a str,
}

async fn answer_all(here: &Here<'_>, socket: &UdpSocket, via: Via) -> io::Result<()> {
    let mut buffer = [0; wire::MAX_PACKET];
    loop {
        let (length, sender) = socket.recv_from(&mut buffer).await?;
        let Ok(request) = Message::parse(&buffer[..length]) else {
            continue;
        };
        let Some(reply) = consider(here, &request, via) else {
            continue;
        };
        let to = match reply.to {
            Destination::Broadcast => {
                SocketAddr::from((Ipv4Addr::BROADCAST, here.shared.ports.dhcp_client))
            }
            Destination::Relay(relay) => SocketAddr::from((relay, here.shared.ports.dhcp_relay)),
            Destination::Client(client) => {
                SocketAddr::from((client, here.shared.ports.dhcp_client))
            }
            // The source address of a datagram can be invented.
            Destination::Sender if !is_client(here, sender) => continue,
            Destination::Sender => sender,
        };
        if let Err(error) = socket.send_to(&reply.message.encode(), to).await {
            // An error for a single client must not stop the listener. A removed interface causes
            // an error in recv_from.
            let session = here.shared.armed.session(request.mac);
            session.unwrap_or_else(Span::none).in_scope(|| {
                tracing::warn!(interface = here.interface, mac = %request.mac, %to, %error, "DHCP answer not sent; the machine repeats its request");
            });
        }
    }
}

/// Returns whether a sender is inside of a subnet of the interface.
fn is_client(here: &Here, sender: SocketAddr) -> bool {
    let SocketAddr::V4(sender) = sender else {
        return false;
    };
    let (site, agents) = (here.shared.site.borrow(), &here.link.addresses);
    let is_client = agents
        .iter()
        .any(|agent| site.has_client(*agent, *sender.ip()));
    if !is_client {
        tracing::debug!(interface = here.interface, %sender, "PXE request ignored: the source is outside of the interface's subnets");
    }
    is_client
}

/// Notes the address that an armed machine requests at the DHCP server of the site. The script is
/// then given to this address only.
fn note_requested(here: &Here, request: &Message) {
    let is_request = request.op == Op::FromClient && request.kind() == Some(Kind::Request);
    if let Some(address) = requested(request).filter(|_| is_request) {
        here.shared.armed.heard_request(request.mac, address);
    }
}

/// Decides the answer to a message and reports the sighting.
fn consider(here: &Here, request: &Message, via: Via) -> Option<Reply> {
    let shared = here.shared;
    let site = shared.site.borrow().clone();
    let segment = site.segment_for(request.mac, request.giaddr, &here.link.addresses)?;
    let armed = shared.armed_for(request.mac).map(|image| image.address);
    let now = Instant::now();
    let question = Question {
        segment,
        http_port: shared.ports.http,
        armed,
        request,
        via,
        now,
    };
    let reply = decide(&question, &mut shared.leases()).and_then(|reply| {
        // A boot is armed only with a permit for this agent, so an armed machine is answered
        // without waiting for other servers.
        let at_once = armed.is_some() || shared.tenure() == Tenure::Sure;
        if at_once {
            Some(reply)
        } else {
            shared.yielding().hold_back(request, reply, now)
        }
    });
    // Firmware repeats a request without an answer, and an answer without a boot file is final.
    let reply = reply.filter(|_| !has_pending_boot(shared, request));
    note_client(shared, request, reply.as_ref());
    match (segment.subnet.mode, via) {
        (DhcpMode::Authoritative, _) => note_other_server(here, request),
        (DhcpMode::Proxy, Via::Server) => note_requested(here, request),
        (DhcpMode::Proxy, Via::BootServer) | (DhcpMode::Off, _) => {}
    }
    reply
}

/// Returns whether a client that boots from the network may get its boot within seconds.
fn has_pending_boot(shared: &Shared, request: &Message) -> bool {
    let boots = match Client::of(request) {
        Client::Pxe(_) | Client::UefiHttp | Client::Ipxe(_) | Client::Muster(_) => true,
        Client::Os | Client::Foreign(_) => false,
    };
    boots && shared.armed.is_pending(request.mac)
}

fn note_client(shared: &Shared, request: &Message, reply: Option<&Reply>) {
    let client = Client::of(request);
    if request.kind() != Some(Kind::Discover)
        || client == Client::Os
        || !request.mac.is_of_machine()
    {
        return;
    }
    let file = reply
        .and_then(|reply| reply.message.options.get(code::BOOT_FILE))
        .map(String::from_utf8_lossy);
    let answer = match (reply, &file) {
        (_, Some(file)) => format!("armed, {file}"),
        (Some(_), None) => "local boot".to_owned(),
        (None, None) => "no answer".to_owned(),
    };
    let who = Identity {
        uuid: machine_uuid(request),
        serial: None,
    };
    shared.lookout.saw(
        request.mac,
        Seen::Dhcp,
        who,
        format!("{}: {answer}", client.name()),
    );
}

/// Reports a machine choosing another server. The machine broadcasts the choice (RFC 2131 §3.1).
fn note_other_server(here: &Here, request: &Message) {
    let chosen = request.options.address(code::SERVER_ID);
    if let (Some(Kind::Request), Some(server)) = (request.kind(), chosen)
        && !here.link.addresses.contains(&server)
    {
        here.shared
            .yielding()
            .saw_another(request.mac, Instant::now());
        note_rogue(here, request, server, "was chosen by this machine");
    }
}

/// Watches for offers of other servers. Offers are broadcast to the client port, including the
/// offers of this agent.
async fn watch_for_rogues(here: &Here<'_>, socket: &UdpSocket) -> io::Result<()> {
    let mut buffer = [0; wire::MAX_PACKET];
    loop {
        let (length, _) = socket.recv_from(&mut buffer).await?;
        let Ok(message) = Message::parse(&buffer[..length]) else {
            continue;
        };
        let server = message.options.address(code::SERVER_ID);
        if let (Op::FromServer, Some(Kind::Offer | Kind::Ack), Some(server)) =
            (message.op, message.kind(), server)
        {
            note_rogue(here, &message, server, "answered this machine");
        }
    }
}

fn note_rogue(here: &Here, message: &Message, server: Ipv4Addr, did: &str) {
    if !here
        .shared
        .site
        .borrow()
        .subnets
        .iter()
        .any(|segment| segment.subnet.agent_address == server)
    {
        tracing::warn!(%server, interface = here.interface, mac = %message.mac, "another DHCP server answers on a provisioning network; stop the other server or set the subnet to proxy mode");
        let detail = format!("another DHCP server, {server}, {did} on {}", here.interface);
        here.shared
            .lookout
            .saw(message.mac, Seen::RogueDhcp, Identity::default(), detail);
    }
}
