//! What is remembered per BMC, whoever talks to it: one writer at a time, one call at a time, not too fast, and no knocking with credentials
//! that were refused.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use muster_core::ids::JobId;
use muster_core::values::Digest;
use tokio::time::Instant;

use super::error::BmcError;

/// How an agent treats BMCs.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub connect: Duration,
    /// One whole call, answer included.
    pub call: Duration,
    /// Between two calls to one BMC. They are small computers: ten requests a second is what the slow ones bear.
    pub spacing: Duration,
    /// Between two looks at something awaited.
    pub poll: Duration,
    /// A setting must read back within this.
    pub settle: Duration,
    /// Pause before a BMC is asked again that could not answer.
    pub ask_again: Duration,
    /// A power state between on and off, or none at all, lasts seconds; a busy BMC is as soon done.
    pub between: Duration,
    /// Until a machine shows on after it was told.
    pub power_on: Duration,
    /// Until it shows off after its power was cut.
    pub power_off: Duration,
    /// Until it shows off after its system was asked to shut down: one that does so by itself loses nothing.
    pub shutdown: Duration,
    /// No BMC shows the dip of a restart later than this.
    pub dip: Duration,
    /// One that was told to restart and shows off for so long stays off: no restart does for longer than seconds.
    pub stays_off: Duration,
    /// All that is read of firmware and BIOS: an inventory of a hundred parts, one call for each.
    pub inventory: Duration,
    /// One firmware update, by the BMC's own task: some write for half an hour.
    pub update: Duration,
    /// Until what was set is read back after a restart: memory training, and updates that a machine applies on its way up.
    pub boot: Duration,
    /// After a refused login; doubled by each further refusal, up to [`Limits::cool_off_max`]. Usual lock-outs want three to five failures
    /// within some minutes.
    pub cool_off: Duration,
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

/// One BMC's memory.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// Held through a whole change, read-back included.
    pub(super) writer: tokio::sync::Mutex<()>,
    /// When the next call may start; held while one is under way.
    next_call: tokio::sync::Mutex<Option<Instant>>,
    refused: Mutex<Option<Refusal>>,
    /// The cipher suite that an IPMI session was opened with last.
    pub(super) suite: Mutex<Option<&'static str>>,
}

#[derive(Clone, Copy, Debug)]
struct Refusal {
    /// Of user and password, to notice new ones without keeping them.
    credentials: Digest,
    /// Another job than this one may knock once more: after a refusal there is one only because somebody asked again, the BMC being mended.
    job: JobId,
    /// Refused within one pause.
    knocks: u32,
    until: Instant,
    pause: Duration,
}

/// Logins of one kind refused within one pause: below the three failures that the strictest usual lock-outs allow.
const MOST_KNOCKS: u32 = 2;

impl Refusal {
    fn bars(&self, credentials: Digest, job: JobId) -> bool {
        let may_knock_again = job != self.job && self.knocks < MOST_KNOCKS;
        self.credentials == credentials && Instant::now() < self.until && !may_knock_again
    }
}

/// The right to make one call; the next one waits until it is dropped, and `spacing` longer.
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

    /// Fails while these credentials must not be tried by this job.
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

    /// Notes a refused login; returns how long this job does not try these credentials now.
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
