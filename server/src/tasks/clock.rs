//! Keeps the clock of this replica equal to the database's clock. All replicas then agree on due
//! work and expired leases, even when the clocks of the machines differ. Setting a machine's clock
//! neither delays nor hastens work.

use std::time::{Duration, Instant};

use jiff::SignedDuration;
use muster_core::clock::WRONG;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::db;
use crate::error::Error;

const EVERY: Duration = Duration::from_secs(1);
/// Smallest difference taken over. The database's answer is as old as the network delay, so smaller
/// differences carry no information.
const TOLERANCE: SignedDuration = SignedDuration::from_millis(100);

pub(super) async fn run(app: App, cancel: CancellationToken) {
    let mut wrong = false;
    loop {
        match follow(&app).await {
            Ok(offset) if wrong != (offset.abs() > WRONG) => {
                wrong = !wrong;
                match wrong {
                    true => tracing::error!(
                        offset_s = offset.as_secs(),
                        "the clock of this machine is not the database's; one of them is wrong: set it by NTP"
                    ),
                    false => tracing::info!("the clock of this machine is the database's again"),
                }
            }
            Ok(_) => {}
            // Until the database answers again, time advances by the monotonic clock.
            Err(error) => {
                tracing::debug!(error = ?error, "the database was not asked for the time")
            }
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// Sets the clock to the database's time. Returns how far this machine's clock is ahead of the
/// database.
///
/// # Errors
///
/// When the database fails.
pub async fn follow(app: &App) -> Result<SignedDuration, Error> {
    let mut conn = app.pool.acquire().await?;
    let asked = Instant::now();
    let time = db::monitoring::read_clock(&mut conn).await?;
    let way = SignedDuration::try_from(asked.elapsed()).unwrap_or(SignedDuration::MAX);
    app.clock.follow(time + way / 2, TOLERANCE.max(way));
    let offset = app.clock.own().duration_since(app.clock.now());
    metrics::gauge!("muster_clock_offset_seconds").set(offset.as_secs_f64());
    Ok(offset)
}
