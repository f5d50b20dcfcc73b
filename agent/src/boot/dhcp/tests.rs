//! Tests of the decision, as a table and as properties.

use std::time::Duration;

use muster_core::ids::NodeId;
use muster_core::values::Mac;
use muster_core::wire::calls::{Reservation, Subnet};
use proptest::prelude::*;

use super::wire::Options;
use super::*;
use crate::boot::site::Segment;

const AGENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const FIXED: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 11);
const RELAY: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 254);
const KNOWN: Mac = Mac([0x52, 0x54, 0, 0, 0, 1]);
const STRANGER: Mac = Mac([0x52, 0x54, 0, 0, 0, 2]);

fn segment(mode: DhcpMode) -> Segment {
    Segment::from(Subnet {
        name: "prov".to_owned(),
        network: "10.77.0.0/24".parse().unwrap(),
        agent_address: AGENT,
        gateway: None,
        dns: vec![],
        mode,
        dynamic_range: Some((Ipv4Addr::new(10, 77, 0, 200), Ipv4Addr::new(10, 77, 0, 209))),
        reservations: vec![Reservation {
            node: NodeId::new(),
            name: "n1".to_owned(),
            mac: KNOWN,
            address: FIXED,
        }],
        relays: vec![RELAY],
    })
}

fn message(kind: Kind, mac: Mac, set: &[(u8, &[u8])]) -> Message {
    let mut options = Options::default();
    options.set(code::MESSAGE_TYPE, [kind as u8]);
    for (code, value) in set {
        options.set(*code, *value);
    }
    let none = Ipv4Addr::UNSPECIFIED;
    let file = Vec::new();
    Message {
        op: Op::FromClient,
        hops: 0,
        xid: 7,
        secs: 0,
        broadcast: true,
        ciaddr: none,
        yiaddr: none,
        siaddr: none,
        giaddr: none,
        mac,
        file,
        options,
    }
}

const BIOS: &[(u8, &[u8])] = &[
    (code::VENDOR_CLASS, b"PXEClient:Arch:00000:UNDI:002001"),
    (code::ARCHITECTURE, &[0, 0]),
];
const UEFI: &[(u8, &[u8])] = &[
    (code::VENDOR_CLASS, b"PXEClient:Arch:00007:UNDI:003016"),
    (code::ARCHITECTURE, &[0, 7]),
];
const UEFI_HTTP: &[(u8, &[u8])] = &[
    (code::VENDOR_CLASS, b"HTTPClient:Arch:00016:UNDI:003001"),
    (code::ARCHITECTURE, &[0, 16]),
];
const IPXE: &[(u8, &[u8])] = &[
    (code::USER_CLASS, b"iPXE"),
    (code::VENDOR_CLASS, b"PXEClient:Arch:00000"),
    (code::ARCHITECTURE, &[0, 0]),
];
const MUSTER: &[(u8, &[u8])] = &[
    (code::USER_CLASS, b"muster"),
    (code::VENDOR_CLASS, b"PXEClient:Arch:00007"),
    (code::ARCHITECTURE, &[0, 7]),
];
const ARM64: &[(u8, &[u8])] = &[
    (code::VENDOR_CLASS, b"PXEClient:Arch:00011"),
    (code::ARCHITECTURE, &[0, 11]),
];

struct Trial {
    segment: Segment,
    leases: Leases,
    armed: Option<Ipv4Addr>,
    now: Instant,
}

use super::leases::Leases;
use super::yielding::Yielding;

impl Trial {
    fn new(mode: DhcpMode) -> Self {
        Self {
            segment: segment(mode),
            leases: Leases::default(),
            armed: None,
            now: Instant::now(),
        }
    }

    fn ask(&mut self, request: &Message) -> Option<Reply> {
        self.ask_via(request, Via::Server)
    }

    fn ask_via(&mut self, request: &Message, via: Via) -> Option<Reply> {
        let question = Question {
            segment: &self.segment,
            http_port: 8090,
            armed: self.armed,
            request,
            via,
            now: self.now,
        };
        decide(&question, &mut self.leases)
    }
}

fn boot_file(reply: &Reply) -> Option<String> {
    reply
        .message
        .options
        .get(code::BOOT_FILE)
        .map(|file| String::from_utf8(file.to_vec()).unwrap())
}

