//! Jobs: leased in batches by long poll, and renewed with progress under the attempt number.

use std::time::Duration;

use axum::extract::State;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::HeaderMap;
use jiff::{SignedDuration, Timestamp};
use muster_core::ids::JobId;
use muster_core::lifecycle::steps::Step;
use muster_core::lifecycle::wait::awaited_thing;
use muster_core::wire;
use muster_core::wire::calls::{
    ActReply, LeaseJobs, LeasedJobs, RedeemPermit, Redeemed, RenewJob, Renewed, StartAct,
};
use muster_core::wire::job::Job;
use muster_core::wire::node::{Failure, FailureCode, Progress};
use muster_core::wire::orders::ORDERS;
use serde_json::{Value, json};
use sqlx::PgConnection;
use tracing::{Instrument as _, Span};

use super::redaction::redact_renewal;
use super::told::Told;
use super::{Agent, LEASE_S, Standing, removed};
use crate::app::App;
use crate::db;
use crate::db::events::NewEvent;
use crate::db::jobs::LeasedRow;
use crate::engine::{orders, permits};
use crate::error::Error;
use crate::http::extract::{Json, Path};
use crate::request_id;

/// The longest hold of a poll, in seconds.
const MAX_WAIT_S: u64 = 50;

/// The interval between two reads of a held poll. A job may become ready by time alone, or on
/// another replica.
const LOOK: Duration = Duration::from_millis(1000);

/// The delay of a woken poll, to lease further jobs in the same answer.
const GATHER: Duration = Duration::from_millis(5);

/// The largest number of jobs in one answer.
const MOST: u32 = 100;

/// The number of orders built in parallel for one answer.
const BUILDERS: usize = 4;

fn lease_end(now: Timestamp) -> Timestamp {
    now + SignedDuration::from_secs(i64::try_from(LEASE_S).unwrap_or(30))
}

pub(super) fn stale() -> Error {
    Error::conflict("stale_attempt", "Another attempt of this job is current.")
}

/// The formats of orders the agent can read, as declared in its header.
pub(super) fn declared_orders(headers: &HeaderMap) -> Option<&str> {
    headers
        .get(ORDERS)
        .map(|value| value.to_str().unwrap_or_default())
}

/// The steps with an order the agent can read.
fn readable_steps(declared: Option<&str>) -> Vec<String> {
    let steps = Step::ALL
        .iter()
        .filter(|step| wire::orders::reads(declared, orders::kind(**step)));
    steps.map(|step| step.as_str().to_owned()).collect()
}

pub(super) async fn lease(
    State(app): State<App>,
    agent: Agent,
    headers: HeaderMap,
    Json(request): Json<LeaseJobs>,
) -> Result<Json<Value>, Error> {
    let declared = declared_orders(&headers);
    let steps = readable_steps(declared);
    let deadline =
        tokio::time::Instant::now() + Duration::from_secs(request.wait_s.min(MAX_WAIT_S));
    loop {
        let woken = app.wake_agents.notified();
        let jobs = lease_now(&app, &agent, &request, declared, &steps).await?;
        if !jobs.is_empty() || tokio::time::Instant::now() >= deadline {
            let written = wire::orders::write(declared, &LeasedJobs { jobs });
            return written.map(Json).map_err(Error::internal);
        }
        tokio::select! {
            // Jobs becoming ready together are leased together.
            () = woken => tokio::time::sleep(GATHER).await,
            () = tokio::time::sleep(LOOK) => {}
            () = tokio::time::sleep_until(deadline) => {}
        }
    }
}

/// Leases the ready jobs, and builds their orders.
async fn lease_now(
    app: &App,
    agent: &Agent,
    request: &LeaseJobs,
    declared: Option<&str>,
    steps: &[String],
) -> Result<Vec<Job>, Error> {
    let now = app.clock.now();
    let mut tx = app.pool.begin().await?;
    if agent.fence_alone(&mut tx, request.epoch, app).await? != Standing::Acts {
        tx.commit().await?;
        return Ok(Vec::new());
    }
    let capacity = i64::from(request.capacity.min(MOST));
    if steps.len() < Step::ALL.len() {
        hold_back(&mut tx, agent, steps, now).await?;
    }
    let rows = db::jobs::lease(
        &mut tx,
        agent.site,
        agent.id,
        steps,
        capacity,
        now,
        lease_end(now),
    )
    .await?;
    db::jobs::show_leased(&mut tx, &rows, now).await?;
    tx.commit().await?;
    rows.iter().for_each(log_leased);
    // Build the orders without a lock. Where the answer is lost, the lease expires and the job is
    // leased again.
    let orders = stream::iter(rows)
        .map(|row| {
            let span = span_of(&row);
            build_order(app, row, declared, now).instrument(span)
        })
        .buffered(BUILDERS);
    let orders: Vec<Option<Job>> = orders.try_collect().await?;
    if orders.is_empty() {
        return Ok(Vec::new());
    }
    // The removal of an agent revokes the certificates built before. Those built after the removal
    // are not sent.
    let mut conn = app.pool.acquire().await?;
    let caller = db::agents::find_caller(&mut conn, agent.id, agent.site, None).await?;
    caller.ok_or_else(removed)?;
    Ok(orders.into_iter().flatten().collect())
}

