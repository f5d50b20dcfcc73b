//! All boot services together, over loopback on free ports: a client of each protocol against the
//! real listeners.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use bytes::Bytes;
use muster_core::ids::NodeId;
use muster_core::values::Mac;
use muster_core::wire::calls::{Reservation, Seen, Subnet};
use muster_core::wire::job::BootLive;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio::time::timeout;

use super::arm::tests::spec;
use super::dhcp::wire::{Kind, Message, Op, Options, code};
use super::*;

pub(crate) const HOST: Ipv4Addr = Ipv4Addr::LOCALHOST;
pub(crate) const MAC: Mac = Mac([0x52, 0x54, 0, 0, 0, 1]);
const PATIENCE: Duration = Duration::from_secs(20);

/// Running services with all channels for the test.
pub(crate) struct Bench {
    pub(crate) armed: ArmedBoots,
    pub(crate) blobs: BlobCache,
    pub(crate) seen: mpsc::Receiver<Sighting>,
    pub(crate) ports: BootPorts,
    pub(crate) config: watch::Sender<Option<SiteConfig>>,
    pub(crate) trust: watch::Sender<Option<SiteTrust>>,
    pub(crate) contact: Contact,
    services: BootServices,
    cancel: CancellationToken,
    data: tempfile::TempDir,
}

impl Bench {
    pub(crate) async fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), Some(site_config())).await
    }

    async fn start_in(data: tempfile::TempDir, first: Option<SiteConfig>) -> Self {
        let blobs = BlobCache::at(data.path().join("blobs")).await.unwrap();
        let loaders = [
            ("undionly.kpxe", vec![b'u'; 3000]),
            ("snponly.efi", vec![b's'; 1468 * 2]),
            ("muster.ipxe", b"#!ipxe\n".to_vec()),
        ];
        let (trust, trusts) = watch::channel(Some(site_trust()));
        let (config, configs) = watch::channel(first);
        let (queue, seen) = mpsc::channel(64);
        let contact = Contact::default();
        contact.heard(Instant::now(), None);
        let (armed, cancel, ports) = (
            ArmedBoots::new(),
            CancellationToken::new(),
            free_ports().await,
        );
        let options = BootOptions {
            data_dir: data.path().to_owned(),
            blobs: blobs.clone(),
            ipxe: IpxeBinaries::of(loaders.map(|(name, bytes)| (name, Bytes::from(bytes)))),
            trust: trusts,
            clock: Clock::manual("2026-01-02T03:04:05Z".parse().unwrap()),
            contact: contact.clone(),
            ports,
        };
        let services = BootServices::start(options, configs, armed.clone(), queue, cancel.clone())
            .await
            .unwrap();
        let mut health = services.health();
        let all_up = |health: &Health| {
            !health.is_empty() && health.values().all(|state| *state == ListenerState::Up)
        };
        timeout(PATIENCE, health.wait_for(all_up))
            .await
            .expect("the listeners come up")
            .unwrap();
        Self {
            armed,
            blobs,
            seen,
            ports,
            config,
            trust,
            contact,
            services,
            cancel,
            data,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{HOST}:{}/boot/v1/{path}", self.ports.http)
    }

    pub(crate) async fn next_seen(&mut self) -> (Seen, String) {
        let sighting = timeout(PATIENCE, self.seen.recv())
            .await
            .expect("something is seen")
            .unwrap();
        assert_eq!(sighting.mac, MAC);
        (sighting.what, sighting.detail)
    }

    async fn stop(self) -> tempfile::TempDir {
        self.cancel.cancel();
        timeout(PATIENCE, self.services.stopped())
            .await
            .expect("the services end when told");
        self.data
    }
}

pub(crate) fn armed_spec() -> BootLive {
    spec(MAC, HOST)
}

