//! The agents' listener in tests: on a socket by TLS, or in the process. In the process, the
//! enrolment token of an agent stands for the certificate. The server's program has no such door.

use std::sync::Arc;

use axum::Router;
use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use jiff::Timestamp;
use muster_agent::boot::BootPorts;
use muster_agent::work::AgentOptions;
use muster_agent::work::identity::Entry;
use muster_core::clock::Clock;
use muster_core::ids::{AgentId, ObjectId};
use muster_core::values::{Digest, Secret};
use muster_server::app::App;
use muster_server::auth::tokens;
use muster_server::error::Error;
use muster_server::http;
use muster_server::http::agent::tls::{AgentTls, Peer};
use muster_server::http::listener::files::Shares;
use muster_server::http::listener::{self, Bounds};
use muster_server::keys::authority::Certified;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// The listener's routes; callers show tokens.
pub(crate) fn in_process(app: &App) -> Router {
    http::agent::router(app.clone()).layer(middleware::from_fn_with_state(app.clone(), by_token))
}

async fn by_token(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let shown = request
        .headers()
        .get("authorization")
        .and_then(|value| value.to_str().ok());
    let token = shown
        .and_then(|value| value.strip_prefix("Bearer "))
        .unwrap_or_default();
    let key = Digest::of(token.as_bytes());
    let found = sqlx::query_as::<_, (AgentId, ObjectId)>(
        "SELECT id, site_id FROM agents WHERE token_hash = $1",
    );
    match found
        .bind(tokens::hash(token))
        .fetch_optional(&app.pool)
        .await
    {
        Ok(found) => {
            let (not_before, not_after) = (Timestamp::UNIX_EPOCH, Timestamp::MAX);
            let issuer = app.keys.authorities.now().current.subject();
            let peer = found.map(|(agent, site)| Certified {
                agent,
                site,
                key,
                issuer,
                not_before,
                not_after,
            });
            request.extensions_mut().insert(ConnectInfo(Peer(peer)));
            next.run(request).await
        }
        Err(error) => Error::from(error).into_response(),
    }
}

/// The listener on a socket, closed on drop.
pub(crate) struct Door {
    pub(crate) url: String,
    _serving: AbortOnDropHandle<()>,
}

impl Door {
    pub(crate) async fn open(app: &App) -> Self {
        Self::bounded(app, Shares::of(1024).agents).await
    }

    /// The listener within other bounds.
    pub(crate) async fn bounded(app: &App, bounds: Bounds) -> Self {
        Self::serve(app, http::agent::router(app.clone()), bounds).await
    }

    /// The listener with changed routes.
    pub(crate) async fn open_to(app: &App, routes: Router) -> Self {
        Self::serve(app, routes, Shares::of(1024).agents).await
    }

    async fn serve(app: &App, routes: Router, bounds: Bounds) -> Self {
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", socket.local_addr().unwrap());
        let serving = tokio::spawn(listener::serve(
            socket,
            listener::Door::Agents(AgentTls::open(Arc::clone(&app.keys)).unwrap()),
            routes,
            bounds,
            CancellationToken::new(),
        ));
        Self {
            url,
            _serving: AbortOnDropHandle::new(serving),
        }
    }
}

/// Returns the options of an agent with an enrolment token, with stand-ins for the boot files.
pub(crate) fn options(door: &Door, token: &str, dir: &std::path::Path) -> AgentOptions {
    for file in ["undionly.kpxe", "snponly.efi", "muster.ipxe", "muster-node"] {
        std::fs::write(dir.join(file), file).unwrap();
    }
    AgentOptions {
        server_url: door.url.clone(),
        entry: Entry::Certificate {
            token: Some(Secret::new(token)),
        },
        data_dir: dir.join("data"),
        ipxe_dir: dir.to_owned(),
        muster_node: dir.join("muster-node"),
        blob_bytes: None,
        live_keys: Vec::new(),
        ports: BootPorts::default(),
        clock: Clock::System,
    }
}
