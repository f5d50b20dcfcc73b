//! State kept per BMC and shared by all handles. The state allows one writer and one call at a
//! time, limits the call rate, and blocks logins with refused credentials.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use muster_core::ids::JobId;
use muster_core::values::Digest;
use tokio::time::Instant;

use super::error::BmcError;

/// Timeouts and rate limits for BMC calls.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time limit for opening a connection.
    pub connect: Duration,
    /// Timeout of a whole call, including the answer.
    pub call: Duration,
    /// Pause between two calls to the same BMC. BMCs are small computers, and the slow models
    /// handle at most ten requests per second.
    pub spacing: Duration,
    /// Pause between two polls of an awaited state.
    pub poll: Duration,
    /// Time limit until a changed setting reads back as requested.
    pub settle: Duration,
    /// Pause before retrying a call to a BMC that could not answer.
    pub ask_again: Duration,
    /// Time limit for waiting on a busy or unreachable BMC, or on a transitional or missing power
    /// state. Each of these lasts seconds.
    pub between: Duration,
    /// Time limit until the BMC reports power on after a power-on request.
    pub power_on: Duration,
    /// Time limit until the BMC reports power off after power was cut.
    pub power_off: Duration,
    /// Time limit until the BMC reports power off after a graceful shutdown request. A system shut
    /// down gracefully loses no data.
    pub shutdown: Duration,
    /// Latest time after a restart request at which any BMC reports the power dip.
    pub dip: Duration,
    /// A machine reported off for this long after a restart request stays off, because a restart is
    /// off only for seconds.
    pub stays_off: Duration,
    /// Time limit for reading firmware and BIOS. An inventory can have a hundred parts with a call
    /// for each.
    pub inventory: Duration,
    /// Time limit of a firmware update task on the BMC. Some BMCs write for half an hour.
    pub update: Duration,
    /// Time limit until a setting reads back after a restart. Memory training and firmware updates
    /// during startup take minutes.
    pub boot: Duration,
    /// Pause after a refused login. Each further refusal doubles the pause, up to
    /// [`Limits::cool_off_max`]. Common lockout policies need three to five failures within some
    /// minutes.
    pub cool_off: Duration,
    /// Maximum pause after repeated refused logins.
    pub cool_off_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            call: Duration::from_secs(15),
            spacing: Duration::from_millis(100),
            poll: Duration::from_secs(1),
            settle: Duration::from_secs(10),
            ask_again: Duration::from_secs(5),
            between: Duration::from_mins(2),
            power_on: Duration::from_mins(2),
            power_off: Duration::from_mins(1),
            shutdown: Duration::from_mins(3),
            dip: Duration::from_secs(15),
            stays_off: Duration::from_mins(1),
            inventory: Duration::from_mins(1),
            update: Duration::from_mins(60),
            boot: Duration::from_mins(30),
            cool_off: Duration::from_mins(5),
            cool_off_max: Duration::from_hours(1),
        }
    }
}

/// The shared state of a BMC.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// Locked for a whole change, including the read-back.
    pub(super) writer: tokio::sync::Mutex<()>,
    /// Earliest time of the next call. The lock is held during a call.
    next_call: tokio::sync::Mutex<Option<Instant>>,
    refused: Mutex<Option<Refusal>>,
    /// The cipher suite of the latest IPMI session.
    pub(super) suite: Mutex<Option<&'static str>>,
}

#[derive(Clone, Copy, Debug)]
struct Refusal {
    /// Digest of user and password, to detect new credentials without storing them.
    credentials: Digest,
    /// The job of the refused login. Another job may try once more, because a new job after a
    /// refusal means a new request after a repair of the BMC.
    job: JobId,
    /// Number of logins refused within the same pause.
    knocks: u32,
    until: Instant,
    pause: Duration,
}

/// Maximum number of refused logins within a pause, for the same credentials. The strictest common
/// lockout policies allow three failures.
const MOST_KNOCKS: u32 = 2;

impl Refusal {
    fn bars(&self, credentials: Digest, job: JobId) -> bool {
        let may_knock_again = job != self.job && self.knocks < MOST_KNOCKS;
        self.credentials == credentials && Instant::now() < self.until && !may_knock_again
    }
}

/// The right to make a call. The next call starts `spacing` after the drop of this value.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    next_call: tokio::sync::MutexGuard<'a, Option<Instant>>,
    spacing: Duration,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.next_call = Some(Instant::now() + self.spacing);
    }
}

impl Slot {
    pub(super) async fn turn(&self, spacing: Duration) -> Turn<'_> {
        let next_call = self.next_call.lock().await;
        if let Some(at) = *next_call {
            tokio::time::sleep_until(at).await;
        }
        Turn { next_call, spacing }
    }

    /// Returns an error while this job must not use these credentials.
    pub(super) fn may_log_in(&self, credentials: Digest, job: JobId) -> Result<(), BmcError> {
        match *self.refused() {
            Some(refusal) if refusal.bars(credentials, job) => {
                let again_in =
                    Duration::from_secs(refusal.until.duration_since(Instant::now()).as_secs() + 1);
                Err(BmcError::BadCredentials {
                    said: "refused before; not sent again".into(),
                    again_in,
                })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Records a refused login and returns how long this job must not use these credentials.
    pub(super) fn note_refusal(
        &self,
        credentials: Digest,
        job: JobId,
        limits: &Limits,
    ) -> Duration {
        let mut refused = self.refused();
        let before = refused.filter(|before| before.credentials == credentials);
        let pause = before.map_or(limits.cool_off, |before| {
            (before.pause * 2).min(limits.cool_off_max)
        });
        let knocks = 1 + before
            .filter(|before| Instant::now() < before.until)
            .map_or(0, |before| before.knocks);
        *refused = Some(Refusal {
            credentials,
            job,
            knocks,
            until: Instant::now() + pause,
            pause,
        });
        pause
    }

    pub(super) fn note_login(&self) {
        *self.refused() = None;
    }

    fn refused(&self) -> std::sync::MutexGuard<'_, Option<Refusal>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
