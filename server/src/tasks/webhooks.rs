//! Sends events to webhooks: every matching event, in order, repeated until accepted, at least
//! once. The replica with the lease of a webhook is the only sender until the lease ends. Each
//! webhook has a sender task of its own, so a slow receiver does not delay other webhooks.

use crate::db::webhooks::{DeliveryReason, DeliveryRow, DeliveryState, Held};
use std::time::{Duration, Instant};

use aws_lc_rs::hmac;
use jiff::{SignedDuration, Timestamp};
use muster_api::webhooks::WebhookSpec;
use muster_core::ids::{EventId, ObjectId};
use reqwest::Url;
use serde_json::json;
use sqlx::PgConnection;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::app::App;
use crate::db;
use crate::db::events::{EventRow, NewEvent};
use crate::engine::orders::secret_place;
use crate::error::Error;
use crate::intents::events::render_event;
use crate::outbound::Answered;
use crate::outbound::later::Later;
use crate::webhooks::{self, Message};

const EVERY: Duration = Duration::from_secs(1);
/// Most webhooks of a fleet, and most sender tasks of a replica.
pub const MOST: usize = 100;
/// Length of a sender's lease. Longer than one HTTP call and the writes after the call.
const LEASE: SignedDuration = SignedDuration::from_secs(60);
/// Most events of one read.
const BATCH: i64 = 200;
/// Attempts kept for each webhook.
pub const KEPT: i64 = 200;
/// Pause after the first failure. Each further failure doubles the pause.
const FIRST: SignedDuration = SignedDuration::from_secs(5);
const LONGEST: SignedDuration = SignedDuration::from_hours(1);
/// Time after which a webhook stops, when the receiver has not accepted an event.
const PATIENCE: SignedDuration = SignedDuration::from_hours(24);

pub(super) async fn run(app: App, cancel: CancellationToken) {
    let mut senders = JoinSet::new();
    loop {
        match take(&app, MOST - senders.len().min(MOST)).await {
            Ok(taken) => {
                for (webhook, lease) in taken {
                    senders.spawn(serve(app.clone(), webhook, lease, cancel.clone()));
                }
            }
            Err(error) => {
                tracing::warn!(error = ?error, "webhooks could not be looked at; tried again shortly")
            }
        }
        tokio::select! {
            () = cancel.cancelled() => break,
            () = tokio::time::sleep(EVERY) => {}
        }
        while let Some(ended) = senders.try_join_next() {
            ended.expect("a sender does not panic");
        }
    }
    while senders.join_next().await.is_some() {}
}

/// Leases every webhook with pending deliveries and sends all deliveries of the leased webhooks.
/// Returns the number of webhooks. Does one round of the work of `run`.
///
/// # Errors
///
/// When the database fails.
pub async fn round(app: &App) -> Result<usize, Error> {
    let mut senders = JoinSet::new();
    for (webhook, lease) in take(app, MOST).await? {
        senders.spawn(serve(app.clone(), webhook, lease, CancellationToken::new()));
    }
    Ok(senders.join_all().await.len())
}

/// Leases webhooks with pending deliveries and without a sender.
async fn take(app: &App, limit: usize) -> Result<Vec<(ObjectId, Uuid)>, Error> {
    let (now, lease) = (app.clock.now(), Uuid::new_v4());
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let taken = db::webhooks::lease(
        &mut *app.pool.acquire().await?,
        lease,
        now,
        now + LEASE,
        limit,
    )
    .await?;
    Ok(taken.into_iter().map(|webhook| (webhook, lease)).collect())
}

/// Sends to one webhook until all events are sent, an attempt fails, or the replica stops. An
/// interrupted delivery is sent again by another replica.
async fn serve(app: App, webhook: ObjectId, lease: Uuid, cancel: CancellationToken) {
    let sent = async {
        send_requested(&app, webhook, lease).await?;
        while stretch(&app, webhook, lease).await? {}
        Ok::<(), Error>(())
    };
    let sent = cancel.run_until_cancelled(sent).await.unwrap_or(Ok(()));
    let released =
        async { db::webhooks::release(&mut *app.pool.acquire().await?, webhook, lease).await };
    if let Err(error) = sent.and(released.await) {
        tracing::warn!(%webhook, error = ?error, "a webhook was not served to the end; its lease ends by itself");
    }
}

/// The destination of deliveries: address, spec and signing secrets.
struct Receiver {
    url: Url,
    spec: WebhookSpec,
    secrets: Vec<hmac::Key>,
}