#[test]
fn an_armed_client_gets_the_next_loader_of_its_chain() {
    let script = "http://10.77.0.1:8090/boot/v1/ipxe?mac=52:54:00:00:00:01&platform=efi";
    let cases = [
        (BIOS, Some("undionly.kpxe")),
        (UEFI, Some("snponly.efi")),
        (
            UEFI_HTTP,
            Some("http://10.77.0.1:8090/boot/v1/loader/snponly.efi"),
        ),
        (IPXE, Some("muster.ipxe")),
        (MUSTER, Some(script)),
        (ARM64, None),
        (&[], None),
    ];
    for (options, file) in cases {
        let mut trial = Trial::new(DhcpMode::Authoritative);
        trial.armed = Some(FIXED);
        let reply = trial.ask(&message(Kind::Discover, KNOWN, options)).unwrap();
        assert_eq!(boot_file(&reply).as_deref(), file, "{options:?}");
        assert_eq!(
            reply.message.siaddr,
            file.map_or(Ipv4Addr::UNSPECIFIED, |_| AGENT)
        );
        assert_eq!(reply.message.yiaddr, FIXED);
        assert_eq!(reply.to, Destination::Broadcast);
    }
}

#[test]
fn a_reserved_machine_has_its_address_confirmed_and_any_other_refused() {
    let mut trial = Trial::new(DhcpMode::Authoritative);
    let select = |address: Ipv4Addr| {
        message(
            Kind::Request,
            KNOWN,
            &[
                (code::SERVER_ID, &AGENT.octets()),
                (code::REQUESTED_ADDRESS, &address.octets()),
            ],
        )
    };
    let ack = trial.ask(&select(FIXED)).unwrap();
    assert_eq!(
        (ack.message.kind(), ack.message.yiaddr),
        (Some(Kind::Ack), FIXED)
    );
    assert_eq!(
        ack.message.options.get(code::LEASE_TIME),
        Some(86_400_u32.to_be_bytes().as_slice())
    );
    assert_eq!(
        ack.message.options.get(code::HOST_NAME),
        Some(b"n1".as_slice())
    );
    let nak = trial.ask(&select(Ipv4Addr::new(10, 77, 0, 12))).unwrap();
    assert_eq!(
        (nak.message.kind(), nak.message.yiaddr),
        (Some(Kind::Nak), Ipv4Addr::UNSPECIFIED)
    );
}

#[test]
fn a_renewal_is_answered_to_the_address_itself() {
    let mut trial = Trial::new(DhcpMode::Authoritative);
    let renewal = Message {
        ciaddr: FIXED,
        ..message(Kind::Request, KNOWN, &[])
    };
    let ack = trial.ask(&renewal).unwrap();
    assert_eq!(
        (ack.message.kind(), ack.to),
        (Some(Kind::Ack), Destination::Client(FIXED))
    );
}

/// The address in the header is the machine's word. An answer to an invented address would leave
/// the subnet.
#[test]
fn no_answer_leaves_the_subnet() {
    let mut trial = Trial::new(DhcpMode::Authoritative);
    let action = FIXED.octets();
    let mut ask = |kind, ciaddr| {
        let options = [(code::REQUESTED_ADDRESS, action.as_slice())];
        let request = Message {
            ciaddr,
            ..message(kind, KNOWN, &options)
        };
        trial.ask(&request).unwrap().to
    };
    let (elsewhere, all) = (
        Ipv4Addr::new(198, 51, 100, 7),
        Ipv4Addr::new(10, 77, 0, 255),
    );
    for kind in [Kind::Request, Kind::Inform, Kind::Discover] {
        assert_eq!(ask(kind, FIXED), Destination::Client(FIXED), "{kind:?}");
        for invented in [elsewhere, all] {
            assert_eq!(ask(kind, invented), Destination::Broadcast, "{kind:?}");
        }
    }
}

#[test]
fn a_machine_returning_with_a_foreign_address_is_refused() {
    let mut trial = Trial::new(DhcpMode::Authoritative);
    let elsewhere = Ipv4Addr::new(192, 168, 1, 5);
    let reboot = |mac| {
        message(
            Kind::Request,
            mac,
            &[(code::REQUESTED_ADDRESS, &elsewhere.octets())],
        )
    };
    assert_eq!(
        trial.ask(&reboot(KNOWN)).unwrap().message.kind(),
        Some(Kind::Nak)
    );
    assert_eq!(
        trial.ask(&reboot(STRANGER)).unwrap().message.kind(),
        Some(Kind::Nak)
    );
}

