//! Accepts connections from untrusted machines. Every connection is limited in size, number and
//! time.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tower::ServiceExt as _;
use tracing::Instrument as _;

use super::{Door, HEAD_TIME, MAX_HEADERS, direct, outside_routes, routes};
use crate::boot::Shared;
use crate::boot::links::ListenError;
use crate::boot::places::{Bounds, Place, Places, Share};

/// Maximum number of connections of a source: iPXE, the live image and apt use one to four each.
const PER_SOURCE: usize = 16;
/// Maximum numbers of open connections. A rack row boots at once with several connections per
/// machine. A further connection is closed, and the client repeats the connection.
const MOST_INSIDE: u64 = 4096;
const MOST_OUTSIDE: u64 = 256;
/// The assumed limit of open files without an answer of the kernel: the limit of most systems.
const ASSUMED_FILES: u64 = 1024;
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
    let outside = outside_routes(Arc::clone(&door));
    let open_files = getrlimit(Resource::RLIMIT_NOFILE);
    let places = Places::new(bounds(open_files.map_or(ASSUMED_FILES, |(soft, _)| soft)));
    // The connections are dropped with this future, so no connection survives its listener.
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, peer)) => {
                let Some((place, share)) = admit(&door.shared, &places, peer) else {
                    continue;
                };
                let router = match share {
                    Share::Armed | Share::Subnet => router.clone(),
                    Share::Outside => outside.clone(),
                };
                let span = tracing::error_span!("boot", %peer);
                let answers = converse(stream, peer, Arc::clone(&door), router, place);
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

/// Returns the bounds of a process with a limit of open files. A flood must leave files for armed
/// machines, blobs and the server.
fn bounds(open_files: u64) -> Bounds {
    let share = |part: u64, most: u64| {
        usize::try_from((open_files / part).clamp(1, most)).unwrap_or(PER_SOURCE)
    };
    Bounds {
        per_source: PER_SOURCE,
        armed: share(2, MOST_INSIDE),
        subnet: share(4, MOST_INSIDE),
        outside: share(16, MOST_OUTSIDE),
    }
}

/// Takes a place for a connection, or returns `None` for a connection to be closed.
fn admit(shared: &Shared, places: &Arc<Places>, peer: SocketAddr) -> Option<(Place, Share)> {
    let IpAddr::V4(source) = peer.ip() else {
        return None;
    };
    let share = shared.share_of(source);
    if share == Share::Outside {
        tracing::debug!(%peer, "HTTP boot connection from outside of the site's subnets: files and the time only");
    }
    match places.take(source, share) {
        Ok(place) => Some((place, share)),
        Err(full) => {
            tracing::debug!(%peer, ?full, "HTTP boot connection closed: no free place");
            None
        }
    }
}

async fn converse(
    stream: TcpStream,
    peer: SocketAddr,
    door: Arc<Door>,
    router: Router,
    place: Place,
) {
    let _place = place;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_connections_together_leave_files_for_the_agent() {
        for (open_files, expected) in [
            (1024, (512, 256, 64)),
            (1 << 20, (4096, 4096, 256)),
            (u64::MAX, (4096, 4096, 256)),
            (1, (1, 1, 1)),
        ] {
            let found = bounds(open_files);
            assert_eq!((found.armed, found.subnet, found.outside), expected);
            assert_eq!(found.per_source, 16);
        }
    }
}
