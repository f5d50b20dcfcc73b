//! What every handler and task is given.

use std::sync::Arc;

use muster_core::clock::Clock;
use sqlx::PgPool;
use tokio::sync::Notify;

use crate::keys::Keys;

/// Shared by every request and task of one replica. Cheap to clone.
#[derive(Clone)]
pub struct App {
    pub pool: PgPool,
    pub clock: Clock,
    pub keys: Arc<Keys>,
    /// Directory of content-addressed blobs.
    pub blobs: Arc<std::path::PathBuf>,
    /// Where the newest seals of the history are written down, outside of the database.
    pub anchors: Arc<std::path::PathBuf>,
    /// The way to receivers of webhooks.
    pub outbound: Arc<crate::outbound::Outbound>,
    /// Who vouches for people, where a provider is named.
    pub oidc: Option<Arc<crate::oidc::Provider>>,
    /// Wakes the engine of this replica; the poll is the truth.
    pub wake_engine: Arc<Notify>,
    /// Wakes agents that wait for jobs.
    pub wake_agents: Arc<Notify>,
    /// Wakes agents that wait for another site configuration.
    pub wake_sites: Arc<Notify>,
    /// Wakes pages and streams that follow events.
    pub wake_readers: Arc<tokio::sync::watch::Sender<i64>>,
}

/// Wakes whoever may care about what was just committed. The polls are the truth; this only makes them early.
pub fn wake(app: &App) {
    app.wake_engine.notify_one();
    app.wake_sites.notify_waiters();
    app.wake_readers.send_modify(|turn| *turn += 1);
}