#[test]
fn an_unknown_machine_keeps_its_short_lease_over_a_restart() {
    let mut trial = Trial::new(DhcpMode::Authoritative);
    let offer = trial.ask(&message(Kind::Discover, STRANGER, UEFI)).unwrap();
    assert_eq!(
        offer.message.options.get(code::LEASE_TIME),
        Some(600_u32.to_be_bytes().as_slice())
    );
    assert_eq!(boot_file(&offer), None);
    let mut restarted = Trial::new(DhcpMode::Authoritative);
    let renewal = Message {
        ciaddr: offer.message.yiaddr,
        ..message(Kind::Request, STRANGER, &[])
    };
    assert_eq!(
        restarted.ask(&renewal).unwrap().message.yiaddr,
        offer.message.yiaddr
    );
}

#[test]
fn a_machine_that_chose_another_server_frees_what_we_offered() {
    let mut trial = Trial::new(DhcpMode::Authoritative);
    let offered = trial
        .ask(&message(Kind::Discover, STRANGER, &[]))
        .unwrap()
        .message
        .yiaddr;
    let other = message(
        Kind::Request,
        STRANGER,
        &[
            (code::SERVER_ID, &[10, 77, 0, 9]),
            (code::REQUESTED_ADDRESS, &[10, 77, 0, 50]),
        ],
    );
    assert_eq!(trial.ask(&other), None);
    assert_eq!(trial.leases.holder(offered, trial.now), None);
}

#[test]
fn decline_sets_aside_release_frees_and_inform_gives_no_address() {
    let mut trial = Trial::new(DhcpMode::Authoritative);
    let first = trial
        .ask(&message(Kind::Discover, STRANGER, &[]))
        .unwrap()
        .message
        .yiaddr;
    assert_eq!(
        trial.ask(&message(
            Kind::Decline,
            STRANGER,
            &[(code::REQUESTED_ADDRESS, &first.octets())]
        )),
        None
    );
    let second = trial
        .ask(&message(Kind::Discover, STRANGER, &[]))
        .unwrap()
        .message
        .yiaddr;
    assert_ne!(first, second);
    assert_eq!(trial.ask(&message(Kind::Release, STRANGER, &[])), None);
    assert_eq!(trial.leases.holder(second, trial.now), None);
    let inform = trial
        .ask(&Message {
            ciaddr: FIXED,
            ..message(Kind::Inform, KNOWN, &[])
        })
        .unwrap();
    assert_eq!(
        (
            inform.message.yiaddr,
            inform.message.options.get(code::LEASE_TIME)
        ),
        (Ipv4Addr::UNSPECIFIED, None)
    );
}

#[test]
fn an_offer_nobody_takes_up_is_free_again() {
    let mut trial = Trial::new(DhcpMode::Authoritative);
    let offered = trial
        .ask(&message(Kind::Discover, STRANGER, &[]))
        .unwrap()
        .message
        .yiaddr;
    assert_eq!(trial.leases.holder(offered, trial.now), Some(STRANGER));
    assert_eq!(
        trial
            .leases
            .holder(offered, trial.now + Duration::from_secs(31)),
        None
    );
}

#[test]
fn only_a_configured_relay_is_heard_and_its_information_comes_back() {
    let mut trial = Trial::new(DhcpMode::Authoritative);
    let relayed = |giaddr| Message {
        giaddr,
        ..message(
            Kind::Discover,
            KNOWN,
            &[(code::RELAY_AGENT, b"\x01\x04eth7")],
        )
    };
    let reply = trial.ask(&relayed(RELAY)).unwrap();
    assert_eq!(reply.to, Destination::Relay(RELAY));
    assert_eq!(
        reply.message.options.get(code::RELAY_AGENT),
        Some(b"\x01\x04eth7".as_slice())
    );
    assert_eq!(trial.ask(&relayed(Ipv4Addr::new(10, 77, 0, 66))), None);
}

#[test]
fn in_proxy_mode_only_armed_machines_get_answers_without_addresses() {
    let mut trial = Trial::new(DhcpMode::Proxy);
    assert_eq!(trial.ask(&message(Kind::Discover, KNOWN, UEFI)), None);
    trial.armed = Some(FIXED);
    let offer = trial.ask(&message(Kind::Discover, KNOWN, UEFI)).unwrap();
    assert_eq!(
        (offer.message.yiaddr, boot_file(&offer).as_deref()),
        (Ipv4Addr::UNSPECIFIED, Some("snponly.efi"))
    );
    assert_eq!(
        offer.message.options.get(code::VENDOR_CLASS),
        Some(b"PXEClient".as_slice())
    );
    assert_eq!(
        trial.ask(&message(Kind::Request, KNOWN, UEFI)),
        None,
        "the other server answers requests"
    );
    let ack = trial
        .ask_via(&message(Kind::Request, KNOWN, UEFI), Via::BootServer)
        .unwrap();
    assert_eq!(
        (ack.message.kind(), ack.to),
        (Some(Kind::Ack), Destination::Sender)
    );
    assert_eq!(
        trial.ask(&message(Kind::Discover, KNOWN, &[])),
        None,
        "an operating system wants no boot file"
    );
}

