//! The parts shared by the benchmarks.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use muster_core::clock::Clock;
use muster_server::app::App;
use muster_server::db::primary::Servers;
use muster_server::keys::{Create, Keys, MasterKey};
use muster_server::outbound::policy::Policy;
use muster_server::outbound::{DEADLINE, Names, Outbound};
use tokio::sync::{Notify, watch};

/// Opens a server's state on a database as the server does, without listeners and tasks.
///
/// # Errors
/// When the database or the key cannot be read.
pub async fn open(url: &str, key_file: &Path, connections: u32) -> anyhow::Result<App> {
    // The settings of a connection decide about the speed of long statements.
    let servers = Servers::parse(url)?;
    let pool = servers.connect(connections).await.context("the database")?;
    let clock = Clock::System;
    let key = MasterKey::load(key_file, Create::Never)?;
    let keys = Keys::load(key, &pool, &clock).await?;
    Ok(App {
        pool,
        clock,
        keys: Arc::new(keys),
        oidc: None,
        blobs: Arc::new("/nonexistent".into()),
        anchors: Arc::new("/nonexistent".into()),
        retention: muster_server::retention::Retention::DEFAULT,
        outbound: Arc::new(Outbound::new(Policy::default(), Names::System, DEADLINE)),
        wake_engine: Arc::new(Notify::new()),
        wake_agents: Arc::new(Notify::new()),
        wake_sites: Arc::new(Notify::new()),
        streams: muster_server::streams::Streams::default(),
        wake_readers: Arc::new(watch::channel(0).0),
    })
}
