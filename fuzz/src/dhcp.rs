//! DHCP: any packets in any order, on a subnet with a reserved and an armed machine. Nobody but the armed one is ever led to a boot file.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use muster_agent::boot::dhcp::decide::{Destination, Question, Reply, Via, decide};
use muster_agent::boot::dhcp::leases::Leases;
use muster_agent::boot::dhcp::wire::{Message, code};
use muster_agent::boot::site::Segment;
use muster_core::ids::NodeId;
use muster_core::values::Mac;
use muster_core::wire::calls::{DhcpMode, Reservation, Subnet};

const ARMED: Mac = Mac([0x52, 0x54, 0, 0, 0, 1]);
const RESERVED: Mac = Mac([0x52, 0x54, 0, 0, 0, 2]);
const AGENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const RELAY: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 200);
const LAST: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 203);

/// The first byte is the subnet's mode; then come packets, each with two bytes of length and one of where and when it arrives.
pub(crate) fn run(mut data: &[u8]) {
    let mode = [DhcpMode::Authoritative, DhcpMode::Proxy, DhcpMode::Off]
        [usize::from(crate::steer(&mut data) % 3)];
    let segment = Segment::from(subnet(mode));
    let mut leases = Leases::default();
    let mut now = Instant::now();
    while !data.is_empty() {
        let length =
            usize::from(crate::steer(&mut data)) << 8 | usize::from(crate::steer(&mut data));
        let how = crate::steer(&mut data);
        let (packet, rest) = data.split_at(length.min(data.len()));
        data = rest;
        now += Duration::from_secs(u64::from(how >> 1));
        let Ok(request) = Message::parse(packet) else {
            continue;
        };
        survives(&request);
        let via = if how & 1 == 0 {
            Via::Server
        } else {
            Via::BootServer
        };
        let armed = (request.mac == ARMED).then_some(Ipv4Addr::new(10, 77, 0, 11));
        let question = Question {
            segment: &segment,
            http_port: 8090,
            armed,
            request: &request,
            via,
            now,
        };
        if let Some(reply) = decide(&question, &mut leases) {
            judge(mode, &request, &reply);
        }
    }
}

fn subnet(mode: DhcpMode) -> Subnet {
    let reservation = |last, mac| Reservation {
        node: NodeId(uuid_of(last)),
        name: format!("n{last}"),
        mac,
        address: Ipv4Addr::new(10, 77, 0, last),
    };
    Subnet {
        name: "prov".to_owned(),
        network: "10.77.0.0/24".parse().expect("a network"),
        agent_address: AGENT,
        gateway: Some(AGENT),
        dns: vec![AGENT],
        mode,
        dynamic_range: Some((FIRST, LAST)),
        reservations: vec![
            reservation(12, RESERVED),
            reservation(201, Mac([0x52, 0x54, 0, 0, 0, 3])),
        ],
        relays: vec![RELAY],
    }
}

/// Always the same, so that an input always does the same.
fn uuid_of(last: u8) -> uuid::Uuid {
    uuid::Uuid::from_bytes([last; 16])
}

/// What was read can be written and read again; only the places that options were in are forgotten.
fn survives(message: &Message) {
    let bytes = message.encode();
    assert!(bytes.len() >= 300);
    let again = Message::parse(&bytes).expect("our own message");
    if message.options.get(code::OVERLOAD).is_none() {
        assert_eq!(&again, message);
    }
}

fn judge(mode: DhcpMode, request: &Message, reply: &Reply) {
    let message = &reply.message;
    assert_ne!(mode, DhcpMode::Off);
    assert_eq!((message.xid, message.mac), (request.xid, request.mac));
    let led = message.options.get(code::BOOT_FILE).is_some() || !message.file.is_empty();
    assert!(
        !led || request.mac == ARMED,
        "only an armed machine is led to a boot file"
    );
    let given = message.yiaddr;
    let lent = (FIRST..=LAST).contains(&given) && given != Ipv4Addr::new(10, 77, 0, 201);
    let own = match request.mac {
        ARMED => given == Ipv4Addr::new(10, 77, 0, 11),
        RESERVED => given == Ipv4Addr::new(10, 77, 0, 12),
        Mac([0x52, 0x54, 0, 0, 0, 3]) => given == Ipv4Addr::new(10, 77, 0, 201),
        _ => lent,
    };
    assert!(
        given.is_unspecified() || (mode == DhcpMode::Authoritative && own),
        "{given} to {}",
        request.mac
    );
    if let Destination::Relay(relay) = reply.to {
        assert_eq!(relay, RELAY, "only a configured relay is answered");
    }
    let read = Message::parse(&message.encode()).expect("what we send is DHCP");
    assert_eq!(&read, message);
}
