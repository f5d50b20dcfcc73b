//! Decides the answer to a DHCP message. The decision is a pure function of the subnet, the armed
//! boot, the message, the leases and the time.
//!
//! The most important rule: without an armed boot no machine receives a boot file, so the firmware
//! continues with the local disk.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use muster_core::wire::calls::{DhcpMode, Subnet};

use super::client::{Client, Firmware, machine_uuid};
use super::leases::Leases;
use super::wire::{Kind, Message, Op, Options, code};
use crate::boot::loaders::{FIRST_SCRIPT, SNPONLY, UNDIONLY};
use crate::boot::site::Segment;

/// Lease time of a reserved address. The address never changes its owner, so a machine can keep the
/// address while the agent is down.
const FIXED_LEASE: Duration = Duration::from_secs(24 * 3600);
/// Lease time of a dynamic address. Unknown machines come and go.
const LENT_LEASE: Duration = Duration::from_secs(600);

/// The port receiving the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// Port 67, the DHCP server port.
    Server,
    /// Port 4011, used by PXE clients to ask a boot server for the boot file.
    BootServer,
}

/// All inputs of a decision, except the leases.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The subnet of the request.
    pub segment: &'a Segment,
    /// Port of the HTTP boot listener.
    pub http_port: u16,
    /// The address in the boot armed for the MAC, or `None` without an armed boot.
    pub armed: Option<Ipv4Addr>,
    pub request: &'a Message,
    /// The port receiving the request.
    pub via: Via,
    /// Current time, used for lease times.
    pub now: Instant,
}

/// Destination of an answer (RFC 2131 §4.1). A client without an address always receives a
/// broadcast. Unicast would need an entry in the neighbour table of the kernel, and some firmware
/// ignores unicast before it has an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    Broadcast,
    /// The server port of a configured relay.
    Relay(Ipv4Addr),
    /// The client port of a machine with a configured address inside of the subnet.
    Client(Ipv4Addr),
    /// The source address and port of the request.
    Sender,
}

/// An answer and its destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub message: Message,
    pub to: Destination,
}

/// Decides the answer to a message. `None` means no answer.
pub fn decide(question: &Question, leases: &mut Leases) -> Option<Reply> {
    let request = question.request;
    if request.op != Op::FromClient
        || !request.mac.is_of_machine()
        || !from_known_relay(&question.segment.subnet, request.giaddr)
    {
        return None;
    }
    match (question.segment.subnet.mode, question.via) {
        (DhcpMode::Authoritative, Via::Server) => authoritative(question, leases),
        (DhcpMode::Proxy, _) => proxy(question),
        (DhcpMode::Authoritative, Via::BootServer) | (DhcpMode::Off, _) => None,
    }
}

fn from_known_relay(subnet: &Subnet, giaddr: Ipv4Addr) -> bool {
    giaddr.is_unspecified() || subnet.relays.contains(&giaddr)
}

fn authoritative(question: &Question, leases: &mut Leases) -> Option<Reply> {
    let (request, mac, now) = (question.request, question.request.mac, question.now);
    match request.kind()? {
        Kind::Discover => {
            let given = address_for(question, leases)?;
            leases.offer(mac, given.address, now);
            Some(grant(question, Kind::Offer, given))
        }
        Kind::Request => {
            let chosen = request.options.address(code::SERVER_ID);
            if chosen.is_some_and(|server| server != question.segment.subnet.agent_address) {
                leases.forget(mac);
                return None;
            }
            confirm(question, leases, chosen.is_some())
        }
        Kind::Decline => {
            let address = request.options.address(code::REQUESTED_ADDRESS)?;
            tracing::warn!(%mac, %address, "DHCP decline: the machine found its address in use by another machine; find the other machine with this address");
            leases.decline(mac, address, now);
            None
        }
        Kind::Release => {
            leases.forget(mac);
            None
        }
        Kind::Inform => Some(inform(question)),
        Kind::Offer | Kind::Ack | Kind::Nak => None,
    }
}

/// An address and the lease time.
#[derive(Clone, Copy)]
struct Given {
    address: Ipv4Addr,
    time: Duration,
}

/// Returns the address for a machine. The address of the armed boot has priority over the
/// reservation: the arming job is newer than the configuration and will log in there.
fn address_for(question: &Question, leases: &Leases) -> Option<Given> {
    let (segment, request) = (question.segment, question.request);
    let armed = question
        .armed
        .filter(|address| segment.subnet.network.contains(address));
    let fixed = armed.or_else(|| {
        segment
            .reservation(request.mac)
            .map(|reservation| reservation.address)
    });
    if let Some(address) = fixed {
        return Some(Given {
            address,
            time: FIXED_LEASE,
        });
    }
    let action = requested(request);
    let taken = |address| segment.is_taken(address) || !segment.subnet.network.contains(&address);
    let address = leases.pick(
        request.mac,
        segment.subnet.dynamic_range?,
        action,
        taken,
        question.now,
    )?;
    Some(Given {
        address,
        time: LENT_LEASE,
    })
}

