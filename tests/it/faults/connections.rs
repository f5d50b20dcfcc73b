//! Tests of callers that hold connections and send no data, too little data, or slow data.

use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use muster_agent::work::client::Client;
use muster_agent::work::identity::Identity;
use muster_api::tokens::Role;
use muster_core::clock::Clock;
use muster_core::values::Secret;
use muster_core::wire::PROTOCOL;
use muster_core::wire::calls::Hello;
use muster_server::http::agent::tls::AgentTls;
use muster_server::http::listener::files::{self, Shares};
use muster_server::http::listener::places::Share;
use muster_server::http::listener::{self, Bounds, Door};
use serde_json::json;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::support::agents;
use crate::support::postgres;
use crate::support::server::Server;

/// A time limit above the duration of every step.
const LIMIT: Duration = Duration::from_secs(60);
/// A short bound for tests that wait for the end of the bound.
const SHORT: Duration = Duration::from_millis(300);
/// The limit of open files in the server's process.
const FILES: usize = 200;
/// Environment variables of the server's process: the database, the bounds, and the file for the
/// addresses.
const SOCKET: &str = "MUSTER_TEST_SOCKET";
const DATABASE: &str = "MUSTER_TEST_DATABASE";
const SHARES: &str = "MUSTER_TEST_SHARES";
const ADDRESSES: &str = "MUSTER_TEST_ADDRESSES";
const ITSELF: &str = "faults::connections::the_process_of_a_server";

/// Returns long bounds. No connection ends by a timeout.
fn patient(share: Share) -> Bounds {
    Bounds {
        share,
        handshake: LIMIT * 10,
        head: LIMIT * 10,
        idle: LIMIT * 10,
        stall: LIMIT * 10,
    }
}

fn many() -> Share {
    Share {
        most: usize::MAX,
        of_a_source: usize::MAX,
    }
}

/// Runs both listeners of a server, and is no test. Other tests start the function as a process
/// with few files.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "the other tests here start it as a process of its own"]
async fn the_process_of_a_server() {
    let (Ok(socket), Ok(database)) = (std::env::var(SOCKET), std::env::var(DATABASE)) else {
        return;
    };
    let options = PgConnectOptions::new()
        .socket(socket)
        .username("muster")
        .database(&database);
    let pool = PgPoolOptions::new()
        .min_connections(2)
        .max_connections(4)
        .connect_with(options)
        .await
        .unwrap();
    let server = Server::on(pool, Clock::System).await;
    let shares = match std::env::var(SHARES).as_deref() {
        Ok("derived") => {
            let shares = Shares::of(files::raise_limit());
            [shares.public.share, shares.agents.share]
        }
        _ => [many(), many()],
    };
    let [public, agents] = shares.map(patient);
    let door = agents::Door::bounded(&server.app, agents).await;
    let public = server.listen_within(public).await;
    let file = std::env::var(ADDRESSES).unwrap();
    std::fs::write(format!("{file}.new"), format!("{public} {}", door.url)).unwrap();
    std::fs::rename(format!("{file}.new"), file).unwrap();
    std::future::pending::<()>().await;
}

/// A server's process with a low limit of open files. The drop of the value kills the process.
struct Process {
    child: Child,
    public: SocketAddr,
    /// URL of the agents' listener.
    agents: String,
}

impl Process {
    async fn start(pool: &PgPool, shares: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (options, file) = (pool.connect_options(), dir.path().join("addresses"));
        let child = Command::new("sh")
            .args(["-c", &format!("ulimit -n {FILES} && exec \"$0\" \"$@\"")])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", ITSELF, "--ignored"])
            .env(SOCKET, options.get_socket().unwrap())
            .env(DATABASE, options.get_database().unwrap())
            .env(SHARES, shares)
            .env(ADDRESSES, &file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until("the process listens", async || file.exists()).await;
        let text = std::fs::read_to_string(&file).unwrap();
        let (public, agents) = text.split_once(' ').unwrap();
        Self {
            child,
            public: public.parse().unwrap(),
            agents: agents.to_owned(),
        }
    }

    fn open_files(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.child.id());
        std::fs::read_dir(folder).unwrap().count()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let met = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LIMIT, met).await.expect(what);
}

