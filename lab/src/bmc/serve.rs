//! The network side of a BMC: TLS, HTTP/1.1, limits on size and time, and the faults that act on
//! whole requests.

use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::access::{log_failure, require};
use super::faults::{FaultKind, Garbage};
use super::reply::{Reply, error};
use super::{Service, tree};
use crate::error::{LabError, io};

/// Maximum number of open connections. A BMC has little memory, so any further connection is closed
/// at once.
const MAX_CONNECTIONS: usize = 32;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a request body, in bytes.
const MAX_BODY: usize = 64 << 10;
/// Duration of "never", longer than the timeout of any client.
const NEVER: Duration = Duration::from_secs(600);

/// The error that closes a connection without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the answer is lost on purpose")]
struct Lost;

type Body = BoxBody<Bytes, Lost>;

/// Makes a listener from elsewhere non-blocking and hands the listener to tokio; returns its
/// address too.
pub(crate) fn adopt(listener: StdListener) -> Result<(TcpListener, SocketAddr), LabError> {
    listener
        .set_nonblocking(true)
        .map_err(io("make a listener non-blocking"))?;
    let address = listener
        .local_addr()
        .map_err(io("read a listener's address"))?;
    Ok((
        TcpListener::from_std(listener).map_err(io("adopt a listener"))?,
        address,
    ))
}

/// Accepts connections until the future is dropped.
pub(crate) async fn run(listener: TcpListener, tls: Arc<ServerConfig>, service: Arc<Service>) {
    let acceptor = TlsAcceptor::from(tls);
    let mut connections = JoinSet::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        if connections.len() < MAX_CONNECTIONS {
            connections.spawn(serve(stream, acceptor.clone(), Arc::clone(&service)));
        }
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, service: Arc<Service>) {
    // Errors on a client's connection are not logged here: the client reports them.
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await
    else {
        return;
    };
    let answer = service_fn(move |request| answer(Arc::clone(&service), request));
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(60))
        .max_buf_size(64 << 10);
    let _ = server.serve_connection(TokioIo::new(stream), answer).await;
}

async fn answer(service: Arc<Service>, request: Request<Incoming>) -> Result<Response<Body>, Lost> {
    let (parts, body) = request.into_parts();
    let read = tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY).collect()).await;
    let Ok(Ok(body)) = read else { return Err(Lost) };
    let fault = service.faults.take(&parts.method, parts.uri.path());
    match fault {
        Some(FaultKind::Hang) => {
            tokio::time::sleep(NEVER).await;
            return Err(Lost);
        }
        Some(FaultKind::Status503 { retry_after_s }) => {
            return Ok(wire(unavailable(retry_after_s)));
        }
        Some(FaultKind::Garbage { shape }) => return Ok(rubbish(shape)),
        Some(FaultKind::AcceptedNothingHappens) => return Ok(wire(Reply::no_content())),
        Some(FaultKind::Slow { ms }) => {
            tokio::time::sleep(Duration::from_millis(ms).min(NEVER)).await
        }
        Some(
            FaultKind::LostReply
            | FaultKind::PasswordChanged
            | FaultKind::UpdateNeverEnds
            | FaultKind::UpdateFails
            | FaultKind::UpdateChangesNothing
            | FaultKind::SettingsDropped,
        )
        | None => {}
    }
    let restarting = *service.restarting_until.lock().expect("no holder panics");
    if restarting.is_some_and(|until| Instant::now() < until) {
        return Ok(wire(unavailable(1)));
    }
    let all_wrong = fault == Some(FaultKind::PasswordChanged);
    let reply = authorised(&service, &parts, &body.to_bytes(), all_wrong).await;
    match fault {
        Some(FaultKind::LostReply) => Err(Lost),
        _ => Ok(wire(reply)),
    }
}

async fn authorised(
    service: &Arc<Service>,
    request: &http::request::Parts,
    body: &[u8],
    all_wrong: bool,
) -> Reply {
    let path = request.uri.path().trim_end_matches('/');
    if tree::is_open(&request.method, path) {
        return tree::dispatch(service, None, request, body, all_wrong).await;
    }
    let attempt = {
        let memory = service.memory();
        service
            .access()
            .judge(&request.headers, memory.accounts(), all_wrong)
    };
    log_failure(service, &attempt);
    match require(attempt) {
        Ok(user) => tree::dispatch(service, Some(user), request, body, all_wrong).await,
        Err(refusal) => refusal,
    }
}

fn unavailable(retry_after_s: u32) -> Reply {
    let text = "The service is temporarily unavailable.";
    let reply = error(
        StatusCode::SERVICE_UNAVAILABLE,
        "ServiceTemporarilyUnavailable",
        text,
        "Wait and try again.",
    );
    reply.with("retry-after", retry_after_s.to_string())
}

fn wire(reply: Reply) -> Response<Body> {
    let body = reply
        .body
        .map(|body| Bytes::from(body.to_string()))
        .unwrap_or_default();
    let mut response = Response::new(whole(body));
    *response.status_mut() = reply.status;
    let headers = response.headers_mut();
    headers.insert("odata-version", HeaderValue::from_static("4.0"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if reply.status != StatusCode::NO_CONTENT {
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
    }
    for (name, value) in reply.headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    response
}

fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed()
}

fn rubbish(shape: Garbage) -> Response<Body> {
    let start = Bytes::from_static(br#"{"@odata.id":"/redfish/v1/Systems/1","PowerState":"#);
    let mut response = Response::new(match shape {
        Garbage::BadJson => whole(start),
        Garbage::Truncated => {
            // The pause lets the headers and the first bytes leave before the connection breaks.
            let broken = futures::stream::once(async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                Err(Lost)
            });
            BodyExt::boxed(StreamBody::new(
                futures::stream::iter([Ok(Frame::data(start))]).chain(broken),
            ))
        }
        Garbage::Huge => whole(
            [
                b"{\"PowerState\":\"".to_vec(),
                vec![b'x'; 32 << 20],
                b"\"}".to_vec(),
            ]
            .concat()
            .into(),
        ),
        Garbage::Deep => whole([vec![b'['; 100_000], vec![b']'; 100_000]].concat().into()),
    });
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    if shape == Garbage::Truncated {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("4096"));
    }
    response
}
