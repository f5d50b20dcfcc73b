//! Accepts connections for both listeners of the server. Each connection is bounded in number, size and time, because its peer is a stranger until a
//! request shows a credential. Routes and rights are the router's.

pub mod files; // How many files this process may open
pub mod places; // Who holds the connections, and which one ends for a newcomer

mod body; // Bodies, with the time of their peer
mod connection; // One connection, from accept to close
mod pace; // What a connection waits for, and for how long
mod stream; // Bytes, with the time of their peer

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
use super::source::Source;

/// The wait after an error of `accept`: no more files, no more memory.
const PAUSE: Duration = Duration::from_millis(200);
/// Connections that a full listener ends are logged this often, as a number.
const LOGGED_EVERY: Duration = Duration::from_secs(10);

/// What one listener bears. A streaming answer, a long poll and an event stream are bounded by their routes, not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Connections at once, and of one source. Both follow from the limit of open files ([`files::Shares`]).
    pub share: Share,
    /// From accept to the end of the TLS handshake. 10 s.
    pub handshake: Duration,
    /// From the first byte of a request to the end of its headers; for the first request, from accept. 15 s.
    pub head: Duration,
    /// From the end of an answer to the first byte of the next request. 60 s.
    pub idle: Duration,
    /// Without a byte of a request's body, or without a byte of an answer taken. 60 s.
    pub stall: Duration,
}

impl Bounds {
    /// The defaults, for so many connections.
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

/// How a listener's callers come in.
#[derive(Clone)]
pub enum Door {
    /// Plain HTTP. Requests carry the peer's address as `ConnectInfo<SocketAddr>`.
    Plain,
    /// TLS. Requests carry the certificate as `ConnectInfo<Peer>`.
    Tls(TlsAcceptor),
}

/// What the connections of one listener share.
struct Shared {
    door: Door,
    router: Router,
    bounds: Bounds,
    stop: CancellationToken,
}

/// Serves until stopped. Requests under way are then answered, and no connection outlives this future.
pub async fn serve(
    socket: TcpListener,
    door: Door,
    router: Router,
    bounds: Bounds,
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
        let admitted = places.admit(Source::of(peer.ip()));
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
    // The kernel refuses callers from here on.
    drop(socket);
    while connections.join_next().await.is_some() {}
}

/// The log of a full listener: a line every few seconds, however many connections come.
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