impl Receiver {
    async fn open(app: &App, conn: &mut PgConnection, held: &Held) -> Result<Self, Error> {
        let spec: WebhookSpec =
            serde_json::from_value(held.spec.clone()).map_err(Error::internal)?;
        let sealed = db::keys::find_secret(conn, held.webhook).await?;
        let sealed = sealed.ok_or_else(|| {
            Error::internal(anyhow::anyhow!("webhook {} has no secret", held.name))
        })?;
        let secret = app
            .keys
            .master
            .open(&secret_place(held.webhook), &sealed)
            .map_err(Error::internal)?;
        let secrets = std::str::from_utf8(&secret).map_err(Error::internal)?;
        let secrets =
            webhooks::secrets(secrets).map_err(|why| Error::internal(anyhow::anyhow!(why)))?;
        Ok(Self {
            url: Url::parse(&spec.url).map_err(Error::internal)?,
            spec,
            secrets,
        })
    }

    /// Makes one attempt. Returns the row to record, and the receiver's requested retry time.
    async fn send(
        &self,
        app: &App,
        message: &Message,
        row: DeliveryRow,
    ) -> (DeliveryRow, Option<Later>) {
        let (at, began) = (app.clock.now(), Instant::now());
        let answer = app
            .outbound
            .post(
                &self.url,
                message.headers(&self.secrets, at),
                message.body.clone(),
            )
            .await;
        let (status, error) = match &answer {
            Ok(Answered {
                status: status @ 200..300,
                ..
            }) => (Some(*status), None),
            Ok(Answered {
                status: status @ 300..400,
                ..
            }) => (
                Some(*status),
                Some(format!("answered {status}: no redirect is followed")),
            ),
            Ok(Answered { status, .. }) => (Some(*status), Some(format!("answered {status}"))),
            Err(why) => (None, Some(why.clone())),
        };
        // Only these statuses announce that the receiver may accept the same request later.
        let later = answer
            .ok()
            .filter(|answered| matches!(answered.status, 429 | 503))
            .and_then(|one| one.later);
        let row = DeliveryRow {
            state: match error {
                None => DeliveryState::Delivered,
                Some(_) => DeliveryState::Failed,
            },
            attempt: row.attempt + 1,
            at,
            status: status.map(i32::from),
            error,
            duration_ms: i32::try_from(began.elapsed().as_millis()).ok(),
            ..row
        };
        (row, later)
    }
}

/// A delivery before the first attempt, of an event or a ping.
pub fn delivery(
    reason: DeliveryReason,
    seq: Option<i64>,
    id: EventId,
    kind: &str,
    at: Timestamp,
) -> DeliveryRow {
    DeliveryRow {
        id: Uuid::now_v7(),
        seq,
        event_id: id,
        kind: kind.to_owned(),
        reason,
        state: DeliveryState::Queued,
        attempt: 0,
        at,
        status: None,
        error: None,
        duration_ms: None,
    }
}

/// Sends the deliveries requested by people: once each, in every state of the webhook.
async fn send_requested(app: &App, webhook: ObjectId, lease: Uuid) -> Result<(), Error> {
    let mut conn = app.pool.acquire().await?;
    let Some(held) = db::webhooks::find_held(&mut conn, webhook, lease).await? else {
        return Ok(());
    };
    let rows = db::webhooks::list_queued(&mut conn, webhook).await?;
    if rows.is_empty() {
        return Ok(());
    }
    let receiver = Receiver::open(app, &mut conn, &held).await?;
    drop(conn);
    for row in rows {
        if !db::webhooks::renew(
            &mut *app.pool.acquire().await?,
            &held,
            app.clock.now() + LEASE,
        )
        .await?
        {
            return Ok(());
        }
        let message = match row.seq {
            None => Some(Message::ping(row.event_id.0, &held.name, row.at)),
            Some(seq) => {
                let found =
                    db::webhooks::list_events(&mut *app.pool.acquire().await?, seq - 1, seq, 1)
                        .await?;
                found
                    .into_iter()
                    .next()
                    .map(|(row, _)| Message::event(&render_event(row)))
            }
        };
        let row = match message {
            Some(message) => receiver.send(app, &message, row).await.0,
            None => DeliveryRow {
                state: DeliveryState::Failed,
                error: Some("the event is no longer in the history".into()),
                ..row
            },
        };
        db::webhooks::finish_delivery(&mut *app.pool.acquire().await?, &row).await?;
    }
    Ok(())
}