#[test]
fn a_pxe_rom_that_is_not_armed_is_told_to_boot_locally() {
    let mut trial = Trial::new(DhcpMode::Authoritative);
    for (options, told) in [
        (BIOS, true),
        (UEFI, true),
        (IPXE, false),
        (MUSTER, false),
        (UEFI_HTTP, false),
    ] {
        let offer = trial.ask(&message(Kind::Discover, KNOWN, options)).unwrap();
        assert_eq!(
            offer.message.options.get(code::VENDOR_CLASS).is_some(),
            told,
            "{options:?}"
        );
    }
}

#[test]
fn off_is_silence() {
    let mut trial = Trial::new(DhcpMode::Off);
    trial.armed = Some(FIXED);
    assert_eq!(trial.ask(&message(Kind::Discover, KNOWN, UEFI)), None);
}

#[test]
fn the_machine_id_is_read_as_smbios_writes_it() {
    let id = [
        0, 0x33, 0x22, 0x11, 0x00, 0x55, 0x44, 0x77, 0x66, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd,
        0xee, 0xff,
    ];
    let request = message(Kind::Discover, KNOWN, &[(code::MACHINE_ID, &id)]);
    assert_eq!(
        machine_uuid(&request).as_deref(),
        Some("00112233-4455-6677-8899-aabbccddeeff")
    );
}

fn any_message() -> impl Strategy<Value = Message> {
    let address = prop_oneof![
        Just(Ipv4Addr::UNSPECIFIED),
        Just(FIXED),
        Just(RELAY),
        (190_u8..220).prop_map(|last| Ipv4Addr::new(10, 77, 0, last)),
        any::<[u8; 4]>().prop_map(Ipv4Addr::from),
    ];
    let client = prop_oneof![
        Just(BIOS),
        Just(UEFI),
        Just(UEFI_HTTP),
        Just(IPXE),
        Just(MUSTER),
        Just(ARM64),
        Just(&[][..])
    ];
    let kind = prop_oneof![
        Just(Kind::Discover),
        Just(Kind::Request),
        Just(Kind::Inform),
        Just(Kind::Decline),
        Just(Kind::Release)
    ];
    let mac = prop_oneof![Just(KNOWN), Just(STRANGER), any::<[u8; 6]>().prop_map(Mac)];
    let extra = proptest::collection::vec(
        (any::<u8>(), proptest::collection::vec(any::<u8>(), 0..40)),
        0..4,
    );
    let asked = proptest::option::of(address.clone());
    (
        kind,
        mac,
        client,
        address.clone(),
        address,
        asked,
        any::<bool>(),
        extra,
    )
        .prop_map(
            |(kind, mac, client, ciaddr, giaddr, asked, selects_us, extra)| {
                let mut message = message(kind, mac, client);
                (message.ciaddr, message.giaddr) = (ciaddr, giaddr);
                for (code, value) in extra
                    .into_iter()
                    .filter(|(code, _)| *code != code::MESSAGE_TYPE)
                {
                    message.options.set(code, value);
                }
                if let Some(asked) = asked {
                    message.options.set(code::REQUESTED_ADDRESS, asked.octets());
                }
                if selects_us {
                    message.options.set(code::SERVER_ID, AGENT.octets());
                }
                message
            },
        )
}

fn any_mode() -> impl Strategy<Value = DhcpMode> {
    prop_oneof![
        Just(DhcpMode::Authoritative),
        Just(DhcpMode::Proxy),
        Just(DhcpMode::Off)
    ]
}

