//! What a DHCP message is answered with: a pure function of the subnet, what is armed, the message, who holds which address, and the time.
//!
//! The one rule above all: without an armed boot nobody is given a boot file, so firmware goes on to the machine's own disk.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use muster_core::wire::calls::{DhcpMode, Subnet};

use super::client::{Client, Firmware, is_unicast, machine_uuid};
use super::leases::Leases;
use super::wire::{Kind, Message, Op, Options, code};
use crate::boot::loaders::{FIRST_SCRIPT, SNPONLY, UNDIONLY};
use crate::boot::site::Segment;

/// Lease of a reserved address: it cannot change hands, so a machine may rely on it while the agent is away.
const FIXED_LEASE: Duration = Duration::from_secs(24 * 3600);
/// Lease of a lent address: strangers come and go.
const LENT_LEASE: Duration = Duration::from_secs(600);

/// The port a message came in on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// 67, where servers listen.
    Server,
    /// 4011, where PXE clients ask a boot server for the boot file.
    BootServer,
}

/// All that a decision depends on, but for the leases.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    pub segment: &'a Segment,
    /// Port of the HTTP boot listener.
    pub http_port: u16,
    /// The address of the boot that is armed for this MAC, if one is.
    pub armed: Option<Ipv4Addr>,
    pub request: &'a Message,
    pub via: Via,
    pub now: Instant,
}

/// Where an answer goes (RFC 2131 §4.1). A client that has no address yet is always answered by broadcast: unicast to it would need an entry in
/// the kernel's neighbour table, and some firmware does not hear unicast before it has an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    Broadcast,
    /// The server port of a configured relay.
    Relay(Ipv4Addr),
    /// The client port of a machine that has its address.
    Client(Ipv4Addr),
    /// Back to the address and port it came from.
    Sender,
}

/// An answer and where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub message: Message,
    pub to: Destination,
}

/// Decides on one message. `None` is silence.
pub fn decide(question: &Question, leases: &mut Leases) -> Option<Reply> {
    let request = question.request;
    if request.op != Op::FromClient
        || !is_unicast(request.mac)
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
            tracing::warn!(%mac, %address, "a machine says that its address is in use by another; look for a second holder of it");
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

/// An address and for how long.
#[derive(Clone, Copy)]
struct Given {
    address: Ipv4Addr,
    time: Duration,
}

/// The armed boot's address before the reservation's: the job that armed it is newer than the configuration, and will log in there.
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
    let wish = wished(request);
    let taken = |address| segment.is_taken(address) || !segment.subnet.network.contains(&address);
    let address = leases.pick(
        request.mac,
        segment.subnet.dynamic_range?,
        wish,
        taken,
        question.now,
    )?;
    Some(Given {
        address,
        time: LENT_LEASE,
    })
}

/// The address a client asks for: by option before it has one, in the header when it renews.
fn wished(request: &Message) -> Option<Ipv4Addr> {
    let in_header = Some(request.ciaddr).filter(|address| !address.is_unspecified());
    request
        .options
        .address(code::REQUESTED_ADDRESS)
        .or(in_header)
}

/// A request is granted for the address that would be offered, refused for any other. A machine that was not offered anything now (it renews, or
/// came back with an old lease) and that we have no address for is refused only when its address is not of this subnet.
fn confirm(question: &Question, leases: &mut Leases, selected_us: bool) -> Option<Reply> {
    let wished = wished(question.request)?;
    match address_for(question, leases) {
        Some(given) if given.address == wished => {
            leases.hold(
                question.request.mac,
                given.address,
                given.time,
                question.now,
            );
            Some(grant(question, Kind::Ack, given))
        }
        None if !selected_us && question.segment.subnet.network.contains(&wished) => None,
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

/// For a machine that has its address from elsewhere: no address, no lease (RFC 2131 §4.3.5).
fn inform(question: &Question) -> Reply {
    let mut message = answer(question, Kind::Ack);
    message.ciaddr = question.request.ciaddr;
    add_network(question, &mut message.options);
    add_boot(question, &mut message);
    send(question, message)
}

/// Beside the site's own DHCP: only the boot file, only for an armed machine, never an address.
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
        // PXE 2.1 §2.2.3: discovery control 8, "boot the file named here, ask no boot server", then the end of the list.
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

/// The common part of every answer, with what must be echoed: the client's id (RFC 6842), its UUID (PXE 2.1), the relay's information (RFC 3046).
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

/// Names the next thing to load, for an armed machine alone; tells a PXE ROM that is not armed to leave at once.
fn add_boot(question: &Question, message: &mut Message) {
    let client = Client::of(question.request);
    let authoritative = question.segment.subnet.mode == DhcpMode::Authoritative;
    if authoritative && matches!(client, Client::Ipxe(_) | Client::Muster(_)) {
        // Sub-option 176, no-pxedhcp: do not wait for a proxy's offer.
        message.options.set(code::IPXE, [176, 1, 1]);
    }
    match question.armed.and_then(|_| boot_file(question, client)) {
        Some(file) => {
            let agent = question.segment.subnet.agent_address;
            message.siaddr = agent;
            // Old PXE ROMs read the header's field, UEFI and iPXE the options.
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

/// A PXE menu of one item, "local boot" (type 0), taken without a prompt (PXE 2.1 §2.2.3). Without it UEFI firmware takes an offer that names no
/// file for none at all, and asks for another minute before it goes on to the disk. iPXE is not told so: it leaves by itself, with the failing
/// code that makes UEFI go on, while after this menu it would succeed and open the firmware's menu.
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

/// PXE ROM → our iPXE; any iPXE → the script that puts ours in its place; ours → the agent's script.
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

fn send(question: &Question, message: Message) -> Reply {
    let request = question.request;
    let to = match (
        request.giaddr.is_unspecified(),
        request.ciaddr.is_unspecified(),
    ) {
        (false, _) => Destination::Relay(request.giaddr),
        (true, false) => Destination::Client(request.ciaddr),
        (true, true) => Destination::Broadcast,
    };
    Reply { message, to }
}
