//! Measures ticks of the open rollouts, with the reads behind them and without listeners and agents:
//! `rollout-ticks DATABASE_URL KEY_FILE TICKS`. Ticks first until no tick changes a rollout. Prints a
//! line of JSON with the number of those ticks, and the milliseconds of each measured tick.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use muster_core::clock::Clock;
use muster_server::app::App;
use muster_server::keys::{Create, Keys, MasterKey};
use muster_server::outbound::policy::Policy;
use muster_server::outbound::{DEADLINE, Names, Outbound};
use muster_server::tasks::rollouts;
use sqlx::postgres::PgPoolOptions;
use tokio::sync::{Notify, watch};

const USAGE: &str = "usage: rollout-ticks DATABASE_URL KEY_FILE TICKS";
/// Most ticks before the measurement.
const MOST: usize = 1000;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().context(USAGE)?;
    let key_file = arguments.next().context(USAGE)?;
    let ticks: usize = arguments.next().context(USAGE)?.parse().context(USAGE)?;
    let pool = PgPoolOptions::new()
        .max_connections(4)
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
    let mut before = 0;
    while rollouts::round(&app).await? {
        before += 1;
        ensure!(before < MOST, "the rollout does not come to rest");
    }
    ensure!(before > 0, "no tick has changed the rollout");
    let mut took = Vec::with_capacity(ticks);
    for _ in 0..ticks {
        let began = Instant::now();
        rollouts::round(&app).await?;
        took.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    println!(
        "{}",
        serde_json::json!({ "before": before, "milliseconds": took })
    );
    Ok(())
}
