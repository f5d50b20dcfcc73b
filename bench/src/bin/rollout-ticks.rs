//! Measures ticks of the open rollouts, with the reads behind them and without listeners and agents:
//! `rollout-ticks DATABASE_URL KEY_FILE TICKS`. Ticks first until no tick changes a rollout. Prints a
//! line of JSON with the number of those ticks, and the milliseconds of each measured tick.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use muster_server::tasks::rollouts;
use tokio::task::JoinSet;

const USAGE: &str = "usage: rollout-ticks DATABASE_URL KEY_FILE TICKS";
/// Most ticks before the measurement.
const MOST: usize = 1000;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // A task of the runtime, as in the server.
    let mut tasks = JoinSet::new();
    tasks.spawn(measure());
    tasks.join_all().await.into_iter().collect()
}

async fn measure() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut arguments = arguments.into_iter();
    let url = arguments.next().context(USAGE)?;
    let key_file = arguments.next().context(USAGE)?;
    let ticks: usize = arguments.next().context(USAGE)?.parse().context(USAGE)?;
    let app = muster_bench::open(&url, Path::new(&key_file), 4).await?;
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
