//! Measures the removal of old events beside readers and writers of the history: `remove-events
//! measure DATABASE_URL KEY_FILE FOLDER`. Prints a line of JSON with the removed events and the
//! times of the writers. `remove-events seal DATABASE_URL KEY_FILE DAYS SEALS` prepares: at most so
//! many seals over the events so far, as of so many days ago.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use jiff::SignedDuration;
use muster_core::clock::Clock;
use muster_server::app::App;
use muster_server::db;
use muster_server::db::events::{EventFilter, NewEvent};
use muster_server::tasks::retention::segments;
use muster_server::tasks::seals;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const USAGE: &str = "usage: remove-events seal DATABASE_URL KEY_FILE DAYS SEALS | measure DATABASE_URL KEY_FILE FOLDER";
/// Writers at once.
const WRITERS: usize = 4;
/// The pause of a writer between two writes.
const PAUSE: Duration = Duration::from_millis(2);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["seal", url, key_file, days, count] => {
            let app = muster_bench::open(url, Path::new(key_file), 2).await?;
            let days: i64 = days.parse().context(USAGE)?;
            let at = app.clock.now() - SignedDuration::from_hours(24 * days);
            let app = App {
                clock: Clock::manual(at),
                ..app
            };
            for _ in 0..count.parse::<u32>().context(USAGE)? {
                if !seals::seal(&app).await? {
                    break;
                }
            }
            Ok(())
        }
        ["measure", url, key_file, folder] => {
            let app = muster_bench::open(url, Path::new(key_file), 10).await?;
            let app = App {
                blobs: Arc::new(folder.into()),
                ..app
            };
            println!("{}", measure(&app).await?);
            Ok(())
        }
        _ => bail!(USAGE),
    }
}

/// Removes the old events while writers write, and for as long again without a removal.
async fn measure(app: &App) -> anyhow::Result<serde_json::Value> {
    let began = Instant::now();
    let (removed, beside) = {
        let stop = CancellationToken::new();
        let mut writers = start_writers(app, &stop);
        let removed = remove_all(app).await?;
        stop.cancel();
        (removed, collect(&mut writers).await?)
    };
    let took = began.elapsed();
    let stop = CancellationToken::new();
    let mut writers = start_writers(app, &stop);
    tokio::time::sleep(took).await;
    stop.cancel();
    let alone = collect(&mut writers).await?;
    Ok(serde_json::json!({
        "removed": removed,
        "seconds": took.as_secs_f64(),
        "beside": describe(beside),
        "alone": describe(alone),
    }))
}

/// Removes all old events. A round of the server's task removes a limited number.
async fn remove_all(app: &App) -> anyhow::Result<u64> {
    let mut removed = 0;
    loop {
        match segments::remove(app).await? {
            0 => return Ok(removed),
            round => removed += round,
        }
    }
}

fn start_writers(app: &App, stop: &CancellationToken) -> JoinSet<anyhow::Result<Vec<Duration>>> {
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        writers.spawn(write_events(app.clone(), stop.clone()));
    }
    writers
}

/// Writes an event and reads the newest events, again and again, at least once. Returns the time of
/// each turn.
async fn write_events(app: App, stop: CancellationToken) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::new();
    loop {
        let began = Instant::now();
        let mut tx = app.pool.begin().await?;
        let event = NewEvent::new(app.clock.now(), "muster", "test", "a turn".to_owned());
        db::events::insert(&mut tx, event).await?;
        tx.commit().await?;
        let mut conn = app.pool.acquire().await?;
        db::events::latest(&mut conn, &EventFilter::default(), 100).await?;
        drop(conn);
        times.push(began.elapsed());
        if stop.is_cancelled() {
            return Ok(times);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn collect(
    writers: &mut JoinSet<anyhow::Result<Vec<Duration>>>,
) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::new();
    while let Some(ended) = writers.join_next().await {
        times.extend(ended??);
    }
    times.sort();
    Ok(times)
}

/// The times in milliseconds.
fn describe(times: Vec<Duration>) -> serde_json::Value {
    let of = |share: usize| {
        let at = times.len().saturating_sub(1) * share / 1000;
        times.get(at).map(|time| time.as_secs_f64() * 1000.0)
    };
    serde_json::json!({ "turns": times.len(), "p50": of(500), "p99": of(990), "longest": of(1000) })
}
