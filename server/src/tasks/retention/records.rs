//! Removes old records of nodes: job logs, evidence of gates, facts and consoles.

use jiff::Timestamp;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::app::App;
use crate::db;
use crate::error::Error;
use crate::retention::days_ago;

/// Nodes of one batch.
const NODES: i64 = 50;
/// Rows removed in one transaction.
const ROWS: i64 = 2000;
/// Gate runs in one transaction: a run has up to 4 MiB of evidence, stored twice.
const RUNS: i64 = 10;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Record {
    JobLogs,
    Evidence,
    Facts,
    Consoles,
}

const RECORDS: [Record; 4] = [
    Record::JobLogs,
    Record::Evidence,
    Record::Facts,
    Record::Consoles,
];

/// Removed records: log lines, gate runs without evidence from now on, inventories, and chunks of
/// consoles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    pub log_lines: u64,
    pub runs: u64,
    pub facts: u64,
    pub chunks: u64,
}

impl Removed {
    fn add(&mut self, record: Record, rows: u64) {
        match record {
            Record::JobLogs => self.log_lines += rows,
            Record::Evidence => self.runs += rows,
            Record::Facts => self.facts += rows,
            Record::Consoles => self.chunks += rows,
        }
    }
}

/// Removes the old records of all nodes without a legal hold. Ends early while another replica
/// removes.
///
/// # Errors
///
/// When the database fails.
pub async fn remove(app: &App) -> Result<Removed, Error> {
    let mut removed = Removed::default();
    let mut after = Uuid::nil();
    loop {
        let nodes =
            db::retention::list_nodes(&mut *app.pool.acquire().await?, after, NODES).await?;
        let Some(last) = nodes.last() else {
            return Ok(removed);
        };
        for record in RECORDS {
            loop {
                let Some(batch) = remove_batch(app, record, after, last.0).await? else {
                    return Ok(removed);
                };
                removed.add(record, batch.rows);
                if !batch.is_full {
                    break;
                }
            }
        }
        after = last.0;
    }
}

/// The result of a transaction.
#[derive(Clone, Copy, Debug)]
struct Batch {
    rows: u64,
    /// The batch reached the limit, so more rows may be left.
    is_full: bool,
}

/// Removes a batch of the nodes after an id, up to `last`. The nodes are read in the transaction of
/// the removal, so a hold counts from the commit. `None`: another replica removes.
async fn remove_batch(
    app: &App,
    record: Record,
    after: Uuid,
    last: Uuid,
) -> Result<Option<Batch>, Error> {
    let now = app.clock.now();
    let mut tx = app.pool.begin().await?;
    if !db::retention::try_lock(&mut tx).await? {
        return Ok(None);
    }
    let nodes = db::retention::list_nodes(&mut tx, after, NODES).await?;
    let nodes: Vec<Uuid> = nodes
        .into_iter()
        .map(|node| node.0)
        .filter(|node| *node <= last)
        .collect();
    let batch = remove_rows(&mut tx, app, record, &nodes, now).await?;
    tx.commit().await?;
    Ok(Some(batch))
}

async fn remove_rows(
    conn: &mut PgConnection,
    app: &App,
    record: Record,
    nodes: &[Uuid],
    now: Timestamp,
) -> Result<Batch, Error> {
    let kept = &app.retention;
    let rows = match record {
        Record::JobLogs => {
            let before = days_ago(now, kept.job_logs_days);
            db::retention::delete_job_logs(conn, nodes, before, ROWS).await?
        }
        Record::Facts => {
            let before = days_ago(now, kept.facts_days);
            db::retention::delete_facts(conn, nodes, before, ROWS).await?
        }
        Record::Consoles => {
            let before = days_ago(now, kept.consoles_days);
            db::retention::delete_consoles(conn, nodes, before, ROWS).await?
        }
        Record::Evidence => {
            let before = days_ago(now, kept.evidence_days);
            let runs = db::retention::lock_old_runs(conn, nodes, before, RUNS).await?;
            db::retention::remove_evidence(conn, &runs, now).await?;
            u64::try_from(runs.len()).map_err(Error::internal)?
        }
    };
    let limit = match record {
        Record::Evidence => RUNS,
        Record::JobLogs | Record::Facts | Record::Consoles => ROWS,
    };
    Ok(Batch {
        rows,
        is_full: i64::try_from(rows).is_ok_and(|rows| rows >= limit),
    })
}
