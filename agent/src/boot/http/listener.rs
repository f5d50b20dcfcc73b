//! Accepts connections from untrusted machines. Every connection is limited in size, number and
//! time.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tower::ServiceExt as _;
use tracing::Instrument as _;

use super::{Door, HEAD_TIME, MAX_HEADERS, direct, routes};
use crate::boot::Shared;
use crate::boot::links::ListenError;

/// Maximum number of open connections. A rack row boots at once with several connections per
/// machine. More connections wait in the queue of the kernel.
const MAX_CONNECTIONS: usize = 4096;
/// Maximum size of request line and headers. The minimum of hyper is 8 KiB.
const MAX_HEAD: usize = 16 << 10;
/// A peer without an acknowledgement for this time is gone (TCP_USER_TIMEOUT). The timeout also
/// ends transfers to reset machines.
const SILENCE: Duration = Duration::from_secs(60);

/// Serves HTTP on an address of the agent until the socket fails. `up` is called after the listener
/// is ready.
pub async fn serve(
    shared: Arc<Shared>,
    address: Ipv4Addr,
    up: impl FnOnce(),
) -> Result<(), ListenError> {
    let at = SocketAddrV4::new(address, shared.ports.http);
    let listener = TcpListener::bind(at)
        .await
        .map_err(|source| match source.kind() {
            io::ErrorKind::AddrNotAvailable => ListenError::NoInterface(address),
            _ => ListenError::of("HTTP boot", address.to_string(), at.port(), source),
        })?;
    up();
    let door = Door::new(shared, address);
    let router = routes(Arc::clone(&door));
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    // The connections are dropped with this future, so no connection survives its listener.
    let mut connections = JoinSet::new();
    loop {
        let slot = Arc::clone(&slots)
            .acquire_owned()
            .await
            .expect("the semaphore is never closed");
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, peer)) => {
                let span = tracing::error_span!("boot", %peer);
                let answers = converse(stream, peer, Arc::clone(&door), router.clone(), slot);
                connections.spawn(answers.instrument(span));
            }
            // Out of descriptors, or a peer already gone. Both are temporary and the listener
            // continues.
            Err(error) => {
                tracing::warn!(%at, %error, "HTTP boot connection not accepted; retrying in 100 ms");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn converse(
    stream: TcpStream,
    peer: SocketAddr,
    door: Arc<Door>,
    router: Router,
    slot: OwnedSemaphorePermit,
) {
    let _slot = slot;
    let silence = u32::try_from(SILENCE.as_millis()).expect("a minute fits");
    if let Err(error) = setsockopt(&stream, sockopt::TcpUserTimeout, &silence)
        .map_err(io::Error::from)
        .and_then(|()| stream.set_nodelay(true))
    {
        tracing::debug!(%error, "HTTP boot connection closed by the peer before the first request");
        return;
    }
    let stream = match direct::serve(&door, stream, peer).await {
        Ok(Some(stream)) => stream,
        Ok(None) => return,
        Err(error) => {
            tracing::debug!(%error, "blob transfer interrupted");
            return;
        }
    };
    let service = router.map_request(move |mut request: http::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        request
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD);
    if let Err(error) = http
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service))
        .await
    {
        tracing::debug!(%error, "HTTP boot connection interrupted");
    }
}