/// Logs the link from an operation to the attempt of a job, as the agent logs it.
fn log_leased(row: &LeasedRow) {
    let LeasedRow {
        id, step, attempt, ..
    } = row;
    let operation = row.operation.map(tracing::field::display);
    tracing::info!(node_id = %row.node, operation, job = %id, attempt, %step, "job leased");
}

/// Returns the span of an order. A span at the level `error` is kept by every filter, so a warning
/// always carries the fields.
fn span_of(row: &LeasedRow) -> Span {
    let operation = row.operation.map(tracing::field::display);
    tracing::error_span!("order", node_id = %row.node, operation, job = %row.id, attempt = row.attempt, step = %row.step)
}

/// Adds the attempt of a job to the log lines of the request.
pub(super) fn note_attempt(job: JobId, attempt: i32) {
    request_id::note(&[
        ("job", &tracing::field::display(job)),
        ("attempt", &attempt),
    ]);
}

/// Records a wait condition on jobs with an order too new for the agent, and emits one event for
/// each job. The jobs wait for an updated agent.
async fn hold_back(
    conn: &mut PgConnection,
    agent: &Agent,
    steps: &[String],
    now: Timestamp,
) -> Result<(), Error> {
    let awaited = format!(
        "an agent that supports this order: {} of {} is older; update that agent",
        agent.name, agent.site_name
    );
    for held in db::jobs::mark_waiting(conn, agent.site, steps, &awaited).await? {
        let summary = format!("{}: {} waits for {awaited}", held.node_name, held.step);
        let event = NewEvent::node(now, "muster", "step.unreadable", held.node, summary)
            .under(held.operation);
        db::events::insert(
            conn,
            event.with(json!({ "step": held.step, "job": held.id })),
        )
        .await?;
    }
    Ok(())
}

/// Builds the order for a leased row, in the format of the agent. Returns `None` where the order
/// cannot be built; the step then fails.
async fn build_order(
    app: &App,
    row: LeasedRow,
    declared: Option<&str>,
    now: Timestamp,
) -> Result<Option<Job>, Error> {
    let built = orders::build_for(app, &mut *app.pool.acquire().await?, &row, declared, now).await;
    match built {
        Ok(job) => Ok(Some(job)),
        // The database was unavailable, and the order is correct. The lease expires, and the job is
        // leased again.
        Err(error)
            if error
                .chain()
                .any(|cause| matches!(cause.downcast_ref(), Some(Error::Unavailable(_)))) =>
        {
            tracing::warn!(
                error = format!("{error:#}"),
                "the database became unavailable while an order was built"
            );
            Ok(None)
        }
        Err(error) => fail_unbuildable(app, &row, &error, now)
            .await
            .map(|()| None),
    }
}

/// Fails the step of an order that cannot be built. The failure names the missing declaration.
async fn fail_unbuildable(
    app: &App,
    row: &LeasedRow,
    error: &anyhow::Error,
    now: Timestamp,
) -> Result<(), Error> {
    let failure = Failure {
        code: FailureCode::NotDeclared,
        message: format!("{error:#}"),
        retryable: false,
    };
    let mut tx = app.pool.begin().await?;
    // Lock the node first, as every transaction does.
    db::lifecycle::make_due(&mut tx, row.node, now).await?;
    if !db::jobs::refuse(&mut tx, row.id, row.attempt, &failure, now).await? {
        return Ok(());
    }
    let event = NewEvent::node(
        now,
        "muster",
        "step.failed",
        row.node,
        format!("{}: {error:#}", row.step),
    );
    db::events::insert(
        &mut tx,
        event
            .under(row.operation)
            .with(json!({ "step": row.step, "job": row.id })),
    )
    .await?;
    tx.commit().await?;
    tracing::warn!(
        failure = format!("{error:#}"),
        "order not built; the step fails"
    );
    app.wake_engine.notify_one();
    Ok(())
}

