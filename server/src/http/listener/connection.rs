//! One connection, from accept to close.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use nix::sys::socket::{setsockopt, sockopt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tower::ServiceExt as _;

use super::body::{Received, Sent};
use super::pace::Pace;
use super::places::Admitted;
use super::stream::Paced;
use super::{Bounds, Door, Shared};
use crate::http::agent::tls::Peer;

/// The largest request line and headers together, in bytes.
const MAX_HEAD: usize = 64 << 10;

/// The reason for the end of a connection.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error(transparent)]
    Socket(#[from] io::Error),
    #[error("the TLS handshake failed: {0}")]
    Handshake(io::Error),
    #[error("the TLS handshake took too long")]
    LateHandshake,
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error("the peer sent no request, or took no answer, for too long")]
    Late,
    #[error("the listener is full, and this connection waited longest for its peer")]
    Full,
}

/// Serves the connection until one side ends it.
pub(super) async fn converse(
    stream: TcpStream,
    peer: SocketAddr,
    admitted: Admitted,
    shared: Arc<Shared>,
) {
    match serve_protocol(stream, peer, admitted, &shared).await {
        Ok(()) => {}
        Err(end @ (End::Handshake(_) | End::LateHandshake)) => {
            tracing::info!(%peer, error = %end, "a caller was not let in");
        }
        Err(end) => tracing::debug!(%peer, error = %end, "a connection ended early"),
    }
}

async fn serve_protocol(
    stream: TcpStream,
    peer: SocketAddr,
    admitted: Admitted,
    shared: &Shared,
) -> Result<(), End> {
    set_user_timeout(&stream, shared.bounds)?;
    let Admitted { place, mut end, .. } = admitted;
    match &shared.door {
        Door::Plain => {
            let pace = Arc::new(Pace::new(place, shared.bounds));
            serve(stream, ConnectInfo(peer), shared, pace, end).await
        }
        Door::Tls(acceptor) => {
            let handshake = tokio::time::timeout(shared.bounds.handshake, acceptor.accept(stream));
            let stream = tokio::select! {
                done = handshake => done
                    .map_err(|_| End::LateHandshake)?
                    .map_err(End::Handshake)?,
                _ = &mut end => return Err(End::Full),
                () = shared.stop.cancelled() => return Ok(()),
            };
            let certified = Peer::of(stream.get_ref().1);
            if certified.0.is_some() {
                place.vouch();
            }
            let pace = Arc::new(Pace::new(place, shared.bounds));
            serve(stream, ConnectInfo(certified), shared, pace, end).await
        }
    }
}

/// Sets TCP_USER_TIMEOUT: a peer without acknowledgements for the time of a stall is gone.
fn set_user_timeout(stream: &TcpStream, bounds: Bounds) -> io::Result<()> {
    let silence = u32::try_from(bounds.stall.as_millis()).unwrap_or(u32::MAX);
    setsockopt(stream, sockopt::TcpUserTimeout, &silence)?;
    stream.set_nodelay(true)
}

async fn serve<S, T>(
    stream: S,
    info: T,
    shared: &Shared,
    pace: Arc<Pace>,
    mut end: oneshot::Receiver<std::convert::Infallible>,
) -> Result<(), End>
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: Clone + Send + Sync + 'static,
{
    let stream = TokioIo::new(Paced::new(stream, Arc::clone(&pace)));
    let service = service(shared.router.clone(), info, &pace);
    // The pace has the deadlines. hyper's own timer for headers also runs between requests, so its
    // 15 s would end idle connections.
    let mut http = http1::Builder::new();
    http.header_read_timeout(None).max_buf_size(MAX_HEAD);
    let mut connection = pin!(http.serve_connection(stream, TowerToHyperService::new(service)));
    let mut stop = pin!(shared.stop.cancelled());
    let mut clock = pin!(tokio::time::sleep_until(Instant::now()));
    let mut stopping = false;
    poll_fn(|cx| {
        if !stopping && stop.as_mut().poll(cx).is_ready() {
            stopping = true;
            connection.as_mut().graceful_shutdown();
        }
        if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
            return Poll::Ready(ended.map_err(End::Http));
        }
        if pin!(&mut end).poll(cx).is_ready() {
            return Poll::Ready(Err(End::Full));
        }
        let Some(deadline) = pace.deadline() else {
            return Poll::Pending;
        };
        if clock.deadline() != deadline {
            clock.as_mut().reset(deadline);
        }
        clock.as_mut().poll(cx).map(|()| Err(End::Late))
    })
    .await
}

/// Wraps the routes: each request carries the connection's peer, and bodies report to the pace.
fn service<T: Clone + Send + Sync + 'static>(
    router: Router,
    info: T,
    pace: &Arc<Pace>,
) -> impl tower::Service<
    Request<Incoming>,
    Response = Response<Body>,
    Error = std::convert::Infallible,
    Future: Send,
> + Clone
+ use<T> {
    let (coming, going) = (Arc::clone(pace), Arc::clone(pace));
    router
        .map_request(move |mut request: Request<Incoming>| {
            coming.begin_answer();
            request.extensions_mut().insert(info.clone());
            request.map(|body| Body::new(Received::new(body, Arc::clone(&coming))))
        })
        .map_response(move |response: Response<Body>| {
            response.map(|body| Body::new(Sent::new(body, Arc::clone(&going))))
        })
}
