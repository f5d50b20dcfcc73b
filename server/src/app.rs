//! Shared state of all handlers and tasks.

use std::sync::Arc;

use muster_core::clock::Clock;
use sqlx::PgPool;
use tokio::sync::Notify;

use crate::keys::Keys;
use crate::streams::Streams;

/// State shared by every request and task of one replica. Cheap to clone.
#[derive(Clone)]
pub struct App {
    pub pool: PgPool,
    pub clock: Clock,
    pub keys: Arc<Keys>,
    /// Directory of content-addressed blobs.
    pub blobs: Arc<std::path::PathBuf>,
    /// File with the newest seals of the history, outside the database.
    pub anchors: Arc<std::path::PathBuf>,
    /// How long records are kept.
    pub retention: crate::retention::Retention,
    /// HTTP client for the receivers of webhooks and for the servers of monitors.
    pub outbound: Arc<crate::outbound::Outbound>,
    /// The identity provider, if configured.
    pub oidc: Option<Arc<crate::oidc::Provider>>,
    /// Wakes the engine of this replica early. Correctness depends only on the engine's poll.
    pub wake_engine: Arc<Notify>,
    /// Wakes agents waiting for jobs.
    pub wake_agents: Arc<Notify>,
    /// Wakes agents waiting for a changed site configuration.
    pub wake_sites: Arc<Notify>,
    /// Event streams of this replica.
    pub streams: Streams,
    /// Wakes pages and streams following the events.
    pub wake_readers: Arc<tokio::sync::watch::Sender<i64>>,
}

/// Wakes every waiter with a possible interest in the committed change. Correctness depends only on
/// the polls. Waking makes the polls happen earlier.
pub fn wake(app: &App) {
    app.wake_engine.notify_one();
    app.wake_sites.notify_waiters();
    app.wake_readers.send_modify(|turn| *turn += 1);
}
