//! The public listener before its routes: clients behind proxies, and TLS.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::get;
use futures::stream;
use muster_api::tokens::Role;
use muster_core::values::Secret;
use muster_server::http::front::Front;
use muster_server::http::limits::Rates;
use muster_server::http::listener::certificate::Certificate;
use muster_server::http::listener::files::Shares;
use muster_server::http::listener::places::Share;
use muster_server::http::listener::{self, Bounds, Door};
use muster_server::router;
use muster_server::streams::Streams;
use rcgen::{KeyPair, generate_simple_self_signed};
use reqwest::{Client, Version};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::limits::{LIMIT, PASSWORD, client_at, rates, with_ada};
use crate::support::server::Server;
use crate::terraform::Terraform;

const PROXY: [u8; 4] = [127, 0, 0, 1];
const STRANGER: [u8; 4] = [127, 0, 0, 9];

async fn listen(door: Door, router: Router, bounds: Bounds) -> SocketAddr {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let stop = CancellationToken::new();
    tokio::spawn(listener::serve(socket, door, router, bounds, stop));
    address
}

/// The server behind a proxy at [`PROXY`].
async fn proxied(server: &Server, rates: Rates) -> String {
    let front = Front {
        proxies: vec!["127.0.0.1/32".parse().unwrap()],
        secure: false,
    };
    let router = router::behind(server.app.clone(), rates, front);
    let address = listen(Door::Plain, router, Shares::of(1024).public).await;
    format!("http://{address}")
}

/// A proxy with HTTP/1.1 has a connection for each stream of its clients.
#[tokio::test(flavor = "multi_thread")]
async fn streams_behind_a_proxy_leave_connections_for_requests() {
    let mut server = Server::start().await;
    let share = Share {
        most: 6,
        of_a_source: 1,
    };
    server.app.streams = Streams::within(share.most);
    let front = Front {
        proxies: vec!["127.0.0.1/32".parse().unwrap()],
        secure: false,
    };
    let router = router::behind(server.app.clone(), Rates::default(), front.clone());
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", socket.local_addr().unwrap());
    let bounds = Bounds::of(share);
    let stop = CancellationToken::new();
    let serving = listener::serve_behind(socket, Door::Plain, router, bounds, front, stop);
    tokio::spawn(serving);
    let viewer = server.caller(Role::Viewer).await.token.unwrap();
    let ask = async |peer: [u8; 4], path: &str| {
        let request = client_at(peer).get(format!("{url}{path}"));
        let request = request.bearer_auth(&viewer);
        request.header("accept", "text/event-stream").send().await
    };
    let events = "/v1/events?after=0";
    let mut open = vec![ask(STRANGER, events).await.unwrap()];
    assert!(ask(STRANGER, "/v1/sites").await.is_err(), "its whole share");
    for _ in 0..2 {
        open.push(ask(PROXY, events).await.unwrap());
    }
    assert!(open.iter().all(|answer| answer.status() == 200));
    let full = ask(PROXY, events).await.unwrap();
    assert_eq!(full.status(), 503);
    assert!(full.text().await.unwrap().contains("streams_full"));
    assert_eq!(ask(PROXY, "/v1/sites").await.unwrap().status(), 200);
}

