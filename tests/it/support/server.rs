//! Runs the real router over the test's own database.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use jiff::{SignedDuration, Timestamp};
use muster_api::tokens::Role;
use muster_core::clock::Clock;
use muster_server::app::App;
use muster_server::auth::seals::{adopt, write};
use muster_server::auth::tokens;
use muster_server::db;
use muster_server::http::listener::files::Shares;
use muster_server::http::listener::{self, Bounds, Door};
use muster_server::keys::{Keys, MasterKey};
use muster_server::oidc::Provider;
use muster_server::outbound::policy::Policy;
use muster_server::outbound::{Names, Outbound};
use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::postgres;

/// The time at the start of every test.
pub(crate) const START: &str = "2026-01-05T08:00:00Z";

/// A server without listeners, engine and tasks. Tests call these parts directly.
pub(crate) struct Server {
    pub(crate) app: App,
    router: Router,
    /// Stays in place when a test restores the database.
    pub(crate) data_dir: TempDir,
}

/// A response with the whole body.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
    pub(crate) text: String,
}

impl Reply {
    /// Fails the test unless the response has the status. The message is the body.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text);
        self
    }

    /// Returns the status, the stable code of a refusal, and the pointer of the first fault.
    pub(crate) fn problem(&self) -> (u16, &str, &str) {
        let text = |pointer| {
            self.body
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        (self.status, text("/code"), text("/errors/0/pointer"))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }
}

/// A client of the server, with a token and headers.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    router: Router,
    pub(crate) token: Option<String>,
    pub(crate) headers: HeaderMap,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::on(
            postgres::database().await,
            Clock::manual(START.parse::<Timestamp>().unwrap()),
        )
        .await
    }

    /// Returns a server on an existing database.
    pub(crate) async fn on(pool: sqlx::PgPool, clock: Clock) -> Self {
        Self::vouched(pool, clock, None).await
    }

    /// Returns a server like `on`, with an identity provider.
    pub(crate) async fn vouched(
        pool: sqlx::PgPool,
        clock: Clock,
        oidc: Option<Arc<Provider>>,
    ) -> Self {
        Self::holding(pool, clock, oidc, MasterKey::from_bytes(&[7; 32])).await
    }

    /// Returns a server like `vouched`, with the given master key.
    pub(crate) async fn holding(
        pool: sqlx::PgPool,
        clock: Clock,
        oidc: Option<Arc<Provider>>,
        master: MasterKey,
    ) -> Self {
        let keys = Keys::load(master, &pool, &clock).await.unwrap();
        let blobs = tempfile::tempdir().unwrap();
        let app = App {
            pool,
            clock,
            keys: Arc::new(keys),
            oidc,
            blobs: Arc::new(blobs.path().to_path_buf()),
            anchors: Arc::new(blobs.path().join("audit-anchors")),
            retention: muster_server::retention::Retention::DEFAULT,
            outbound: Arc::new(outbound()),
            wake_engine: Arc::new(Notify::new()),
            wake_agents: Arc::new(Notify::new()),
            wake_sites: Arc::new(Notify::new()),
            streams: muster_server::streams::Streams::default(),
            wake_readers: Arc::new(watch::channel(0).0),
        };
        Self {
            router: muster_server::router::router(app.clone()),
            app,
            data_dir: blobs,
        }
    }

    /// Returns a caller with a new token of the role.
    pub(crate) async fn caller(&self, role: Role) -> Caller {
        let minted = tokens::mint(Some(&self.app.keys.tokens));
        let now = self.app.clock.now();
        let token = db::tokens::NewToken {
            id: minted.id,
            name: format!("{}-{}", role.as_str(), minted.id),
            mac: minted.mac,
            role: role.as_str(),
            created_at: now,
            expires_at: now + SignedDuration::from_hours(24 * 30),
        };
        let mut conn = self.app.pool.acquire().await.unwrap();
        db::tokens::insert(&mut conn, &token).await.unwrap();
        if self.app.oidc.is_some() {
            // Marks the token as older than the rule of armed administrators.
            sqlx::query("UPDATE tokens SET keeps_unarmed = true WHERE id = $1")
                .bind(token.id.0)
                .execute(&mut *conn)
                .await
                .unwrap();
        }
        write::seal_token(&mut conn, &self.app.keys.master, token.id)
            .await
            .unwrap();
        self.with(Some(minted.secret.reveal().to_owned()))
    }

    /// Seals the rows from the test's own SQL.
    pub(crate) async fn seal_rows(&self) {
        let mut conn = self.app.pool.acquire().await.unwrap();
        let (master, now) = (&self.app.keys.master, self.app.clock.now());
        adopt::seal_rows(&mut conn, master, now).await.unwrap();
    }

    pub(crate) async fn admin(&self) -> Caller {
        self.caller(Role::Admin).await
    }

    /// Serves on a socket until the test ends. Returns the URL.
    pub(crate) async fn listen(&self) -> String {
        let address = self.listen_within(Shares::of(1024).public).await;
        format!("http://{address}")
    }

    /// Serves like `listen`, within the given bounds. Returns the address.
    pub(crate) async fn listen_within(&self, bounds: Bounds) -> SocketAddr {
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        tokio::spawn(listener::serve(
            socket,
            Door::Plain,
            self.router.clone(),
            bounds,
            CancellationToken::new(),
        ));
        address
    }

    /// Returns the server with the given limits on callers' requests.
    pub(crate) fn limited(mut self, rates: muster_server::http::limits::Rates) -> Self {
        self.router = muster_server::router::limited(self.app.clone(), rates);
        self
    }

    /// Returns a caller without a token.
    pub(crate) fn nobody(&self) -> Caller {
        self.with(None)
    }

    /// Returns a caller with the given token.
    pub(crate) fn with(&self, token: Option<String>) -> Caller {
        Caller {
            router: self.router.clone(),
            token,
            headers: HeaderMap::new(),
        }
    }
}