fn site_config() -> SiteConfig {
    let subnet = Subnet {
        name: "prov".to_owned(),
        network: "127.0.0.0/8".parse().unwrap(),
        agent_address: HOST,
        gateway: None,
        dns: vec![],
        mode: DhcpMode::Authoritative,
        dynamic_range: None,
        reservations: vec![Reservation {
            node: NodeId::new(),
            name: "n1".to_owned(),
            mac: MAC,
            address: HOST,
        }],
        relays: vec![Ipv4Addr::new(127, 0, 0, 2)],
    };
    SiteConfig {
        revision: "1".to_owned(),
        site: "lab".to_owned(),
        subnets: vec![subnet],
        consoles: Vec::new(),
        console_networks: Vec::new(),
    }
}

fn site_trust() -> SiteTrust {
    SiteTrust {
        protocol: 1,
        permit_public_key: "AAAA".to_owned(),
        user_ca: "ssh-ed25519 AAAA".to_owned(),
        agent_url: String::new(),
    }
}

/// Returns ports free a moment ago.
async fn free_ports() -> BootPorts {
    let mut udp = Vec::new();
    for _ in 0..5 {
        udp.push(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await.unwrap());
    }
    let tcp = TcpListener::bind((HOST, 0)).await.unwrap();
    let port = |at: usize| udp[at].local_addr().unwrap().port();
    BootPorts {
        dhcp_server: port(0),
        dhcp_relay: port(4),
        dhcp_client: port(1),
        pxe: port(2),
        tftp: port(3),
        http: tcp.local_addr().unwrap().port(),
    }
}

/// Transaction ids of the discovers of a PXE ROM and of an installed system.
const PXE: u32 = 7;
const SYSTEM: u32 = 8;

/// Sends the discover of a PXE ROM until an answer arrives.
async fn discover(ports: BootPorts) -> Option<Message> {
    discover_as(ports, &[PXE]).await
}

/// Sends discovers in this order, like a relay, because broadcasts cannot cross loopback. Returns the
/// first answer.
async fn discover_as(ports: BootPorts, clients: &[u32]) -> Option<Message> {
    let relay = Ipv4Addr::new(127, 0, 0, 2);
    let socket = UdpSocket::bind((relay, ports.dhcp_relay)).await.unwrap();
    let mut buffer = [0; 1500];
    // A repeated discover has an answer and a sighting of its own, so only a lost one is repeated.
    for _ in 0..4 {
        for client in clients {
            socket
                .send_to(&discover_of(*client).encode(), (HOST, ports.dhcp_server))
                .await
                .unwrap();
        }
        if let Ok(received) = timeout(PATIENCE / 4, socket.recv_from(&mut buffer)).await {
            return Message::parse(&buffer[..received.unwrap().0]).ok();
        }
    }
    None
}

fn discover_of(client: u32) -> Message {
    let mut options = Options::default();
    options.set(code::MESSAGE_TYPE, [Kind::Discover as u8]);
    if client == PXE {
        options.set(code::VENDOR_CLASS, "PXEClient:Arch:00007:UNDI:003016");
        options.set(code::ARCHITECTURE, [0, 7]);
    }
    let none = Ipv4Addr::UNSPECIFIED;
    Message {
        op: Op::FromClient,
        hops: 1,
        xid: client,
        secs: 0,
        broadcast: true,
        ciaddr: none,
        yiaddr: none,
        siaddr: none,
        giaddr: Ipv4Addr::new(127, 0, 0, 2),
        mac: MAC,
        file: Vec::new(),
        options,
    }
}

async fn tftp_get(ports: BootPorts, name: &str) -> Result<Vec<u8>, String> {
    tftp_get_by(HOST, ports, name).await
}

