//! One open event stream. New events come from the replica's reader. Missed events are read from
//! the database by the last number. The rights of the caller are checked when the stream begins,
//! after each change of rights, and once a minute, because tokens and sessions also end by time.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::Instant;

use crate::app::App;
use crate::auth::{self, Actor};
use crate::db;
use crate::db::access_changes::Turn;
use crate::db::events::{EventFilter, EventRow};
use crate::db::seen::Found;
use crate::error::Error;
use crate::streams::{Batch, Place, Subscription, View};

/// Most events of one read of the database.
const BATCH: i64 = 200;
/// The longest time between two checks of the caller's rights.
const CHECK_EVERY: Duration = Duration::from_secs(60);

/// The reason for the end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The longest life of a stream is over.
    Time,
    /// The credential ended, or the caller's read scope changed.
    Rights,
    /// The server cannot read the history, or shuts down.
    Server,
}

impl End {
    /// The reason as the last line of the stream.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Time => "closed: the longest life of a stream is over; connect again",
            Self::Rights => "closed: the credential or its rights have changed; connect again",
            Self::Server => "closed: the history cannot be read now; connect again",
        }
    }
}

/// The rows of one stream, with the place of the stream in the replica's bound.
pub(crate) struct Follower {
    app: App,
    headers: HeaderMap,
    name: String,
    view: View,
    subscription: Subscription,
    /// Number of the last event returned or left out.
    after: i64,
    /// Whether the database may have events that the reader published before.
    is_behind: bool,
    /// The turn of rights at the last check.
    checked: Option<Turn>,
    check_at: Instant,
    ends: Instant,
    _place: Place,
}

impl Follower {
    /// Opens a stream of the events after a number.
    ///
    /// # Errors
    /// 429 and 503 beyond the bounds of streams; when the database fails.
    pub(crate) async fn open(
        app: App,
        actor: &Actor,
        headers: HeaderMap,
        filter: EventFilter,
        after: i64,
        lasts: Duration,
    ) -> Result<Self, Error> {
        let mut callers = vec![actor.person.clone()];
        callers.extend(actor.token.map(|token| format!("token {token}")));
        let place = app.streams.take(&callers)?;
        let sight = actor.sight();
        let view = View { filter, sight };
        let streams = app.streams.clone();
        let subscription = streams
            .subscribe(&app.pool, &app.wake_readers, view.clone())
            .await?;
        let now = Instant::now();
        Ok(Self {
            app,
            headers,
            name: actor.name.clone(),
            view,
            subscription,
            after,
            is_behind: true,
            checked: None,
            check_at: now + CHECK_EVERY,
            ends: now + lasts,
            _place: place,
        })
    }

    /// Waits for the next events. The list is never empty.
    ///
    /// # Errors
    /// The reason for the end of the stream.
    pub(crate) async fn next_rows(&mut self) -> Result<Vec<Arc<EventRow>>, End> {
        loop {
            if Instant::now() >= self.ends {
                return Err(End::Time);
            }
            let rows = match self.is_behind {
                true => self.catch_up().await?,
                false => match self.receive_batch().await? {
                    Some(batch) => self.admit_rows(&batch).await?,
                    None => Vec::new(),
                },
            };
            if !rows.is_empty() {
                return Ok(rows);
            }
        }
    }

    /// Returns the events that the reader has published meanwhile, without a wait.
    ///
    /// # Errors
    /// The reason for the end of the stream.
    pub(crate) async fn take_ready(&mut self) -> Result<Vec<Arc<EventRow>>, End> {
        let mut ready = Vec::new();
        while !self.is_behind {
            match self.subscription.batches.try_recv() {
                Ok(batch) => ready.extend(self.admit_rows(&batch).await?),
                Err(TryRecvError::Lagged(_)) => self.is_behind = true,
                // The next wait notices a closed channel.
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        Ok(ready)
    }

    /// Reads events from the database. The stream is up to date after a read to the end of the
    /// history: later events are in the subscription.
    async fn catch_up(&mut self) -> Result<Vec<Arc<EventRow>>, End> {
        metrics::counter!("muster_stream_catchups_total").increment(1);
        let View { filter, sight } = &self.view;
        let read = async {
            let mut conn = self.app.pool.acquire().await?;
            let end = db::events::find_complete_end(&mut conn).await?;
            let found = db::seen::list_on(&mut conn, filter, sight, self.after, BATCH).await?;
            Ok::<(i64, Found), Error>((end, found))
        };
        let (end, found) = read.await.map_err(|error| end_of(&error))?;
        // Without a search in ranges, the position is that of the last row.
        let is_searched = found.at >= end || (sight.is_empty() && filter.topics.is_empty());
        let is_full = i64::try_from(found.rows.len()) == Ok(BATCH);
        // Checked after the read: a right that ended before the read hides these rows.
        self.check_rights().await?;
        self.is_behind = is_full || !is_searched;
        self.after = self.after.max(found.at);
        Ok(found.rows.into_iter().map(Arc::new).collect())
    }

    /// Waits for a batch. `None` after another change.
    async fn receive_batch(&mut self) -> Result<Option<Arc<Batch>>, End> {
        let until = self.ends.min(self.check_at);
        tokio::select! {
            biased;
            changed = self.subscription.rights.changed() => {
                changed.map_err(|_| End::Server)?;
                self.check_rights().await?;
                Ok(None)
            }
            received = self.subscription.batches.recv() => match received {
                Ok(batch) => Ok(Some(batch)),
                Err(RecvError::Lagged(_)) => {
                    self.is_behind = true;
                    Ok(None)
                }
                Err(RecvError::Closed) => Err(End::Server),
            },
            () = tokio::time::sleep_until(until) => {
                if until < self.ends {
                    self.check_rights().await?;
                }
                Ok(None)
            }
        }
    }

    /// Returns the new rows of a batch, after a check where rights have changed.
    async fn admit_rows(&mut self, batch: &Batch) -> Result<Vec<Arc<EventRow>>, End> {
        let present = *self.subscription.rights.borrow();
        if self.checked != Some(present) {
            self.check_rights().await?;
        }
        let new = batch.rows.iter().filter(|row| row.seq > self.after);
        let rows: Vec<Arc<EventRow>> = new.cloned().collect();
        self.after = rows.last().map_or(self.after, |row| row.seq);
        Ok(rows)
    }

    /// Ends the stream of a caller whose credential ended or whose read scope changed.
    async fn check_rights(&mut self) -> Result<(), End> {
        let turn = *self.subscription.rights.borrow_and_update();
        let actor = auth::authenticate(&self.headers, &self.app)
            .await
            .map_err(|error| end_of(&error))?;
        if actor.name != self.name || actor.sight() != self.view.sight {
            return Err(End::Rights);
        }
        self.checked = Some(turn);
        self.check_at = Instant::now() + CHECK_EVERY;
        Ok(())
    }
}

fn end_of(error: &Error) -> End {
    if matches!(
        error,
        Error::Unauthenticated | Error::Forbidden(_) | Error::NotAdmitted { .. }
    ) {
        return End::Rights;
    }
    tracing::info!(%error, "event stream ends");
    End::Server
}
