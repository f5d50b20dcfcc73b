//! Measures the engine alone, without listeners and agents: `engine-turns DATABASE_URL KEY_FILE`.
//! Runs the reconcile pass of every due node, with as many workers as a server has. Prints a line
//! of JSON with the number of passes and the seconds spent.

use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;
use muster_server::engine;
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
    let app = muster_bench::open(&url, Path::new(&key_file), 10).await?;
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