async fn connect(from: IpAddr, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}

/// Opens connections from ten addresses in turn, and sends half a request on every connection.
async fn crowd(number: usize, to: SocketAddr) -> Vec<TcpStream> {
    let mut crowd = Vec::new();
    for caller in 0..number {
        let from = [127, 0, 3, 1 + u8::try_from(caller % 10).unwrap()];
        let mut stream = connect(from.into(), to).await;
        // A full server may have closed the connection.
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: m\r\n")
            .await
            .ok();
        crowd.push(stream);
    }
    crowd
}

/// Returns whether the server closed a connection without an answer.
fn is_closed(stream: &TcpStream) -> bool {
    match stream.try_read(&mut [0; 64]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}

fn closed(crowd: &[TcpStream]) -> usize {
    crowd.iter().filter(|stream| is_closed(stream)).count()
}

/// Returns the status of `/healthz` for a caller at an address, and 0 without an answer.
async fn health(from: [u8; 4], to: SocketAddr) -> u16 {
    let client = reqwest::Client::builder()
        .local_address(IpAddr::from(from))
        .timeout(LIMIT)
        .no_proxy()
        .build()
        .unwrap();
    let answer = client.get(format!("http://{to}/healthz")).send().await;
    answer.map_or(0, |answer| answer.status().as_u16())
}

/// An agent of a new site. The agent reaches the server at a URL.
struct Host {
    _dir: tempfile::TempDir,
    client: Client,
}

impl Host {
    async fn enrol(server: &Server, url: &str) -> Self {
        let admin = server.admin().await;
        admin
            .put("/v1/sites/lab", &json!({ "spec": {} }))
            .await
            .expect(201);
        let made = admin
            .post("/v1/sites/lab/agents", &json!({ "name": "a" }))
            .await
            .expect(201);
        let token = Secret::new(made.body["token"].as_str().unwrap());
        rustls::crypto::aws_lc_rs::default_provider()
            .install_default()
            .ok();
        let dir = tempfile::tempdir().unwrap();
        let identity = Arc::new(Identity::open(dir.path(), Some(&token)).unwrap());
        let client = Client::new(url, identity.tls().unwrap()).unwrap();
        identity.enrol(&client, &token).await.unwrap();
        Self { _dir: dir, client }
    }

    async fn hello(&self) {
        let hello = Hello {
            protocol: PROTOCOL,
            version: "0".into(),
            instance: "a".into(),
        };
        self.client.hello(&hello).await.unwrap();
    }
}

/// Opens more idle connections than the process may open files. Both listeners still serve callers
/// at other addresses.
#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_of_idle_connections_leaves_agents_and_other_addresses_served() {
    let server = Server::on(postgres::database().await, Clock::System).await;
    let process = Process::start(&server.app.pool, "derived").await;
    let public = crowd(2 * FILES, process.public).await;
    // The share of the listener is half of the files.
    until("the listener ends what is beyond its share", async || {
        closed(&public) >= 2 * FILES - FILES / 2
    })
    .await;
    assert_eq!(health([127, 0, 0, 2], process.public).await, 200);
    assert_eq!(
        health([127, 0, 3, 1], process.public).await,
        200,
        "a source that holds its share ends a connection of its own"
    );
    let agent = Host::enrol(&server, &process.agents).await;
    agent.hello().await;
    let listener = process.agents.trim_start_matches("https://");
    let agents = crowd(2 * FILES, listener.parse().unwrap()).await;
    until("the agents' listener ends strangers", async || {
        closed(&agents) >= 2 * FILES - FILES / 4
    })
    .await;
    agent.hello().await;
    assert_eq!(health([127, 0, 0, 2], process.public).await, 200);
    assert!(process.open_files() < FILES);
}

