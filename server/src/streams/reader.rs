//! One reader of the database for all streams of a replica. The reader asks for new events at each
//! wake of the replica, and at least once a second. Streams with equal views share one query. A
//! stream that is slow loses batches, and reads them from the database by its last number.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::{PgConnection, PgPool};
use tokio::sync::{broadcast, watch};
use tokio::task::JoinSet;
use tracing::Instrument as _;

use crate::access::Sight;
use crate::db;
use crate::db::access_changes::Turn;
use crate::db::events::{EventFilter, EventRow};
use crate::db::filter::{Order, Stretch, event_seqs};
use crate::error::Error;

/// The longest time between two reads, because another replica may have written the event.
const POLL: Duration = Duration::from_secs(1);
/// The shortest time between two reads.
const GAP: Duration = Duration::from_millis(50);
/// Most events of one batch.
const BATCH: i64 = 200;
/// Batches kept for a slow stream. Streams share the rows.
const KEPT: usize = 16;

/// The events that a stream shows: filter, and read scope of the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    pub filter: EventFilter,
    pub sight: Sight,
}

impl View {
    fn is_whole(&self) -> bool {
        self.sight.is_empty() && self.filter == EventFilter::default()
    }
}

/// New events of a view, oldest first.
#[derive(Debug)]
pub struct Batch {
    pub rows: Vec<Arc<EventRow>>,
}

/// The events of a view from now on. The present turn of rights is at least as new as every batch
/// received.
#[derive(Debug)]
pub struct Subscription {
    pub batches: broadcast::Receiver<Arc<Batch>>,
    pub rights: watch::Receiver<Turn>,
}

/// The streams with equal views.
#[derive(Debug)]
struct Group {
    view: View,
    batches: broadcast::Sender<Arc<Batch>>,
}

/// A running reader.
#[derive(Debug)]
struct Running {
    /// The number of the start.
    start: u64,
    /// The last event that was published.
    at: i64,
    rights: watch::Sender<Turn>,
    groups: HashMap<u64, Group>,
    next_group: u64,
}

impl Running {
    fn join(&mut self, view: View) -> Subscription {
        let rights = self.rights.subscribe();
        if let Some(group) = self.groups.values().find(|group| group.view == view) {
            let batches = group.batches.subscribe();
            return Subscription { batches, rights };
        }
        let (sender, batches) = broadcast::channel(KEPT);
        let group = Group {
            view,
            batches: sender,
        };
        self.groups.insert(self.next_group, group);
        self.next_group += 1;
        Subscription { batches, rights }
    }
}

#[derive(Debug, Default)]
struct State {
    starts: u64,
    /// The task of the reader. The task ends after the last stream.
    readers: JoinSet<()>,
    running: Option<Running>,
}

/// The reader of one replica, and the streams with a subscription.
#[derive(Clone, Debug, Default)]
pub(super) struct Hub {
    state: Arc<Mutex<State>>,
}

/// The progress of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// More events may follow at once.
    Full,
    UpToDate,
    /// No stream is left.
    Unused,
}

