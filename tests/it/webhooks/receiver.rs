//! Somebody else's server: keeps what it was sent, and answers as it is told.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde_json::Value;
use tokio::net::TcpListener;

/// How a request is answered; 200 when nothing is said.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Status(u16),
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

async fn take(State(book): State<Book>, headers: HeaderMap, body: Bytes) -> Response {
    let headers = headers.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
    let event = serde_json::from_slice(&body).unwrap();
    let body = String::from_utf8(body.to_vec()).unwrap();
    book.taken.lock().unwrap().push(Taken { headers, body, event });
    let answer = book.answers.lock().unwrap().pop_front().unwrap_or(Answer::Status(200));
    let response = Response::builder();
    match answer {
        Answer::Status(status) => {
            response.status(StatusCode::from_u16(status).unwrap()).body(Body::from("what a receiver writes")).unwrap()
        }
        Answer::Redirect(to) => response.status(307).header("location", to).body(Body::empty()).unwrap(),
        Answer::Never => std::future::pending().await,
        Answer::Endless => {
            let endless = futures::stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(b"endless ")));
            response.body(Body::from_stream(endless)).unwrap()
        }
    }
}
