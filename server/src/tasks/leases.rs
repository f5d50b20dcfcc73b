//! Expires the leases of silent agents. The jobs are queued again, and only a newer attempt may
//! commit a result.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use muster_core::lifecycle::steps::Step;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::db;
use crate::db::events::NewEvent;
use crate::error::Error;

/// Length of a job's lease, in seconds. An agent renews after a third of the lease.
pub const LEASE_S: u64 = 30;
const EVERY: Duration = Duration::from_secs(2);

/// Longest healthy answer time of the database. A slower database keeps agents from renewing
/// leases.
const SLOW: Duration = Duration::from_millis(500);

pub(super) async fn run(app: App, cancel: CancellationToken) {
    let mut rounds = Rounds::default();
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        if let Err(error) = rounds.next(&app).await {
            tracing::warn!(error = ?error, "leases could not be looked at; tried again shortly");
        }
    }
}

/// Successive rounds of checks for expired leases.
#[derive(Debug, Default)]
pub struct Rounds {
    /// Time until which leases do not expire, because the database was away or slow and agents had
    /// no way to renew.
    excused_until: Option<Timestamp>,
}

impl Rounds {
    /// Expires overdue leases. The round is skipped when the database was away or slow within the
    /// last lease time. Agents could not renew then, and giving jobs to other agents would start
    /// the work again.
    ///
    /// # Errors
    ///
    /// When the database fails.
    pub async fn next(&mut self, app: &App) -> Result<(), Error> {
        let asked = Instant::now();
        let answered = async { db::ping(&mut *app.pool.acquire().await?).await }.await;
        let now = app.clock.now();
        if answered.is_err() || asked.elapsed() > SLOW {
            let lease = SignedDuration::from_secs(i64::try_from(LEASE_S).unwrap_or(30));
            self.excused_until = Some(now + lease);
            tracing::warn!(
                took_ms = asked.elapsed().as_millis(),
                "the database is away or slow: no lease is over because of it"
            );
        }
        answered?;
        match self.excused_until {
            Some(until) if now <= until => Ok(()),
            _ => expire(app).await,
        }
    }
}

/// Expires overdue leases and queues the jobs again.
///
/// # Errors
///
/// When the database fails.
pub async fn expire(app: &App) -> Result<(), Error> {
    let now = app.clock.now();
    let mut tx = app.pool.begin().await?;
    let expired = db::jobs::expire_leases(&mut tx, now).await?;
    let some = !expired.is_empty();
    for job in expired {
        // The result of the job is unknown. The next agent observes the node first, and until then
        // the operation's state is `unknown`.
        let check = job.step.parse().map_or("another check", Step::observation);
        let summary = format!(
            "the agent stopped reporting; the outcome of {} is unknown, and {check} will show it",
            job.step
        );
        if let Some(operation) = job.operation {
            db::operations::set_unknown(&mut tx, operation, &summary).await?;
        }
        let event = NewEvent::node(now, "muster", "job.lease_expired", job.node, summary)
            .under(job.operation);
        db::events::insert(&mut tx, event.with(json!({ "job": job.id }))).await?;
        db::lifecycle::make_due(&mut tx, job.node, now).await?;
        let operation = job.operation.map(tracing::field::display);
        tracing::warn!(node_id = %job.node, operation, job = %job.id, step = job.step, "job lease expired: the agent stopped renewing; the job is queued again");
    }
    tx.commit().await?;
    if some {
        app.wake_engine.notify_one();
        app.wake_agents.notify_waiters();
    }
    Ok(())
}