/// Without a share, callers take every file of the process. The listener waits, and accepts
/// connections again when files are free.
#[tokio::test(flavor = "multi_thread")]
async fn a_listener_without_files_accepts_again_when_some_are_free() {
    let server = Server::on(postgres::database().await, Clock::System).await;
    let process = Process::start(&server.app.pool, "none").await;
    // The process has open files already. The last connections wait in the kernel's queue.
    let crowd = crowd(FILES, process.public).await;
    until("every file is open", async || process.open_files() >= FILES).await;
    drop(crowd);
    assert_eq!(health([127, 0, 0, 1], process.public).await, 200);
}

/// Reads to the end of the connection.
async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let end = tokio::time::timeout(LIMIT, stream.read_to_end(&mut bytes)).await;
    // A reset also ends the connection.
    end.expect("the server ends the connection").ok();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_drips_is_ended_however_long_it_goes_on() {
    let server = Server::start().await;
    let bounds = Bounds {
        head: SHORT,
        ..patient(many())
    };
    let address = server.listen_within(bounds).await;
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut read, mut write) = stream.into_split();
    let drip = tokio::spawn(async move {
        let endless = b"GET / HTTP/1.1\r\nX: "
            .iter()
            .chain(std::iter::repeat(&b'a'));
        for byte in endless {
            if write.write_all(&[*byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(SHORT / 10).await;
        }
    });
    let mut answer = Vec::new();
    let end = tokio::time::timeout(LIMIT, read.read_to_end(&mut answer)).await;
    end.expect("the server ends the connection").ok();
    assert!(answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
    drip.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_without_a_next_request_is_ended() {
    let server = Server::start().await;
    let first = Bounds {
        head: SHORT,
        ..patient(many())
    };
    let address = server.listen_within(first).await;
    let mut silent = TcpStream::connect(address).await.unwrap();
    assert_eq!(rest(&mut silent).await, "", "no first request");
    // A short bound for the head could end the connection before the request.
    let next = Bounds {
        idle: SHORT,
        ..patient(many())
    };
    let address = server.listen_within(next).await;
    let mut idle = TcpStream::connect(address).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: m\r\n\r\n")
        .await
        .unwrap();
    let answer = rest(&mut idle).await;
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("ok\n"),
        "{answer}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_stalls_is_ended_and_leaves_nothing() {
    let server = Server::start().await;
    let bounds = Bounds {
        idle: SHORT,
        stall: SHORT,
        ..patient(many())
    };
    let address = server.listen_within(bounds).await;
    let token = server.admin().await.token.unwrap();
    let mut upload = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "PUT /v1/blobs/sha256/{} HTTP/1.1\r\nHost: m\r\nAuthorization: Bearer {token}\r\nContent-Length: 100\r\n\r\nhalf",
        "0".repeat(64)
    );
    upload.write_all(head.as_bytes()).await.unwrap();
    let answer = rest(&mut upload).await;
    assert!(
        answer.starts_with("HTTP/1.1 400 ") && answer.contains("upload_cut"),
        "{answer}"
    );
    let left = std::fs::read_dir(server.data_dir.path())
        .unwrap()
        .flatten()
        .filter(|file| file.file_name().to_string_lossy().starts_with("upload-"));
    assert_eq!(left.count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_not_taken_is_ended() {
    let server = Server::start().await;
    let bounds = Bounds {
        stall: SHORT,
        ..patient(many())
    };
    let address = server.listen_within(bounds).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The answers are larger than the buffers of both sides.
    let asked = "GET /openapi.json HTTP/1.1\r\nHost: m\r\n\r\n".repeat(200);
    stream.write_all(asked.as_bytes()).await.unwrap();
    until("the server ends the connection", async || {
        stream
            .try_write(b"\r\n")
            .is_err_and(|error| error.kind() != std::io::ErrorKind::WouldBlock)
    })
    .await;
}

/// Idle time counts between requests. A long poll and an event stream last longer than every bound
/// of the connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_answer_outlasts_the_bounds_of_its_connection() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let viewer = server.caller(Role::Viewer).await.token.unwrap();
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let ask = async |path: &str, headers: &str| {
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: m\r\nAuthorization: Bearer {viewer}\r\n{headers}\r\n\r\n"
        );
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
    };
    let mut stream = ask("/v1/events", "Accept: text/event-stream").await;
    let poll = "/v1/events?after=0&wait=3s&topics=rack.*";
    let mut poll = ask(poll, "Connection: close").await;
    // The requests are complete before the short bounds begin.
    let bounds = Bounds {
        head: SHORT,
        idle: SHORT,
        stall: SHORT,
        ..patient(many())
    };
    let router = muster_server::router::router(server.app.clone());
    let stop = CancellationToken::new();
    tokio::spawn(listener::serve(socket, Door::Plain, router, bounds, stop));
    let mut head = String::new();
    read_until(&mut stream, &mut head, "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let mut told = head.split_off(head.find("\r\n\r\n").unwrap());
    let answer = rest(&mut poll).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    admin
        .put("/v1/sites/lab", &json!({ "spec": {} }))
        .await
        .expect(201);
    read_until(&mut stream, &mut told, "lab").await;
}

/// Reads from a connection until the text contains the words.
async fn read_until(stream: &mut TcpStream, text: &mut String, words: &str) {
    let mut bytes = [0; 4096];
    while !text.contains(words) {
        let read = tokio::time::timeout(LIMIT, stream.read(&mut bytes)).await;
        let length = read.expect(words).unwrap();
        assert!(length > 0, "the connection ended: {text}");
        *text += &String::from_utf8_lossy(&bytes[..length]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_that_does_not_end_is_ended() {
    let server = Server::start().await;
    let bounds = Bounds {
        handshake: SHORT,
        ..patient(many())
    };
    let door = agents::Door::bounded(&server.app, bounds).await;
    let address = door.url.trim_start_matches("https://");
    let mut silent = TcpStream::connect(address).await.unwrap();
    assert_eq!(rest(&mut silent).await, "");
    // The client sends only the start of a handshake record.
    let mut half = TcpStream::connect(address).await.unwrap();
    half.write_all(b"\x16\x03\x01\x02\x00").await.unwrap();
    assert_eq!(rest(&mut half).await, "");
}

/// A stopped listener answers open requests, ends idle connections, and accepts no new connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_stops_answers_requests_under_way() {
    let server = Server::start().await;
    let app = &server.app;
    let viewer = server.caller(Role::Viewer).await.token.unwrap();
    let doors = [
        (Door::Plain, muster_server::router::router(app.clone())),
        (
            Door::Agents(AgentTls::open(Arc::clone(&app.keys)).unwrap()),
            muster_server::http::agent::router(app.clone()),
        ),
    ];
    for (number, (door, router)) in doors.into_iter().enumerate() {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (socket.local_addr().unwrap(), CancellationToken::new());
        let bounds = patient(many());
        let serving = tokio::spawn(listener::serve(socket, door, router, bounds, stop.clone()));
        let mut idle = TcpStream::connect(address).await.unwrap();
        let mut asks = TcpStream::connect(address).await.unwrap();
        if number == 0 {
            let poll = format!(
                "GET /v1/events?after=0&wait=2s HTTP/1.1\r\nHost: m\r\nAuthorization: Bearer {viewer}\r\n\r\n"
            );
            asks.write_all(poll.as_bytes()).await.unwrap();
            until("the long poll has begun", async || {
                app.wake_readers.receiver_count() > 0
            })
            .await;
        }
        stop.cancel();
        assert_eq!(rest(&mut idle).await, "");
        let answer = rest(&mut asks).await;
        assert_eq!(answer.starts_with("HTTP/1.1 200 "), number == 0, "{answer}");
        tokio::time::timeout(LIMIT, serving).await.unwrap().unwrap();
        assert!(TcpStream::connect(address).await.is_err());
    }
}
