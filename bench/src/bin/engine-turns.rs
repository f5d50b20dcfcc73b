//! Measures the engine alone, without listeners and agents: `engine-turns DATABASE_URL KEY_FILE`.
//! Runs the reconcile pass of every due node, with as many workers as a server has. Prints a line
//! of JSON with the number of passes and the seconds spent.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use muster_core::clock::Clock;
use muster_server::app::App;
use muster_server::engine;
use muster_server::keys::{Create, Keys, MasterKey};
use muster_server::outbound::policy::Policy;
use muster_server::outbound::{DEADLINE, Names, Outbound};
use sqlx::postgres::PgPoolOptions;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments
        .next()
        .context("usage: engine-turns DATABASE_URL KEY_FILE")?;
    let key_file = arguments
        .next()
        .context("usage: engine-turns DATABASE_URL KEY_FILE")?;
    let pool = PgPoolOptions::new()
        .max_connections(10)
        .connect(&url)
        .await
        .context("the database")?;
    let clock = Clock::System;
    let keys = Keys::load(
        MasterKey::load(Path::new(&key_file), Create::Never)?,
        &pool,
        &clock,
    )
    .await?;
    let app = App {
        pool,
        clock,
        keys: Arc::new(keys),
        oidc: None,
        blobs: Arc::new("/nonexistent".into()),
        anchors: Arc::new("/nonexistent".into()),
        outbound: Arc::new(Outbound::new(Policy::default(), Names::System, DEADLINE)),
        wake_engine: Arc::new(Notify::new()),
        wake_agents: Arc::new(Notify::new()),
        wake_sites: Arc::new(Notify::new()),
        wake_readers: Arc::new(watch::channel(0).0),
    };
    let began = Instant::now();
    let mut workers = JoinSet::new();
    for _ in 0..engine::WORKERS {
        let app = app.clone();
        workers.spawn(async move { engine::run_until_idle(&app).await });
    }
    let mut turns = 0;
    while let Some(ended) = workers.join_next().await {
        turns += ended??;
    }
    println!(
        "{}",
        serde_json::json!({ "turns": turns, "seconds": began.elapsed().as_secs_f64() })
    );
    Ok(())
}