/// The answer to a guessed token from a peer, with a header of proxies.
async fn guess(url: &str, peer: [u8; 4], name: &'static str, value: &str) -> u16 {
    let request = client_at(peer)
        .get(format!("{url}/v1/sites"))
        .header(name, value)
        .header(
            "authorization",
            format!("Bearer mst_{}", uuid::Uuid::now_v7()),
        );
    request.send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn guesses_behind_a_trusted_proxy_are_paid_by_the_client() {
    let server = Server::start().await;
    let url = proxied(&server, rates()).await;
    let name = "x-forwarded-for";
    for answer in [401, 401, 401, 429] {
        assert_eq!(guess(&url, PROXY, name, "192.0.2.7").await, answer);
    }
    // The other clients of the proxy have their own limits, and so has the proxy.
    assert_eq!(guess(&url, PROXY, name, "192.0.2.8").await, 401);
    assert_eq!(guess(&url, PROXY, "x-none", "-").await, 401);
    // The client writes an address before its own, or the other header.
    let spoofed = "203.0.113.9, 192.0.2.7";
    assert_eq!(guess(&url, PROXY, name, spoofed).await, 429);
    let chain = "203.0.113.9, 192.0.2.7, 127.0.0.1";
    assert_eq!(guess(&url, PROXY, name, chain).await, 429);
    assert_eq!(guess(&url, PROXY, "forwarded", "for=192.0.2.7").await, 429);
}

#[tokio::test]
async fn headers_of_an_untrusted_peer_are_not_read() {
    let server = Server::start().await;
    let url = proxied(&server, rates()).await;
    for (number, answer) in [401, 401, 401, 429].into_iter().enumerate() {
        let invented = format!("192.0.2.{number}");
        let found = guess(&url, STRANGER, "x-forwarded-for", &invented).await;
        assert_eq!(found, answer, "{number}");
    }
    assert_eq!(
        guess(&url, PROXY, "x-forwarded-for", "192.0.2.0").await,
        401,
        "the invented address paid for nothing"
    );
}

/// A login from a peer with `X-Forwarded-Proto`: whether the cookie is for TLS only, and whether
/// browsers are told to use TLS only.
async fn sign_in(url: &str, peer: [u8; 4], proto: &str) -> (bool, bool) {
    let form = format!("name=ada&password={}", PASSWORD.replace(' ', "+"));
    let answer = client_at(peer)
        .post(format!("{url}/sign-in"))
        .header("content-type", "application/x-www-form-urlencoded")
        .header("x-forwarded-proto", proto)
        .body(form);
    let answer = answer.send().await.unwrap();
    assert_eq!(answer.status(), 303);
    let cookie = answer.headers()["set-cookie"].to_str().unwrap();
    (
        cookie.contains("Secure"),
        answer.headers().contains_key("strict-transport-security"),
    )
}

#[tokio::test]
async fn only_a_trusted_proxy_says_that_the_browser_used_tls() {
    let server = Server::start().await;
    with_ada(&server).await;
    let url = proxied(&server, Rates::default()).await;
    assert_eq!(sign_in(&url, PROXY, "https").await, (true, true));
    assert_eq!(sign_in(&url, PROXY, "http").await, (false, false));
    assert_eq!(sign_in(&url, STRANGER, "https").await, (false, false));
    let front = Front {
        proxies: Vec::new(),
        secure: true,
    };
    let router = router::behind(server.app.clone(), Rates::default(), front);
    let address = listen(Door::Plain, router, Shares::of(1024).public).await;
    let url = format!("http://{address}");
    assert_eq!(sign_in(&url, STRANGER, "http").await, (true, true));
}

/// A certificate and its key, in PEM.
struct Pair {
    certificate: String,
    key: String,
}

fn issue() -> Pair {
    let issued = generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key: KeyPair = issued.signing_key;
    Pair {
        certificate: issued.cert.pem(),
        key: key.serialize_pem(),
    }
}

/// The files of a certificate.
struct Files {
    chain: PathBuf,
    key: PathBuf,
    _folder: TempDir,
}

impl Files {
    fn of(pair: &Pair) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let files = Self {
            chain: folder.path().join("cert.pem"),
            key: folder.path().join("key.pem"),
            _folder: folder,
        };
        std::fs::write(&files.chain, &pair.certificate).unwrap();
        std::fs::write(&files.key, &pair.key).unwrap();
        files
    }

    /// Loads the certificate, or returns the whole error.
    fn load(&self) -> Result<Arc<Certificate>, String> {
        Certificate::load(self.chain.clone(), self.key.clone())
            .map_err(|error| format!("{error:#}"))
    }
}

/// Serves by TLS: the URL.
async fn serve(server: &Server, certificate: &Arc<Certificate>, bounds: Bounds) -> String {
    let front = Front {
        proxies: Vec::new(),
        secure: true,
    };
    let router = router::behind(server.app.clone(), Rates::default(), front);
    let door = Door::People(certificate.acceptor().unwrap());
    let address = listen(door, router, bounds).await;
    format!("https://{address}")
}

/// The provider of the clients.
fn install_provider() {
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .ok();
}