/// Reads a file by plain RFC 1350: a request, then an acknowledgement for every block.
async fn tftp_get_by(source: Ipv4Addr, ports: BootPorts, name: &str) -> Result<Vec<u8>, String> {
    let socket = UdpSocket::bind((source, 0)).await.unwrap();
    let request = [b"\0\x01", name.as_bytes(), b"\0octet\0"].concat();
    socket.send_to(&request, (HOST, ports.tftp)).await.unwrap();
    let (mut content, mut buffer) = (Vec::new(), [0; 1500]);
    loop {
        let (length, from): (usize, SocketAddr) = timeout(PATIENCE, socket.recv_from(&mut buffer))
            .await
            .unwrap()
            .unwrap();
        match &buffer[..length] {
            [0, 3, high, low, data @ ..] => {
                content.extend_from_slice(data);
                socket.send_to(&[0, 4, *high, *low], from).await.unwrap();
                if data.len() < 512 {
                    return Ok(content);
                }
            }
            [0, 5, _, _, why @ ..] => return Err(String::from_utf8_lossy(why).into_owned()),
            other => panic!("not TFTP data: {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_led_to_its_loader_only_while_it_is_armed() {
    let mut bench = Bench::start().await;
    let unarmed = discover(bench.ports).await.unwrap();
    assert_eq!(
        (unarmed.yiaddr, unarmed.options.get(code::BOOT_FILE)),
        (HOST, None)
    );
    assert_eq!(
        bench.next_seen().await,
        (Seen::Dhcp, "UEFI PXE: local boot".to_owned())
    );

    let handle = bench.armed.arm(NodeId::new(), &armed_spec()).unwrap();
    let armed = discover(bench.ports).await.unwrap();
    assert_eq!(
        armed.options.get(code::BOOT_FILE),
        Some(b"snponly.efi".as_slice())
    );
    assert_eq!(
        bench.next_seen().await,
        (Seen::Dhcp, "UEFI PXE: armed, snponly.efi".to_owned())
    );
    assert_eq!(
        tftp_get(bench.ports, "/snponly.efi").await,
        Ok(vec![b's'; 1468 * 2])
    );
    assert_eq!(
        bench.next_seen().await,
        (Seen::Tftp, "snponly.efi to 127.0.0.1".to_owned())
    );
    assert_eq!(
        handle
            .last_seen()
            .borrow()
            .as_ref()
            .map(|sighting| sighting.what),
        Some(Seen::Tftp)
    );
    drop(handle);
    assert_eq!(
        discover(bench.ports)
            .await
            .unwrap()
            .options
            .get(code::BOOT_FILE),
        None
    );
    bench.stop().await;
}

/// An offer without a boot file ends the network boot of the firmware. Without an offer the firmware
/// repeats its request.
#[tokio::test(flavor = "multi_thread")]
async fn dhcp_leaves_firmware_unanswered_until_the_first_leases() {
    let bench = Bench::start().await;
    bench.armed.await_leases();
    // The listener answers in order, and the second request has the first answer.
    let answer = discover_as(bench.ports, &[PXE, SYSTEM]).await.unwrap();
    assert_eq!((answer.xid, answer.yiaddr), (SYSTEM, HOST));

    let _handle = bench.armed.arm(NodeId::new(), &armed_spec()).unwrap();
    let armed = discover(bench.ports).await.unwrap();
    assert_eq!(
        armed.options.get(code::BOOT_FILE),
        Some(b"snponly.efi".as_slice())
    );
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tftp_knows_exact_names_only() {
    let bench = Bench::start().await;
    for name in [
        "../undionly.kpxe",
        "undionly",
        "UNDIONLY.KPXE",
        "//undionly.kpxe",
        "/etc/passwd",
        "",
    ] {
        assert!(tftp_get(bench.ports, name).await.is_err(), "{name}");
    }
    assert_eq!(
        tftp_get(bench.ports, "undionly.kpxe")
            .await
            .map(|bytes| bytes.len()),
        Ok(3000)
    );
    bench.stop().await;
}

/// A subnet of 127.0.0.0/24 with the agent, and sources inside and outside of the subnet.
fn small_site(mode: DhcpMode) -> SiteConfig {
    let mut config = site_config();
    config.subnets[0].network = "127.0.0.0/24".parse().unwrap();
    config.subnets[0].mode = mode;
    config
}

async fn start_small(mode: DhcpMode) -> Bench {
    Bench::start_in(tempfile::tempdir().unwrap(), Some(small_site(mode))).await
}

const NEAR: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 7);
const NEIGHBOUR: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 8);
const FAR: Ipv4Addr = Ipv4Addr::new(127, 9, 9, 9);
const LOADER_REQUEST: &[u8] = b"\0\x01undionly.kpxe\0octet\0";

/// Asserts that the listener sent no datagram. The listener answers in order, so a later answer to
/// another source has arrived before the call.
fn assert_silent(socket: &UdpSocket) {
    let heard = recv(socket.as_raw_fd(), &mut [0; 1500], MsgFlags::MSG_DONTWAIT);
    assert_eq!(heard, Err(Errno::EAGAIN));
}

#[tokio::test(flavor = "multi_thread")]
async fn tftp_answers_sources_inside_of_its_subnets_only() {
    let bench = start_small(DhcpMode::Off).await;
    let loader = tftp_get_by(NEAR, bench.ports, "undionly.kpxe").await;
    assert_eq!(loader.map(|bytes| bytes.len()), Ok(3000));

    let far = UdpSocket::bind((FAR, 0)).await.unwrap();
    for packet in [
        LOADER_REQUEST,
        b"\0\x01unknown\0octet\0",
        b"\0\x02a\0octet\0",
    ] {
        let to = (HOST, bench.ports.tftp);
        far.send_to(packet, to).await.unwrap();
    }
    let loader = tftp_get_by(NEAR, bench.ports, "undionly.kpxe").await;
    assert_eq!(loader.map(|bytes| bytes.len()), Ok(3000));
    assert_silent(&far);
    bench.stop().await;
}

/// Starts a transfer, acknowledges the first block, and then waits. Returns the client and its
/// peer.
async fn tftp_hold(source: Ipv4Addr, ports: BootPorts) -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind((source, 0)).await.unwrap();
    let to = (HOST, ports.tftp);
    socket.send_to(LOADER_REQUEST, to).await.unwrap();
    let mut buffer = [0; 1500];
    let received = timeout(PATIENCE, socket.recv_from(&mut buffer)).await;
    let (_, peer) = received.expect("a first block").unwrap();
    socket.send_to(b"\0\x04\0\x01", peer).await.unwrap();
    (socket, peer)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_has_two_tftp_transfers_and_its_neighbours_are_served() {
    let bench = start_small(DhcpMode::Off).await;
    let (first, first_peer) = tftp_hold(NEAR, bench.ports).await;
    let _second = tftp_hold(NEAR, bench.ports).await;
    let third = UdpSocket::bind((NEAR, 0)).await.unwrap();
    let to = (HOST, bench.ports.tftp);
    third.send_to(LOADER_REQUEST, to).await.unwrap();
    let neighbours = tftp_get_by(NEIGHBOUR, bench.ports, "undionly.kpxe").await;
    assert_eq!(neighbours.map(|bytes| bytes.len()), Ok(3000));
    assert_silent(&third);

    // The client ends its first transfer. Firmware repeats a request without an answer.
    let end = b"\0\x05\0\0\0";
    first.send_to(end, first_peer).await.unwrap();
    let mut buffer = [0; 1500];
    let answered = async {
        loop {
            third.send_to(LOADER_REQUEST, to).await.unwrap();
            let heard = timeout(Duration::from_millis(50), third.recv(&mut buffer)).await;
            if let Ok(length) = heard {
                return length.unwrap();
            }
        }
    };
    let length = timeout(PATIENCE, answered).await.expect("a free place");
    assert_eq!((length, buffer[1]), (516, 3));
    bench.stop().await;
}

async fn connect(source: Ipv4Addr, ports: BootPorts) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((source, 0).into()).unwrap();
    socket.connect((HOST, ports.http).into()).await.unwrap()
}

/// Sends a request and keeps the connection. Returns `None` for a closed connection.
async fn ask_time(stream: &mut TcpStream) -> Option<()> {
    let request = b"GET /boot/v1/time HTTP/1.1\r\nHost: a\r\n\r\n";
    stream.write_all(request).await.ok()?;
    let (mut answer, mut buffer) = (Vec::new(), [0; 1024]);
    while !String::from_utf8_lossy(&answer).contains("unix_ms") {
        let read = timeout(PATIENCE, stream.read(&mut buffer)).await;
        let length = read.expect("an answer or an end").ok()?;
        if length == 0 {
            return None;
        }
        answer.extend_from_slice(&buffer[..length]);
    }
    Some(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_has_sixteen_http_connections_and_its_neighbours_are_served() {
    let bench = start_small(DhcpMode::Off).await;
    let mut held = Vec::new();
    for _ in 0..16 {
        let mut stream = connect(NEAR, bench.ports).await;
        assert_eq!(ask_time(&mut stream).await, Some(()));
        held.push(stream);
    }
    let mut further = connect(NEAR, bench.ports).await;
    assert_eq!(ask_time(&mut further).await, None);
    let mut neighbour = connect(NEIGHBOUR, bench.ports).await;
    assert_eq!(ask_time(&mut neighbour).await, Some(()));

    held.pop();
    let served = async {
        while ask_time(&mut connect(NEAR, bench.ports).await)
            .await
            .is_none()
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, served).await.expect("a free place");
    bench.stop().await;
}

/// Sends a GET from a source address.
async fn get_by(source: Ipv4Addr, url: String) -> reqwest::Response {
    let client = reqwest::Client::builder()
        .local_address(std::net::IpAddr::from(source))
        .timeout(PATIENCE)
        .no_proxy()
        .build()
        .unwrap();
    client.get(url).send().await.unwrap()
}

/// A BMC fetches firmware images from another network. A boot begins inside of a subnet.
#[tokio::test(flavor = "multi_thread")]
async fn a_source_outside_of_the_subnets_gets_blobs_and_no_boot() {
    let bench = start_small(DhcpMode::Off).await;
    let _handle = bench.armed.arm(NodeId::new(), &armed_spec()).unwrap();
    let digest = bench.blobs.put_bytes(b"firmware").await.unwrap();
    let blob = bench.url(&format!("blob/sha256/{}", digest.hex()));
    for source in [NEAR, FAR] {
        let found = get_by(source, blob.clone()).await;
        assert_eq!(found.text().await.unwrap(), "firmware");
        assert!(
            get_by(source, bench.url("time"))
                .await
                .status()
                .is_success()
        );
    }
    for path in ["site.cpio", &format!("ipxe?mac={MAC}&platform=efi")] {
        let refused = get_by(FAR, bench.url(path)).await;
        assert_eq!(refused.status(), reqwest::StatusCode::NOT_FOUND, "{path}");
        let found = get_by(NEAR, bench.url(path)).await;
        assert!(found.status().is_success(), "{path}");
    }
    bench.stop().await;
}

/// The DHCP server of the site gave the machine an address. The agent hears the request of the
/// machine.
#[tokio::test(flavor = "multi_thread")]
async fn in_proxy_mode_the_script_is_for_the_address_that_the_machine_requested() {
    let bench = start_small(DhcpMode::Proxy).await;
    let _handle = bench.armed.arm(NodeId::new(), &armed_spec()).unwrap();
    let relay = Ipv4Addr::new(127, 0, 0, 2);
    let socket = UdpSocket::bind((relay, bench.ports.dhcp_relay))
        .await
        .unwrap();
    let mut request = discover_of(PXE);
    let other = Ipv4Addr::new(127, 0, 0, 3);
    request
        .options
        .set(code::MESSAGE_TYPE, [Kind::Request as u8]);
    request.options.set(code::SERVER_ID, other.octets());
    request.options.set(code::REQUESTED_ADDRESS, NEAR.octets());
    let to = (HOST, bench.ports.dhcp_server);
    for message in [request, discover_of(PXE)] {
        socket.send_to(&message.encode(), to).await.unwrap();
    }
    // The agent reads in order, so the offer follows the request.
    let mut buffer = [0; 1500];
    let offer = timeout(PATIENCE, socket.recv_from(&mut buffer)).await;
    offer.expect("an offer").unwrap();
    let script = async |source| {
        let url = bench.url(&format!("ipxe?mac={MAC}&platform=efi"));
        get_by(source, url).await.text().await.unwrap()
    };
    let other = script(NEIGHBOUR).await;
    assert!(!other.contains("vmlinuz"), "{other}");
    assert!(script(NEAR).await.contains("vmlinuz"));
    bench.stop().await;
}

/// A datagram can have an invented source address.
#[tokio::test(flavor = "multi_thread")]
async fn the_pxe_boot_server_answers_sources_inside_of_its_subnets_only() {
    let bench = start_small(DhcpMode::Proxy).await;
    let _handle = bench.armed.arm(NodeId::new(), &armed_spec()).unwrap();
    let mut request = discover_of(PXE);
    request.giaddr = Ipv4Addr::UNSPECIFIED;
    request
        .options
        .set(code::MESSAGE_TYPE, [Kind::Request as u8]);
    let (request, to) = (request.encode(), (HOST, bench.ports.pxe));
    let far = UdpSocket::bind((FAR, 0)).await.unwrap();
    let near = UdpSocket::bind((NEAR, 0)).await.unwrap();
    for socket in [&far, &near] {
        socket.send_to(&request, to).await.unwrap();
    }
    let mut buffer = [0; 1500];
    let received = timeout(PATIENCE, near.recv(&mut buffer)).await;
    let length = received.expect("an answer").unwrap();
    let answer = Message::parse(&buffer[..length]).unwrap();
    assert_eq!(answer.kind(), Some(Kind::Ack));
    assert_silent(&far);
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_without_a_server_answers_from_the_saved_configuration() {
    let bench = Bench::start().await;
    let mut changed = site_config();
    changed.subnets[0].reservations[0].address = Ipv4Addr::new(127, 0, 0, 9);
    bench.config.send_replace(Some(changed));
    let moved = async {
        while discover(bench.ports).await.unwrap().yiaddr != Ipv4Addr::new(127, 0, 0, 9) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, moved)
        .await
        .expect("a new configuration is followed");
    let data = bench.stop().await;
    let alone = Bench::start_in(data, None).await;
    let answer = discover(alone.ports).await.unwrap();
    assert_eq!(
        (answer.yiaddr, answer.options.get(code::BOOT_FILE)),
        (Ipv4Addr::new(127, 0, 0, 9), None)
    );
    alone.stop().await;
}

/// The agent is disconnected from the server with an armed boot. Another agent may own the site and
/// the boot by now.
#[tokio::test(flavor = "multi_thread")]
async fn a_disconnected_agent_serves_armed_boots_then_only_local_boots() {
    let bench = Bench::start().await;
    let _handle = bench.armed.arm(NodeId::new(), &armed_spec()).unwrap();
    bench.contact.be_silent_for(Duration::from_secs(50));
    let armed = discover(bench.ports).await.unwrap();
    assert_eq!(
        armed.options.get(code::BOOT_FILE),
        Some(b"snponly.efi".as_slice()),
        "a minute costs no boot"
    );

    bench.contact.be_silent_for(Duration::from_secs(61));
    let answer = discover(bench.ports)
        .await
        .expect("nobody else answered it");
    assert_eq!(
        (answer.yiaddr, answer.options.get(code::BOOT_FILE)),
        (HOST, None)
    );
    let script = async || {
        let script = reqwest::get(bench.url(&format!("ipxe?mac={MAC}&platform=efi")))
            .await
            .unwrap();
        script.text().await.unwrap()
    };
    let local = script().await;
    assert!(!local.contains("vmlinuz"), "{local}");
    // After the next contact the boot continues, because its script was not used up.
    bench.contact.heard(Instant::now(), None);
    assert!(script().await.contains("vmlinuz"));
    bench.stop().await;
}

#[tokio::test]
async fn a_missing_interface_and_a_taken_port_are_named_with_what_to_do() {
    let nowhere = Ipv4Addr::new(203, 0, 113, 1);
    assert!(
        links::interface_of(nowhere)
            .unwrap_err()
            .to_string()
            .contains("give it to the provisioning interface")
    );
    let taken = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await.unwrap();
    let error = links::udp_on("lo", "DHCP", taken.local_addr().unwrap().port()).unwrap_err();
    assert!(error.to_string().contains("is in use"), "{error}");
}