pub(super) async fn act(
    State(app): State<App>,
    agent: Agent,
    Path(job): Path<JobId>,
    Told(request): Told<StartAct>,
) -> Result<Json<ActReply>, Error> {
    note_attempt(job, request.attempt);
    let now = app.clock.now();
    let mut tx = app.pool.begin().await?;
    agent.fence(&mut tx, request.epoch, &app).await?;
    let current = db::jobs::lock_current(&mut tx, job, agent.id, request.attempt)
        .await?
        .ok_or_else(stale)?;
    let before: String = request.before.chars().take(200).collect();
    let act: String = request.act.chars().take(60).collect();
    let known = db::acts::start(
        &mut tx,
        job,
        current.round,
        &act,
        request.attempt,
        &before,
        now,
    )
    .await?;
    let mut noted = None;
    if known.is_none() {
        let summary = format!("{act}; state before: {before}");
        let event = NewEvent::node(
            now,
            format!("agent:{}", agent.name),
            "act.started",
            current.node,
            summary,
        );
        let detail = json!({ "job": job, "attempt": request.attempt, "act": act });
        noted = Some(
            db::events::insert_noted(&mut tx, event.under(current.operation).with(detail)).await?,
        );
    }
    tx.commit().await?;
    agent.mark.set(noted);
    Ok(Json(known.map_or(ActReply::Go, ActReply::Already)))
}

pub(super) async fn renew(
    State(app): State<App>,
    agent: Agent,
    Path(job): Path<JobId>,
    Told(request): Told<RenewJob>,
) -> Result<Json<Renewed>, Error> {
    note_attempt(job, request.attempt);
    let request = redact_renewal(request);
    let now = app.clock.now();
    let mut tx = app.pool.begin().await?;
    agent.fence(&mut tx, request.epoch, &app).await?;
    let current = db::jobs::lock_current(&mut tx, job, agent.id, request.attempt)
        .await?
        .ok_or_else(stale)?;
    let progress = request.progress.as_ref().map(cut_progress);
    let told = request
        .waiting_for
        .clone()
        .or_else(|| progress.as_ref().map(describe_progress));
    let waiting_for = told.map(|text| awaited_thing(&text).chars().take(300).collect::<String>());
    db::jobs::renew(
        &mut tx,
        &current,
        lease_end(now),
        progress.as_ref(),
        waiting_for.as_deref(),
        now,
    )
    .await?;
    db::job_logs::append(&mut tx, job, request.attempt, &request.log).await?;
    tx.commit().await?;
    app.wake_readers.send_modify(|revision| *revision += 1);
    Ok(Json(Renewed {
        cancel: current.cancel,
    }))
}

/// Returns a progress with texts of a stored size.
fn cut_progress(progress: &Progress) -> Progress {
    let cut = |text: &String, most| text.chars().take(most).collect::<String>();
    Progress {
        at: progress.at,
        message: cut(&progress.message, 4096),
        done: progress.done,
        total: progress.total,
        unit: progress.unit.as_ref().map(|unit| cut(unit, 60)),
    }
}

/// The progress of a running step, in words.
fn describe_progress(progress: &Progress) -> String {
    match (progress.done, progress.total) {
        (Some(done), Some(total)) if total > 0 => {
            format!(
                "{}: {} %",
                progress.message,
                u128::from(done) * 100 / u128::from(total)
            )
        }
        _ => progress.message.clone(),
    }
}

pub(super) async fn redeem(
    State(app): State<App>,
    agent: Agent,
    Json(request): Json<RedeemPermit>,
) -> Result<Json<Redeemed>, Error> {
    note_attempt(request.job, request.attempt);
    let now = app.clock.now();
    let mut tx = app.pool.begin().await?;
    agent.fence(&mut tx, request.epoch, &app).await?;
    let keys = app.keys.open_permits(&mut tx).await;
    let key = keys.map_err(Error::internal)?.current;
    let (redeemed, event) = permits::redeem(&mut tx, &key, agent.id, &request, now).await?;
    tx.commit().await?;
    agent.mark.set(Some(event));
    Ok(Json(redeemed))
}