fn builder(trusted: &Pair) -> reqwest::ClientBuilder {
    install_provider();
    let trusted = reqwest::Certificate::from_pem(trusted.certificate.as_bytes()).unwrap();
    Client::builder()
        .tls_certs_only([trusted])
        .timeout(LIMIT)
        .no_proxy()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_is_served_by_tls_with_http_2_and_http_1() {
    let server = Server::start().await;
    let pair = issue();
    let certificate = Files::of(&pair).load().unwrap();
    // A single connection: all requests of HTTP/2 use it.
    let share = Share {
        most: 1,
        of_a_source: 1,
    };
    let url = serve(&server, &certificate, Bounds::of(share)).await;
    let admin = server.admin().await.token.unwrap();
    let two = builder(&pair).build().unwrap();
    let ask = async |client: &Client| {
        let request = client.get(format!("{url}/v1/sites")).bearer_auth(&admin);
        request.send().await.unwrap()
    };
    let first = ask(&two).await;
    assert_eq!(
        (first.status().as_u16(), first.version()),
        (200, Version::HTTP_2)
    );
    assert_eq!(
        first.headers()["strict-transport-security"],
        "max-age=31536000"
    );
    let mut at_once = JoinSet::new();
    for _ in 0..20 {
        let request = two.get(format!("{url}/v1/sites"));
        at_once.spawn(request.bearer_auth(&admin).send());
    }
    for answer in at_once.join_all().await {
        let answer = answer.unwrap();
        assert_eq!(answer.status(), 200);
        // The whole answer: the connection then waits, and yields to the next one.
        answer.bytes().await.unwrap();
    }
    first.bytes().await.unwrap();
    drop(two);
    let one = builder(&pair).http1_only().build().unwrap();
    assert_eq!(ask(&one).await.version(), Version::HTTP_11);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_trusts_the_authority_that_it_was_given() {
    let server = Server::start().await;
    let pair = issue();
    let certificate = Files::of(&pair).load().unwrap();
    let url = serve(&server, &certificate, Shares::of(1024).public).await;
    install_provider();
    let token = server.admin().await.token.map(Secret::new);
    let pem = pair.certificate.as_bytes();
    let client = muster_api::client::Client::trusting(&url, token.clone(), pem).unwrap();
    client.get_value(&["sites"], &[]).await.unwrap();
    let stranger = muster_api::client::Client::new(&url, token.clone()).unwrap();
    assert!(stranger.get_value(&["sites"], &[]).await.is_err());
    assert!(muster_api::client::Client::trusting(&url, token, b"no certificate").is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_certificate_is_used_without_a_restart_and_only_with_its_key() {
    let server = Server::start().await;
    let (first, second) = (issue(), issue());
    let files = Files::of(&first);
    std::fs::write(&files.key, &second.key).unwrap();
    let error = files.load().unwrap_err();
    assert!(error.contains("--tls-key"), "{error}");
    std::fs::write(&files.key, &first.key).unwrap();
    let certificate = files.load().unwrap();
    let url = serve(&server, &certificate, Shares::of(1024).public).await;
    let is_trusted = async |pair: &Pair| {
        let client = builder(pair).build().unwrap();
        client.get(format!("{url}/healthz")).send().await.is_ok()
    };
    assert!(is_trusted(&first).await && !is_trusted(&second).await);
    assert!(!certificate.reload().unwrap());
    // The new certificate comes before its key.
    std::fs::write(&files.chain, &second.certificate).unwrap();
    assert!(certificate.reload().is_err());
    assert!(is_trusted(&first).await && !is_trusted(&second).await);
    std::fs::write(&files.key, &second.key).unwrap();
    assert!(certificate.reload().unwrap());
    assert!(!is_trusted(&first).await && is_trusted(&second).await);
}

/// The configuration or the environment of Terraform names the authority.
#[tokio::test(flavor = "multi_thread")]
async fn terraform_trusts_the_authority_that_it_was_given() {
    let server = Server::start().await;
    let files = Files::of(&issue());
    let bounds = Shares::of(1024).public;
    let url = serve(&server, &files.load().unwrap(), bounds).await;
    let admin = server.admin().await;
    let terraform = Terraform::at(&url, admin.token.as_deref().unwrap());
    let site = "resource \"muster_site\" \"lab\" {\n  name = \"lab\"\n}\n";
    let named = format!("provider \"muster\" {{\n  ca = {:?}\n}}\n", files.chain);
    terraform.write(&format!("{named}{site}"));
    terraform.apply().await.expect(0);
    admin.get("/v1/sites/lab").await.expect(200);

    terraform.write(site);
    terraform
        .plan()
        .await
        .expect(1)
        .says("invalid peer certificate");
    let mut command = terraform.command(&["plan", "-input=false"]);
    command.env("MUSTER_CA", &files.chain);
    let planned = command.output().await.unwrap();
    assert!(planned.status.success(), "{planned:?}");
}

/// A client of HTTP/2 that does not read its answer holds the connection for the time of a stall
/// only.
#[tokio::test(flavor = "multi_thread")]
async fn an_unread_answer_of_http_2_does_not_hold_a_connection() {
    let pair = issue();
    let certificate = Files::of(&pair).load().unwrap();
    let share = Share {
        most: 1,
        of_a_source: 1,
    };
    let bounds = Bounds {
        stall: Duration::from_millis(300),
        ..Bounds::of(share)
    };
    let endless = async || {
        let piece = || Ok::<_, Infallible>(Bytes::from_static(&[0; 4096]));
        Body::from_stream(stream::repeat_with(piece))
    };
    let router = Router::new()
        .route("/endless", get(endless))
        .route("/short", get(async || "short"));
    let door = Door::People(certificate.acceptor().unwrap());
    let address = listen(door, router, bounds).await;
    let slow = builder(&pair).build().unwrap();
    let request = slow.get(format!("https://{address}/endless"));
    let mut unread = request.send().await.unwrap();
    assert_eq!(unread.version(), Version::HTTP_2);
    assert!(unread.chunk().await.unwrap().is_some());
    let other = builder(&pair).build().unwrap();
    let enters = async {
        let short = format!("https://{address}/short");
        while other.get(&short).send().await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LIMIT, enters).await.unwrap();
    assert!(unread.bytes().await.is_err());
}
