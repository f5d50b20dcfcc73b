//! One connection, from accept to close.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use http::{HeaderValue, Request, Response, header};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use nix::sys::socket::{setsockopt, sockopt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tower::ServiceExt as _;

use super::body::{Received, Sent};
use super::pace::Pace;
use super::places::Admitted;
use super::stream::Paced;
use super::{Bounds, Door, Shared};
use crate::http::agent::tls::Peer;

/// The largest request line and headers together, in bytes.
const MAX_HEAD: usize = 64 << 10;
/// The same for HTTP/2.
const MAX_HEAD_HTTP_2: u32 = 64 << 10;
/// The largest number of requests at once on an HTTP/2 connection.
const MAX_STREAMS: u32 = 32;
/// The name of HTTP/2 in the handshake.
const HTTP_2: &[u8] = b"h2";

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
            let pace = Arc::new(Pace::new(place, shared.bounds, false));
            serve(stream, ConnectInfo(peer), shared, pace, end).await
        }
        Door::Agents(tls) => {
            let acceptor = tls.acceptor();
            let Some(stream) = shake_hands(&acceptor, stream, shared, &mut end).await? else {
                return Ok(());
            };
            let certified = Peer::of(stream.get_ref().1);
            if certified.0.is_some() {
                place.vouch();
            }
            let pace = Arc::new(Pace::new(place, shared.bounds, false));
            serve(stream, ConnectInfo(certified), shared, pace, end).await
        }
        Door::People(acceptor) => {
            let Some(stream) = shake_hands(acceptor, stream, shared, &mut end).await? else {
                return Ok(());
            };
            let chosen = stream.get_ref().1.alpn_protocol();
            let multiplexed = chosen == Some(HTTP_2);
            let pace = Arc::new(Pace::new(place, shared.bounds, multiplexed));
            serve(stream, ConnectInfo(peer), shared, pace, end).await
        }
    }
}

/// Returns the stream after the handshake, or none when the listener stops first.
async fn shake_hands(
    acceptor: &TlsAcceptor,
    stream: TcpStream,
    shared: &Shared,
    end: &mut oneshot::Receiver<Infallible>,
) -> Result<Option<TlsStream<TcpStream>>, End> {
    let handshake = tokio::time::timeout(shared.bounds.handshake, acceptor.accept(stream));
    tokio::select! {
        done = handshake => match done {
            Ok(shaken) => shaken.map(Some).map_err(End::Handshake),
            Err(_) => Err(End::LateHandshake),
        },
        _ = end => Err(End::Full),
        () = shared.stop.cancelled() => Ok(None),
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
    end: oneshot::Receiver<Infallible>,
) -> Result<(), End>
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: Clone + Send + Sync + 'static,
{
    let stream = TokioIo::new(Paced::new(stream, Arc::clone(&pace)));
    let service = service(shared.router.clone(), info, &pace);
    if pace.is_multiplexed() {
        let mut http = http2::Builder::new(TokioExecutor::new());
        http.max_header_list_size(MAX_HEAD_HTTP_2)
            .max_concurrent_streams(MAX_STREAMS);
        let mut connection = pin!(http.serve_connection(stream, service));
        let poll = |cx: &mut Context<'_>, stop: bool| {
            if stop {
                connection.as_mut().graceful_shutdown();
            }
            connection.as_mut().poll(cx)
        };
        return drive(shared, &pace, end, poll).await;
    }
    // The pace has the deadlines. hyper's own timer for headers also runs between requests, so its
    // 15 s would end idle connections.
    let mut http = http1::Builder::new();
    http.header_read_timeout(None).max_buf_size(MAX_HEAD);
    let mut connection = pin!(http.serve_connection(stream, service));
    let poll = |cx: &mut Context<'_>, stop: bool| {
        if stop {
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(cx)
    };
    drive(shared, &pace, end, poll).await
}

/// Polls a connection until its end or its deadline. The second argument of `poll` is true once,
/// when the listener stops.
async fn drive(
    shared: &Shared,
    pace: &Pace,
    mut end: oneshot::Receiver<Infallible>,
    mut poll: impl FnMut(&mut Context<'_>, bool) -> Poll<hyper::Result<()>>,
) -> Result<(), End> {
    let mut stop = pin!(shared.stop.cancelled());
    let mut clock = pin!(tokio::time::sleep_until(Instant::now()));
    let mut stopping = false;
    poll_fn(|cx| {
        let stops_now = !stopping && stop.as_mut().poll(cx).is_ready();
        stopping |= stops_now;
        if let Poll::Ready(ended) = poll(cx, stops_now) {
            return Poll::Ready(ended.map_err(End::Http));
        }
        if pin!(&mut end).poll(cx).is_ready() {
            return Poll::Ready(Err(End::Full));
        }
        loop {
            let deadline = pace.deadline();
            let Some(look) = deadline.or_else(|| pace.next_look()) else {
                return Poll::Pending;
            };
            if clock.deadline() != look {
                clock.as_mut().reset(look);
            }
            if clock.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if deadline.is_some() {
                return Poll::Ready(Err(End::Late));
            }
        }
    })
    .await
}

/// Wraps the routes: each request carries the connection's peer, and bodies report to the pace.
fn service<T: Clone + Send + Sync + 'static>(
    router: Router,
    info: T,
    pace: &Arc<Pace>,
) -> impl Service<
    Request<Incoming>,
    Response = Response<Body>,
    Error = Infallible,
    Future: Send + 'static,
> + use<T> {
    let pace = Arc::clone(pace);
    service_fn(move |mut request: Request<Incoming>| {
        let answering = pace.begin_answer();
        name_host(&mut request);
        request.extensions_mut().insert(info.clone());
        let request = request.map(|body| Body::new(Received::new(body, Arc::clone(&pace))));
        let answered = router.clone().oneshot(request);
        async move {
            let answer: Result<Response<Body>, Infallible> = answered.await;
            answer.map(|answer| answer.map(|body| Body::new(Sent::new(body, answering))))
        }
    })
}

/// Writes the host of an HTTP/2 request into the header of HTTP/1.1, where the routes read it.
fn name_host(request: &mut Request<Incoming>) {
    if request.headers().contains_key(header::HOST) {
        return;
    }
    let host = request.uri().authority();
    let host = host.and_then(|host| HeaderValue::from_str(host.as_str()).ok());
    if let Some(host) = host {
        request.headers_mut().insert(header::HOST, host);
    }
}
