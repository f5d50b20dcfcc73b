//! Somebody else's server: keeps what it was sent, and answers as it is told.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::serve::Listener;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How a request is answered; 200 when nothing is said.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Status(u16),
    /// 503 and a `Retry-After`.
    Later(String),
    Redirect(String),
    /// Not at all.
    Never,
    /// 200, and a body without an end.
    Endless,
}

/// A request that came.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: String,
    pub(super) event: Value,
}

impl Taken {
    pub(super) fn header(&self, name: &str) -> &str {
        &self.headers[name]
    }
}

#[derive(Clone, Default)]
struct Book {
    taken: Arc<Mutex<Vec<Taken>>>,
    answers: Arc<Mutex<VecDeque<Answer>>>,
}

/// A receiver on a port of its own, for as long as the test runs.
pub(super) struct Receiver {
    base: String,
    book: Book,
}

impl Receiver {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        Self::on(listener, base)
    }

    /// A receiver that speaks TLS as `hooks.test`, and the certificate of the authority that says so.
    pub(super) async fn certified() -> (Self, String) {
        let authority = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = params.self_signed(&authority).unwrap().pem();
        let (issuer, key) = (Issuer::new(params, authority), KeyPair::generate().unwrap());
        let certificate = CertificateParams::new(["hooks.test".to_owned()])
            .unwrap()
            .signed_by(&key, &issuer)
            .unwrap();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        let config = ServerConfig::builder().with_no_client_auth();
        let config = config
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!(
            "https://hooks.test:{}",
            listener.local_addr().unwrap().port()
        );
        (
            Self::on(
                Tls {
                    listener,
                    acceptor: TlsAcceptor::from(Arc::new(config)),
                },
                base,
            ),
            root,
        )
    }

    fn on<L: Listener>(listener: L, base: String) -> Self
    where
        L::Addr: std::fmt::Debug,
    {
        let book = Book::default();
        let router = Router::new().fallback(take).with_state(book.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { base, book }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// The next answers.
    pub(super) fn answer(&self, answers: impl IntoIterator<Item = Answer>) {
        self.book.answers.lock().unwrap().extend(answers);
    }

    /// Everything that came, in order.
    pub(super) fn taken(&self) -> Vec<Taken> {
        self.book.taken.lock().unwrap().clone()
    }
}

/// Connections that have shaken hands.
struct Tls {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = self.listener.accept().await.unwrap();
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

async fn take(State(book): State<Book>, headers: HeaderMap, body: Bytes) -> Response {
    let headers = headers
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .collect();
    let event = serde_json::from_slice(&body).unwrap();
    let body = String::from_utf8(body.to_vec()).unwrap();
    book.taken.lock().unwrap().push(Taken {
        headers,
        body,
        event,
    });
    let answer = book
        .answers
        .lock()
        .unwrap()
        .pop_front()
        .unwrap_or(Answer::Status(200));
    let response = Response::builder();
    match answer {
        Answer::Status(status) => response
            .status(StatusCode::from_u16(status).unwrap())
            .body(Body::from("what a receiver writes"))
            .unwrap(),
        Answer::Later(when) => response
            .status(503)
            .header("retry-after", when)
            .body(Body::empty())
            .unwrap(),
        Answer::Redirect(to) => response
            .status(307)
            .header("location", to)
            .body(Body::empty())
            .unwrap(),
        Answer::Never => std::future::pending().await,
        Answer::Endless => {
            let endless = futures::stream::repeat_with(|| {
                Ok::<_, std::io::Error>(Bytes::from_static(b"endless "))
            });
            response.body(Body::from_stream(endless)).unwrap()
        }
    }
}
