//! Accepts connections for both listeners of the server. Connections are bounded in number, size
//! and time, because a peer is untrusted until a request shows a credential. Routes and permissions
//! belong to the router.

pub mod certificate; // The public certificate, reloaded when its files change
pub mod files; // Limit of open files
pub mod places; // Connections of each source, and eviction for newcomers

mod body; // Bodies, with waits of the peer
mod connection; // One connection, from accept to close
mod pace; // The deadlines of a connection
mod stream; // Bytes, with waits of the peer

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use self::places::{Places, Share};
use super::agent::tls::AgentTls;
use super::front::Front;
use super::source::Source;

/// The wait after an error of `accept`, for example no free file descriptor or no memory.
const PAUSE: Duration = Duration::from_millis(200);
/// The interval of log lines about evicted connections; each line gives their number.
const LOGGED_EVERY: Duration = Duration::from_secs(10);

/// The bounds of one listener. Streaming answers, long polls and event streams are bounded by their
/// routes, not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The largest number of connections, in total and of one source. Both follow from the limit of
    /// open files ([`files::Shares`]).
    pub share: Share,
    /// From accept to the end of the TLS handshake. 10 s.
    pub handshake: Duration,
    /// From the first byte of a request to the end of its headers; for the first request, from
    /// accept. 15 s.
    pub head: Duration,
    /// From the end of an answer to the first byte of the next request. 60 s.
    pub idle: Duration,
    /// The longest time without a byte of a request's body, or without an accepted byte of an
    /// answer. 60 s.
    pub stall: Duration,
}

impl Bounds {
    /// The default times, with the given share of connections.
    pub fn of(share: Share) -> Self {
        Self {
            share,
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(15),
            idle: Duration::from_secs(60),
            stall: Duration::from_secs(60),
        }
    }
}

/// The transport of a listener.
#[derive(Clone)]
pub enum Door {
    /// Plain HTTP. Requests carry the peer's address as `ConnectInfo<SocketAddr>`.
    Plain,
    /// TLS for agents. Requests carry the certificate as `ConnectInfo<Peer>`.
    Agents(Arc<AgentTls>),
    /// TLS for people and programs, with HTTP/2 where the client offers it. Requests carry the
    /// peer's address as `ConnectInfo<SocketAddr>`.
    People(TlsAcceptor),
}

/// The state shared by the connections of one listener.
struct Shared {
    door: Door,
    router: Router,
    bounds: Bounds,
    stop: CancellationToken,
}

/// Serves until stopped. Requests in progress are then answered, and no connection outlives this
/// future.
pub async fn serve(
    socket: TcpListener,
    door: Door,
    router: Router,
    bounds: Bounds,
    stop: CancellationToken,
) {
    serve_behind(socket, door, router, bounds, Front::default(), stop).await;
}

/// The same behind proxies. A trusted proxy has the connections of many clients, and no limit of
/// one source.
pub async fn serve_behind(
    socket: TcpListener,
    door: Door,
    router: Router,
    bounds: Bounds,
    front: Front,
    stop: CancellationToken,
) {
    let places = Places::new(bounds.share);
    let mut ended = Ended::default();
    let mut connections = JoinSet::new();
    let shared = Arc::new(Shared {
        door,
        router,
        bounds,
        stop: stop.clone(),
    });
    loop {
        let (stream, peer) = tokio::select! {
            () = stop.cancelled() => break,
            Some(ended) = connections.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "the task of a connection failed");
                }
                continue;
            }
            accepted = socket.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted; the listener retries");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            },
        };
        let source = Source::of(peer.ip());
        let admitted = match front.trusts(peer.ip()) {
            true => places.admit_proxy(source),
            false => places.admit(source),
        };
        if admitted
            .as_ref()
            .is_none_or(|admitted| admitted.ended_another)
        {
            ended.count(peer);
        }
        if let Some(admitted) = admitted {
            connections.spawn(connection::converse(
                stream,
                peer,
                admitted,
                Arc::clone(&shared),
            ));
        }
    }
    // Close the socket, so that the kernel rejects new connections.
    drop(socket);
    while connections.join_next().await.is_some() {}
}

/// The log of a full listener: at most one line per [`LOGGED_EVERY`].
#[derive(Default)]
struct Ended {
    connections: u64,
    logged: Option<Instant>,
}

impl Ended {
    fn count(&mut self, peer: SocketAddr) {
        self.connections += 1;
        if self
            .logged
            .is_none_or(|logged| logged.elapsed() >= LOGGED_EVERY)
        {
            tracing::warn!(
                ended = self.connections,
                latest = %peer,
                "the listener is full: connections that wait for their peer were ended, or new ones closed"
            );
            (self.connections, self.logged) = (0, Some(Instant::now()));
        }
    }
}
