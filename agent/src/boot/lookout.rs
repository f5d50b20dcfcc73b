//! Records the actions of machines seen on the network, for the waiting job and for the server.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use muster_core::clock::Clock;
use muster_core::values::Mac;
use muster_core::wire::calls::{Seen, Sighting};
use tokio::sync::mpsc;

use super::arm::ArmedBoots;

/// The same sighting of the same machine within this time is reported once.
const QUIET: SignedDuration = SignedDuration::from_secs(2);
/// Maximum number of remembered sightings. A flood of fake machines only clears the memory.
const MOST: usize = 4096;

/// The identity claimed by a machine. The values are not trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub uuid: Option<String>,
    pub serial: Option<String>,
}

/// Collects sightings. The queue to the server is limited. When the queue is full, a sighting is
/// dropped without waiting.
#[derive(Debug)]
pub struct Lookout {
    armed: ArmedBoots,
    queue: mpsc::Sender<Sighting>,
    clock: Clock,
    recent: Mutex<HashMap<(Mac, u8), (Timestamp, String)>>,
}

impl Lookout {
    pub fn new(armed: ArmedBoots, queue: mpsc::Sender<Sighting>, clock: Clock) -> Self {
        Self {
            armed,
            queue,
            clock,
            recent: Mutex::default(),
        }
    }

    /// Records a sighting.
    pub fn saw(&self, mac: Mac, what: Seen, who: Identity, detail: impl Into<String>) {
        let sighting = Sighting {
            at: self.clock.now(),
            mac,
            what,
            uuid: who.uuid.as_deref().and_then(plain),
            serial: who.serial.as_deref().and_then(plain),
            detail: detail.into(),
        };
        self.armed.saw(&sighting);
        if !self.is_news(&sighting) {
            return;
        }
        self.log(&sighting);
        if self.queue.try_send(sighting).is_err() {
            tracing::debug!(%mac, "sighting dropped: the queue to the server is full");
        }
    }

    /// Logs a sighting: at `info` for a machine with an armed boot, with the fields of the boot's
    /// job, and otherwise at `debug`.
    fn log(&self, sighting: &Sighting) {
        let Sighting {
            mac, what, detail, ..
        } = sighting;
        match self.armed.session(*mac) {
            Some(session) => session.in_scope(|| tracing::info!(?what, detail, "machine seen")),
            None => tracing::debug!(%mac, ?what, detail, "machine seen"),
        }
    }

    fn is_news(&self, sighting: &Sighting) -> bool {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (sighting.mac, sighting.what as u8);
        let told = recent.get(&key).is_some_and(|(at, detail)| {
            sighting.at.duration_since(*at) < QUIET && *detail == sighting.detail
        });
        if !told {
            if recent.len() >= MOST {
                recent.clear();
            }
            recent.insert(key, (sighting.at, sighting.detail.clone()));
        }
        !told
    }
}

/// Returns at most 64 printable ASCII characters of a text sent by firmware. All other characters
/// are removed.
fn plain(text: &str) -> Option<String> {
    let kept: String = text
        .chars()
        .filter(|c| c.is_ascii_graphic() || *c == ' ')
        .take(64)
        .collect();
    Some(kept.trim().to_owned()).filter(|kept| !kept.is_empty())
}
