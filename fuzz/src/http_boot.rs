//! Requests from unknown machines to the boot listener. The listener never returns 5xx. A script is
//! always the local boot or the armed boot.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use http::{Request, StatusCode};
use muster_agent::blobs::BlobCache;
use muster_agent::boot::arm::ArmedBoots;
use muster_agent::boot::loaders::IpxeBinaries;
use muster_agent::boot::site::Site;
use muster_agent::boot::{BootOptions, BootPorts, Shared, http as boot_http};
use muster_agent::contact::Contact;
use muster_core::clock::Clock;
use muster_core::ids::{NodeId, PermitId};
use muster_core::values::{Digest, Mac, Secret};
use muster_core::wire::bmc::Power;
use muster_core::wire::job::BootLive;
use muster_core::wire::login::UserKey;
use muster_core::wire::node::SiteTrust;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tower::ServiceExt as _;

const AGENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const NODE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 11);
const MAC: Mac = Mac([0x52, 0x54, 0, 0, 0, 1]);
const NONCE: &str = "00112233445566778899aabbccddeeff";

/// A boot listener without a socket.
struct Door {
    runtime: Runtime,
    router: Router,
    armed: ArmedBoots,
    _folder: tempfile::TempDir,
}

thread_local! {
    static DOOR: RefCell<Door> = RefCell::new(open());
}

/// The first byte has three flags: a boot is armed, the node asks, the request is a POST. Path and
/// query follow up to a line feed, then the body.
pub(crate) fn run(mut data: &[u8]) {
    let how = crate::steer(&mut data);
    let (is_armed, is_node, is_post) = (how & 1 != 0, how & 2 != 0, how & 4 != 0);
    let mut parts = data.splitn(2, |byte| *byte == b'\n');
    let path = [b"/boot/v1/", parts.next().unwrap_or_default()].concat();
    let body = parts.next().unwrap_or_default().to_vec();
    let method = if is_post { "POST" } else { "GET" };
    let Ok(mut request) = Request::builder()
        .method(method)
        .uri(path.as_slice())
        .body(Body::from(body))
    else {
        return;
    };
    let from = if is_node {
        NODE
    } else {
        Ipv4Addr::new(10, 77, 0, 99)
    };
    request
        .extensions_mut()
        .insert(ConnectInfo(SocketAddr::from((from, 40_000))));
    let is_script = request.uri().path() == "/boot/v1/ipxe" && !is_post;
    DOOR.with_borrow(|door| {
        let handle = is_armed.then(|| {
            door.armed
                .arm(NodeId::new(), &spec())
                .expect("one boot is armed")
        });
        let (status, answer) = door.runtime.block_on(async {
            let response = door
                .router
                .clone()
                .oneshot(request)
                .await
                .expect("a router answers");
            let (status, body) = (response.status(), response.into_body());
            (
                status,
                to_bytes(body, 1 << 20).await.expect("an answer in memory"),
            )
        });
        assert!(
            !status.is_server_error(),
            "{status} to {:?}",
            String::from_utf8_lossy(&path)
        );
        if is_script {
            assert_eq!(status, StatusCode::OK, "a machine always gets a script");
            judge(
                std::str::from_utf8(&answer).expect("a script is text"),
                is_armed,
            );
        }
        drop(handle);
    });
}

fn spec() -> BootLive {
    BootLive {
        power: Power::Manual {
            person: "you".to_owned(),
        },
        permit: PermitId::new(),
        macs: vec![MAC],
        address: NODE,
        nonce: NONCE.to_owned(),
        kernel: Digest([0xaa; 32]),
        initrd: Digest([0xbb; 32]),
        user_key: UserKey {
            private_key: Secret::new(""),
            certificate: String::new(),
        },
        expect_uuid: None,
        expect_serial: None,
        live_signature: None,
    }
}

/// Checks that a script boots the local disk, or the armed node with the node's nonce and MAC. The
/// armed script has only plain characters.
fn judge(script: &str, armed: bool) {
    let local = "#!ipxe\necho muster: booting from the local disk\n";
    if script.starts_with(local) {
        assert!(
            !script.contains("kernel") && script.ends_with("exit 1\n"),
            "{script}"
        );
        return;
    }
    assert!(armed, "a machine that is not armed boots from its disk");
    assert_eq!(
        script
            .lines()
            .filter(|line| line.starts_with("kernel "))
            .count(),
        1
    );
    let plain = |c: char| c.is_ascii_alphanumeric() || " -._:;/=,?#!|&${}%+@~".contains(c);
    for line in script.lines() {
        assert!(line.chars().all(plain), "{line:?}");
    }
    let command_line = script
        .lines()
        .find(|line| line.starts_with("kernel "))
        .expect("it was just counted");
    let command_line = command_line.split(" || ").next().unwrap_or_default();
    let boot = muster_node::live::boot::Boot::parse(command_line)
        .expect("the live image understands its own line");
    assert_eq!((boot.nonce.as_str(), boot.mac), (NONCE, MAC));
}

fn open() -> Door {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    let blobs = runtime
        .block_on(BlobCache::at(folder.path().join("blobs")))
        .expect("a cache");
    runtime
        .block_on(blobs.put_bytes(b"kernel"))
        .expect("a blob");
    let trust = SiteTrust {
        protocol: 1,
        permit_public_key: "AAAA".to_owned(),
        user_ca: "ssh-ed25519 AAAA".to_owned(),
        agent_url: String::new(),
    };
    let options = BootOptions {
        data_dir: folder.path().to_owned(),
        blobs,
        ipxe: IpxeBinaries::of([("snponly.efi", vec![b's'; 100].into())]),
        trust: watch::channel(Some(trust)).1,
        clock: Clock::manual("2026-01-02T03:04:05Z".parse().expect("a time")),
        contact: Contact::unneeded(),
        ports: BootPorts::default(),
    };
    let armed = ArmedBoots::new();
    let site = watch::channel(Arc::new(Site::default())).1;
    let shared = Shared::new(options, armed.clone(), mpsc::channel(1).0, site);
    let router = boot_http::router(Arc::new(shared), AGENT);
    Door {
        runtime,
        router,
        armed,
        _folder: folder,
    }
}