/// Returns the address requested by a client: from the option before the client has an address,
/// from the header in a renewal.
pub(super) fn requested(request: &Message) -> Option<Ipv4Addr> {
    let in_header = Some(request.ciaddr).filter(|address| !address.is_unspecified());
    request
        .options
        .address(code::REQUESTED_ADDRESS)
        .or(in_header)
}

/// Acknowledges the address that would be offered to the machine, and refuses every other address.
/// The server may have no address for a machine that renews or returns with an old lease. Such a
/// request is refused only if the address is outside of the subnet, and otherwise stays unanswered.
fn confirm(question: &Question, leases: &mut Leases, selected_us: bool) -> Option<Reply> {
    let requested = requested(question.request)?;
    match address_for(question, leases) {
        Some(given) if given.address == requested => {
            leases.hold(
                question.request.mac,
                given.address,
                given.time,
                question.now,
            );
            Some(grant(question, Kind::Ack, given))
        }
        None if !selected_us && question.segment.subnet.network.contains(&requested) => None,
        Some(_) | None => Some(refuse(question)),
    }
}

fn grant(question: &Question, kind: Kind, given: Given) -> Reply {
    let mut message = answer(question, kind);
    message.yiaddr = given.address;
    let seconds = u32::try_from(given.time.as_secs()).unwrap_or(u32::MAX);
    message.options.set(code::LEASE_TIME, seconds.to_be_bytes());
    add_network(question, &mut message.options);
    add_boot(question, &mut message);
    if kind == Kind::Ack && !question.request.ciaddr.is_unspecified() {
        message.ciaddr = question.request.ciaddr;
    }
    send(question, message)
}

fn refuse(question: &Question) -> Reply {
    let mut message = answer(question, Kind::Nak);
    message
        .options
        .set(code::MESSAGE, "this address is not yours here");
    message.broadcast = true;
    let relay = question.request.giaddr;
    let to = if relay.is_unspecified() {
        Destination::Broadcast
    } else {
        Destination::Relay(relay)
    };
    Reply { message, to }
}

/// Answers a machine configured elsewhere, without an address and without a lease (RFC 2131
/// §4.3.5).
fn inform(question: &Question) -> Reply {
    let mut message = answer(question, Kind::Ack);
    message.ciaddr = question.request.ciaddr;
    add_network(question, &mut message.options);
    add_boot(question, &mut message);
    send(question, message)
}

/// Answers beside the DHCP server of the site. Only an armed machine is answered, with the boot
/// file and without an address.
fn proxy(question: &Question) -> Option<Reply> {
    let kind = match (question.request.kind()?, question.via) {
        (Kind::Discover, Via::Server) => Kind::Offer,
        (Kind::Request | Kind::Inform, Via::BootServer) => Kind::Ack,
        _ => return None,
    };
    let mut message = answer(question, kind);
    add_boot(question, &mut message);
    message.options.get(code::BOOT_FILE)?;
    if message.options.get(code::VENDOR_CLASS).is_none() {
        message.options.set(code::VENDOR_CLASS, "PXEClient");
        // PXE 2.1 §2.2.3: discovery control 8, "boot the file named here, ask no boot server", then
        // the end of the list.
        message.options.set(code::VENDOR, [6, 1, 8, 255]);
    }
    match question.via {
        Via::Server => Some(send(question, message)),
        Via::BootServer => Some(Reply {
            message,
            to: Destination::Sender,
        }),
    }
}

/// Builds the common part of every answer. Echoes the client id (RFC 6842), the UUID (PXE 2.1) and
/// the relay information (RFC 3046).
fn answer(question: &Question, kind: Kind) -> Message {
    let request = question.request;
    let mut options = Options::default();
    options.set(code::MESSAGE_TYPE, [kind as u8]);
    options.set(
        code::SERVER_ID,
        question.segment.subnet.agent_address.octets(),
    );
    for echoed in [code::CLIENT_ID, code::MACHINE_ID, code::RELAY_AGENT] {
        if let Some(value) = request
            .options
            .get(echoed)
            .filter(|value| value.len() <= 255)
        {
            options.set(echoed, value);
        }
    }
    Message {
        op: Op::FromServer,
        hops: 0,
        xid: request.xid,
        secs: 0,
        broadcast: request.broadcast,
        ciaddr: Ipv4Addr::UNSPECIFIED,
        yiaddr: Ipv4Addr::UNSPECIFIED,
        siaddr: Ipv4Addr::UNSPECIFIED,
        giaddr: request.giaddr,
        mac: request.mac,
        file: Vec::new(),
        options,
    }
}