impl Hub {
    pub(super) async fn subscribe(
        &self,
        pool: &PgPool,
        wake: &watch::Sender<i64>,
        view: View,
    ) -> Result<Subscription, Error> {
        let mut conn = pool.acquire().await?;
        let at = db::events::find_complete_end(&mut conn).await?;
        let turn = db::access_changes::find_turn(&mut conn).await?;
        drop(conn);
        let mut state = self.lock();
        if let Some(running) = state.running.as_mut() {
            return Ok(running.join(view));
        }
        state.starts += 1;
        let start = state.starts;
        let running = state.running.insert(Running {
            start,
            at,
            rights: watch::channel(turn).0,
            groups: HashMap::new(),
            next_group: 0,
        });
        let subscription = running.join(view);
        let reading = run(self.clone(), start, pool.clone(), wake.subscribe());
        let span = tracing::error_span!("task", task = "streams");
        // Forget the readers that have ended.
        while state.readers.try_join_next().is_some() {}
        state.readers.spawn(reading.instrument(span));
        Ok(subscription)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets views without streams. Returns the position of the reader, and `None` without any
    /// stream: the reader then counts as ended.
    fn begin(&self) -> Option<i64> {
        let mut state = self.lock();
        let running = state.running.as_mut()?;
        running
            .groups
            .retain(|_, group| group.batches.receiver_count() > 0);
        let at = running.at;
        if running.groups.is_empty() {
            state.running = None;
            return None;
        }
        Some(at)
    }

    async fn read(&self, pool: &PgPool) -> Result<Progress, Error> {
        let Some(at) = self.begin() else {
            return Ok(Progress::Unused);
        };
        metrics::counter!("muster_stream_reads_total").increment(1);
        let mut conn = pool.acquire().await?;
        let all = EventFilter::default();
        let rows = db::events::list_on(&mut conn, &all, at, BATCH).await?;
        let rows: Vec<Arc<EventRow>> = rows.into_iter().map(Arc::new).collect();
        let mut found = HashMap::new();
        loop {
            // The turn is read after the rows: a right that ended before an event hides the event.
            let turn = db::access_changes::find_turn(&mut conn).await?;
            let missing = self.publish(&rows, &found, turn);
            if missing.is_empty() {
                break;
            }
            for (group, view) in missing {
                found.insert(group, select_rows(&mut conn, &view, &rows, at).await?);
            }
        }
        Ok(match i64::try_from(rows.len()) == Ok(BATCH) {
            true => Progress::Full,
            false => Progress::UpToDate,
        })
    }

    /// Publishes the turn of rights, then the rows of each view. Publishes nothing and returns the
    /// views whose rows are missing, where streams with new views came meanwhile.
    fn publish(
        &self,
        rows: &[Arc<EventRow>],
        found: &HashMap<u64, Vec<Arc<EventRow>>>,
        turn: Turn,
    ) -> Vec<(u64, View)> {
        let mut state = self.lock();
        let Some(running) = state.running.as_mut() else {
            return Vec::new();
        };
        let last = rows.last().map(|row| row.seq);
        if last.is_some() {
            let missing: Vec<(u64, View)> = running
                .groups
                .iter()
                .filter(|(group, _)| !found.contains_key(*group))
                .map(|(group, known)| (*group, known.view.clone()))
                .collect();
            if !missing.is_empty() {
                return missing;
            }
        }
        running.rights.send_if_modified(|present| {
            let is_new = *present != turn;
            *present = turn;
            is_new
        });
        running.at = last.unwrap_or(running.at);
        for (group, known) in &running.groups {
            let rows = found.get(group).cloned().unwrap_or_default();
            if !rows.is_empty() {
                metrics::counter!("muster_stream_published_total").increment(1);
                // Without a receiver, the next read forgets the view.
                known.batches.send(Arc::new(Batch { rows })).ok();
            }
        }
        Vec::new()
    }
}

/// The rows that a view shows, in the order of the history.
async fn select_rows(
    conn: &mut PgConnection,
    view: &View,
    rows: &[Arc<EventRow>],
    above: i64,
) -> Result<Vec<Arc<EventRow>>, Error> {
    if view.is_whole() {
        return Ok(rows.to_vec());
    }
    let till = rows.last().map_or(above, |row| row.seq);
    let range = Stretch { above, till };
    let seqs = event_seqs(conn, &view.filter, &view.sight, range, Order::Up, BATCH).await?;
    Ok(rows
        .iter()
        .filter(|row| seqs.binary_search(&row.seq).is_ok())
        .cloned()
        .collect())
}

/// Ends the subscriptions with the reader, also after a panic. The clients connect again.
struct Ending {
    hub: Hub,
    start: u64,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let mut state = self.hub.lock();
        let is_mine = |running: &Running| running.start == self.start;
        if state.running.as_ref().is_some_and(is_mine) {
            state.running = None;
        }
    }
}

async fn run(hub: Hub, start: u64, pool: PgPool, mut wake: watch::Receiver<i64>) {
    let _ending = Ending {
        hub: hub.clone(),
        start,
    };
    loop {
        match hub.read(&pool).await {
            Ok(Progress::Full) => continue,
            Ok(Progress::UpToDate) => {}
            Ok(Progress::Unused) => return,
            Err(error) => {
                tracing::info!(%error, "event streams end");
                return;
            }
        }
        tokio::time::sleep(GAP).await;
        // A closed channel means a server shutdown. The pause still bounds the rate of the loop.
        if let Ok(Err(_)) = tokio::time::timeout(POLL, wake.changed()).await {
            tokio::time::sleep(POLL).await;
        }
    }
}