/// Sends one batch of the history. Returns `true` when more events follow.
async fn stretch(app: &App, webhook: ObjectId, lease: Uuid) -> Result<bool, Error> {
    let mut conn = app.pool.acquire().await?;
    let Some(held) = db::webhooks::find_held(&mut conn, webhook, lease).await? else {
        return Ok(false);
    };
    let state = &held.state;
    if state.stopped_because.is_some() || state.due_at.to_jiff() > app.clock.now() {
        return Ok(false);
    }
    let receiver = Receiver::open(app, &mut conn, &held).await?;
    if receiver.spec.enabled == Some(false) {
        return Ok(false);
    }
    // The limit is read before the events, as `db::events::find_complete_end` requires.
    let whole = db::events::find_complete_end(&mut conn).await?;
    let rows = db::webhooks::list_events(&mut conn, state.seq, whole, BATCH).await?;
    drop(conn);
    let full = i64::try_from(rows.len()).unwrap_or(BATCH) == BATCH;
    let end = if full {
        rows.last().map_or(whole, |(row, _)| row.seq)
    } else {
        whole
    };
    let mut tried = state.attempts;
    for (row, site) in rows {
        if !webhooks::wants(&receiver.spec, &row.kind, site.as_deref()) {
            continue;
        }
        if !send_event(app, &held, &receiver, row, tried).await? {
            return Ok(false);
        }
        tried = 0;
    }
    let until = app.clock.now() + LEASE;
    // Events for other webhooks are marked as read, so the next round does not read the same events
    // again.
    let goes_on = end <= state.seq
        || db::webhooks::set_taken(&mut *app.pool.acquire().await?, &held, end, until).await?;
    Ok(full && goes_on)
}

/// Sends one event. `true`: the receiver took the event, and the sender still holds the unchanged
/// webhook.
async fn send_event(
    app: &App,
    held: &Held,
    receiver: &Receiver,
    row: EventRow,
    tried: i32,
) -> Result<bool, Error> {
    let (seq, id, kind) = (row.seq, row.id, row.kind.clone());
    let message = Message::event(&render_event(row));
    let planned = DeliveryRow {
        attempt: tried,
        ..delivery(DeliveryReason::Event, Some(seq), id, &kind, app.clock.now())
    };
    let (tried, later) = receiver.send(app, &message, planned).await;
    let mut tx = app.pool.begin().await?;
    // The delivery comes first: the insert locks the webhook, as a change of the webhook does
    // before reading the progress.
    db::webhooks::insert_delivery(&mut tx, held.webhook, &tried, KEPT).await?;
    let goes_on = match &tried.error {
        None => db::webhooks::set_taken(&mut tx, held, seq, app.clock.now() + LEASE).await?,
        Some(error) => {
            record_failure(app, &mut tx, held, &tried, error, later).await?;
            false
        }
    };
    tx.commit().await?;
    Ok(goes_on)
}

/// Plans the next attempt after a failure, or stops the webhook.
async fn record_failure(
    app: &App,
    conn: &mut PgConnection,
    held: &Held,
    tried: &DeliveryRow,
    error: &str,
    later: Option<Later>,
) -> Result<(), Error> {
    let now = app.clock.now();
    // The receiver's Retry-After extends the pause, up to the longest pause.
    let asked = later.map_or(SignedDuration::ZERO, |later| later.wait(now, LONGEST));
    let due_at = now + pause(tried.attempt, rand::random_range(0.8..1.2)).max(asked);
    if !db::webhooks::set_failed(conn, held, error, due_at, now).await? {
        return Ok(());
    }
    let since = held
        .state
        .failing_since
        .filter(|_| tried.attempt > 1)
        .map_or(now, |at| at.to_jiff());
    let because = match tried.status {
        Some(410) => "the receiver is gone (410)".to_owned(),
        _ if now.duration_since(since) >= PATIENCE => {
            format!(
                "event {} was not accepted for a day, {} attempts: {error}",
                tried.seq.unwrap_or_default(),
                tried.attempt
            )
        }
        _ => return Ok(()),
    };
    db::webhooks::stop(conn, held, &because, now).await?;
    let told = NewEvent::new(
        now,
        "muster",
        "webhook.stopped",
        format!("webhook {} is stopped: {because}", held.name),
    )
    .about(held.webhook)
    .with(json!({ "webhook": held.name, "because": because, "next_seq": tried.seq }));
    db::events::insert(conn, told).await
}

/// Returns the pause before the next attempt: 5 s, 10 s, 20 s, up to an hour. The jitter varies the
/// pause by a fifth, so failed webhooks do not all retry at once.
fn pause(attempts: i32, jitter: f64) -> SignedDuration {
    let doubled = 2_i32.saturating_pow(u32::try_from(attempts - 1).unwrap_or(0).min(20));
    FIRST.saturating_mul(doubled).min(LONGEST).mul_f64(jitter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_an_hour_and_a_day_is_enough() {
        let seconds = |attempts| pause(attempts, 1.0).as_secs();
        assert_eq!(
            [1, 2, 3, 10, 11, 100].map(seconds),
            [5, 10, 20, 2560, 3600, 3600]
        );
        assert_eq!((pause(1, 0.8).as_secs(), pause(1, 1.2).as_secs()), (4, 6));
        let mut total = 0;
        let tries = (1..).take_while(|attempt| {
            total += seconds(*attempt);
            total < PATIENCE.as_secs()
        });
        assert_eq!(tries.count(), 32);
    }
}