fn add_network(question: &Question, options: &mut Options) {
    let subnet = &question.segment.subnet;
    options.set(code::SUBNET_MASK, subnet.network.netmask().octets());
    options.set(code::BROADCAST, subnet.network.broadcast().octets());
    if let Some(gateway) = subnet.gateway {
        options.set(code::ROUTER, gateway.octets());
    }
    if !subnet.dns.is_empty() {
        options.set(
            code::DNS,
            subnet
                .dns
                .iter()
                .flat_map(Ipv4Addr::octets)
                .collect::<Vec<_>>(),
        );
    }
    if let Some(reservation) = question.segment.reservation(question.request.mac)
        && reservation.name.len() <= 63
    {
        options.set(code::HOST_NAME, reservation.name.as_bytes());
    }
}

/// Adds the next boot file for an armed machine. Adds the menu for an immediate local boot for a
/// PXE ROM without an armed boot.
fn add_boot(question: &Question, message: &mut Message) {
    let client = Client::of(question.request);
    let authoritative = question.segment.subnet.mode == DhcpMode::Authoritative;
    if authoritative && matches!(client, Client::Ipxe(_) | Client::Muster(_)) {
        // Sub-option 176, no-pxedhcp: do not wait for the offer of a proxy.
        message.options.set(code::IPXE, [176, 1, 1]);
    }
    match question.armed.and_then(|_| boot_file(question, client)) {
        Some(file) => {
            let agent = question.segment.subnet.agent_address;
            message.siaddr = agent;
            // Old PXE ROMs read the header field, UEFI and iPXE read the options.
            message.options.set(code::TFTP_SERVER, agent.to_string());
            message.options.set(code::BOOT_FILE, file.as_bytes());
            if file.len() < 128 {
                message.file = file.into_bytes();
            }
            if client == Client::UefiHttp {
                message.options.set(code::VENDOR_CLASS, "HTTPClient");
            }
        }
        None if authoritative && matches!(client, Client::Pxe(_)) => {
            leave_at_once(&mut message.options)
        }
        None => {}
    }
}

/// Adds a PXE menu with the single item "local boot" (type 0), selected without a prompt (PXE 2.1
/// §2.2.3). Without the menu UEFI firmware ignores an offer without a boot file, and asks for
/// another minute before booting the disk. iPXE receives no menu, because iPXE exits with an error
/// code and UEFI then continues. After the menu iPXE would exit with success and open the menu of
/// the firmware.
fn leave_at_once(options: &mut Options) {
    const NAME: &[u8] = b"local disk";
    let named = NAME.len() as u8;
    let discovery = [6, 1, 3];
    let menu = [9, 3 + named, 0, 0, named];
    let prompt = [10, 1 + named, 0];
    options.set(code::VENDOR_CLASS, "PXEClient");
    options.set(
        code::VENDOR,
        [&discovery[..], &menu, NAME, &prompt, NAME, &[255]].concat(),
    );
}

/// Returns the next boot file. A PXE ROM loads our iPXE, any iPXE loads the script for replacing it
/// with ours, and our iPXE loads the script of the agent.
fn boot_file(question: &Question, client: Client) -> Option<String> {
    let (agent, port) = (question.segment.subnet.agent_address, question.http_port);
    let base = format!("http://{agent}:{port}/boot/v1");
    match client {
        Client::Os | Client::Foreign(_) => None,
        Client::Pxe(Firmware::Bios) => Some(UNDIONLY.to_owned()),
        Client::Pxe(Firmware::Uefi) => Some(SNPONLY.to_owned()),
        Client::UefiHttp => Some(format!("{base}/loader/{SNPONLY}")),
        Client::Ipxe(_) => Some(FIRST_SCRIPT.to_owned()),
        Client::Muster(firmware) => {
            let platform = if firmware == Firmware::Bios {
                "pcbios"
            } else {
                "efi"
            };
            let uuid = machine_uuid(question.request)
                .map(|uuid| format!("&uuid={uuid}"))
                .unwrap_or_default();
            Some(format!(
                "{base}/ipxe?mac={}{uuid}&platform={platform}",
                question.request.mac
            ))
        }
    }
}

/// Adds the destination. An address outside of the subnet is an invention or a machine of another
/// network, so the answer stays on this wire.
fn send(question: &Question, message: Message) -> Reply {
    let request = question.request;
    let network = question.segment.subnet.network;
    let is_inside = network.contains(&request.ciaddr) && request.ciaddr != network.broadcast();
    let to = match (request.giaddr.is_unspecified(), is_inside) {
        (false, _) => Destination::Relay(request.giaddr),
        (true, true) => Destination::Client(request.ciaddr),
        (true, false) => Destination::Broadcast,
    };
    Reply { message, to }
}