proptest! {
    #[test]
    fn what_is_not_armed_never_gets_a_boot_file(mode in any_mode(), requests in proptest::collection::vec(any_message(), 1..20)) {
        let mut trial = Trial::new(mode);
        for request in requests {
            for via in [Via::Server, Via::BootServer] {
                let Some(reply) = trial.ask_via(&request, via) else { continue };
                let sent = Message::parse(&reply.message.encode()).unwrap();
                prop_assert_eq!(sent.siaddr, Ipv4Addr::UNSPECIFIED);
                prop_assert!(sent.file.is_empty());
                for code in [code::TFTP_SERVER, code::BOOT_FILE] {
                    prop_assert_eq!(sent.options.get(code), None);
                }
                // The only allowed vendor option for a PXE ROM is the local boot menu.
                let menu = b"\x06\x01\x03\x09\x0d\x00\x00\x0alocal disk\x0a\x0b\x00local disk\xff";
                prop_assert!(sent.options.get(code::VENDOR).is_none_or(|vendor| vendor == menu));
            }
        }
    }

    #[test]
    fn no_two_machines_have_one_address_and_none_has_the_agents(requests in proptest::collection::vec(any_message(), 1..60)) {
        let mut trial = Trial::new(DhcpMode::Authoritative);
        let mut holders = std::collections::HashMap::new();
        for request in requests {
            if matches!(request.kind(), Some(Kind::Release | Kind::Decline)) {
                holders.retain(|_, holder| *holder != request.mac);
            }
            let Some(reply) = trial.ask(&request) else { continue };
            let given = reply.message.yiaddr;
            if reply.message.kind() == Some(Kind::Ack) && !given.is_unspecified() {
                prop_assert_ne!(given, AGENT);
                prop_assert_eq!(given == FIXED, request.mac == KNOWN);
                holders.retain(|_, holder| *holder != request.mac);
                prop_assert_eq!(holders.insert(given, request.mac), None);
            }
        }
    }
}

/// Returns the seconds at which a disconnected agent answers.
fn late(yielding: &mut Yielding, start: Instant, request: &Message, seconds: &[u64]) -> Vec<u64> {
    let mut trial = Trial::new(DhcpMode::Authoritative);
    let mut answered = Vec::new();
    for second in seconds {
        let reply = trial.ask(request).unwrap();
        let kept = yielding.hold_back(request, reply, start + Duration::from_secs(*second));
        answered.extend(kept.map(|_| *second));
    }
    answered
}

#[test]
fn cut_off_it_answers_whom_nobody_else_answered() {
    let (mut yielding, start) = (Yielding::default(), Instant::now());
    assert_eq!(
        late(
            &mut yielding,
            start,
            &message(Kind::Discover, KNOWN, UEFI),
            &[0, 1, 4]
        ),
        [4]
    );
    let (action, agent) = (FIXED.octets(), AGENT.octets());
    let selecting = message(
        Kind::Request,
        KNOWN,
        &[
            (code::REQUESTED_ADDRESS, &action),
            (code::SERVER_ID, &agent),
        ],
    );
    assert_eq!(
        late(&mut yielding, start, &selecting, &[5]),
        [5],
        "it took what we offered"
    );
    let stranger = message(Kind::Discover, STRANGER, &[]);
    assert_eq!(
        late(&mut yielding, start, &stranger, &[0, 3, 100, 101, 104]),
        [3, 104],
        "a later boot waits anew"
    );
    let renewing = Message {
        ciaddr: FIXED,
        ..message(Kind::Request, KNOWN, &[])
    };
    assert_eq!(
        late(&mut yielding, start, &renewing, &[200]),
        [200],
        "one that has its address keeps it"
    );
    // A disconnected agent may have old reservations, so no client loses an address by its NAK.
    let elsewhere = message(
        Kind::Request,
        KNOWN,
        &[(code::REQUESTED_ADDRESS, &[10, 77, 0, 99])],
    );
    assert_eq!(
        late(&mut yielding, start, &elsewhere, &[300, 303, 310]),
        [0; 0]
    );
}

#[test]
fn cut_off_it_is_silent_where_machines_choose_another() {
    let (mut yielding, start) = (Yielding::default(), Instant::now());
    let discover = message(Kind::Discover, KNOWN, UEFI);
    yielding.saw_another(STRANGER, start);
    assert_eq!(
        late(&mut yielding, start, &discover, &[0, 4, 12, 299]),
        [0; 0]
    );
    assert_eq!(
        late(&mut yielding, start, &discover, &[301, 304]),
        [304],
        "and answers when that one is gone too"
    );
    // The acting agent uses the same address. The client accepted the offer of the acting agent,
    // and not the offer of this agent.
    let (action, agent) = (FIXED.octets(), AGENT.octets());
    let selecting = [
        (code::REQUESTED_ADDRESS, action.as_slice()),
        (code::SERVER_ID, agent.as_slice()),
    ];
    let selecting = Message {
        xid: 8,
        ..message(Kind::Request, KNOWN, &selecting)
    };
    assert_eq!(late(&mut yielding, start, &selecting, &[305]), [0; 0]);
    assert_eq!(
        late(&mut yielding, start, &discover, &[306, 310, 600]),
        [0; 0]
    );
}