/// Allows only loopback, the address of the tests' receivers.
fn outbound() -> Outbound {
    let policy = Policy {
        allowed: vec!["127.0.0.1/32".parse().unwrap()],
    };
    Outbound::new(
        policy,
        Names::Fixed(HashMap::new()),
        Duration::from_secs(10),
    )
}

impl Caller {
    /// Returns the same caller with an additional header on later calls.
    pub(crate) fn header(&self, name: &str, value: &str) -> Self {
        let mut caller = self.clone();
        caller.headers.insert(
            name.parse::<HeaderName>().unwrap(),
            HeaderValue::from_str(value).unwrap(),
        );
        caller
    }

    /// Returns the same caller, with `generation` as the expected generation.
    pub(crate) fn expecting(&self, generation: i64) -> Self {
        self.header("if-match", &format!("\"{generation}\""))
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, Vec::new()).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Reply {
        self.json(Method::PUT, path, body).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Reply {
        self.json(Method::POST, path, body).await
    }

    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Reply {
        self.json(Method::PATCH, path, body).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Reply {
        self.send(Method::DELETE, path, Vec::new()).await
    }

    pub(crate) async fn json(&self, method: Method, path: &str, body: &Value) -> Reply {
        self.header("content-type", "application/json")
            .send(method, path, body.to_string().into_bytes())
            .await
    }

    /// Sends a request with the bytes as the body.
    pub(crate) async fn send(&self, method: Method, path: &str, body: Vec<u8>) -> Reply {
        let mut request = axum::http::Request::builder().method(method).uri(path);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let response = self
            .router
            .clone()
            .oneshot(request.body(Body::from(body)).unwrap())
            .await
            .unwrap();
        let (parts, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, 64 << 20).await.unwrap();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Reply {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body,
            text,
        }
    }
}
