//! The machine's own log of its power. The log is append-only; an entry is written before the
//! request is answered. Tests read the log to prove that an act happened exactly once, independent
//! of the control plane's records.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use jiff::Timestamp;
use muster_core::clock::Clock;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

use super::firmware::BootOrder;
use crate::error::{LabError, io};

/// Maximum number of entries of a machine. Above the limit only the log of the runaway guest stops;
/// the lab continues.
const MAX_ENTRIES: u64 = 100_000;

/// A line of `oracle.jsonl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Time by the lab's clock.
    pub at: Timestamp,
    /// Number of boots of the machine at this time, the current boot included.
    pub boot: u64,
    /// The event.
    pub what: Happening,
    /// The cause of the event.
    pub cause: Cause,
}

/// An event of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Happening {
    /// Power came on.
    PowerOn {
        /// The boot order given to the firmware.
        order: BootOrder,
    },
    /// The machine booted again without losing power.
    Reboot {
        /// The boot order given to the firmware.
        order: BootOrder,
    },
    /// Power went off.
    PowerOff,
    /// The power button was pressed briefly.
    ButtonPressed,
    /// The machine failed to start or stopped unexpectedly.
    Failed {
        /// The known details.
        why: String,
    },
    /// The lab inflicted a fault on the machine.
    Fault {
        /// The fault.
        what: String,
    },
}

/// The cause of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Cause {
    /// A request through the BMC.
    Bmc {
        /// The BMC account of the request.
        user: String,
        /// The Redfish reset type.
        reset: String,
    },
    /// The operating system in the machine.
    Guest,
    /// A finger on the power button.
    Button,
    /// The lab itself: a fault on request, or the end of the rack.
    Lab,
}

/// The log of a machine.
#[derive(Debug)]
pub(crate) struct Oracle {
    path: PathBuf,
    clock: Clock,
    file: Mutex<(File, u64)>,
    entries: broadcast::Sender<Entry>,
}

impl Oracle {
    /// Opens the log for appending and counts the existing entries.
    pub(crate) fn open(dir: &Path, clock: Clock) -> Result<Self, LabError> {
        let path = dir.join("oracle.jsonl");
        let written = std::fs::read(&path).map_or(0, |text| {
            text.iter().filter(|b| **b == b'\n').count() as u64
        });
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = Mutex::new((
            file.map_err(io(format!("open {}", path.display())))?,
            written,
        ));
        Ok(Self {
            path,
            clock,
            file,
            entries: broadcast::Sender::new(64),
        })
    }

    /// Writes an entry to the log and sends the entry to all subscribers.
    pub(crate) fn append(&self, boot: u64, what: Happening, cause: Cause) {
        let entry = Entry {
            at: self.clock.now(),
            boot,
            what,
            cause,
        };
        let mut line = serde_json::to_vec(&entry).expect("an entry has only text keys");
        line.push(b'\n');
        let mut file = self.file.lock().expect("no holder of the log panics");
        if file.1 < MAX_ENTRIES {
            file.1 += 1;
            if let Err(error) = file.0.write_all(&line) {
                tracing::error!(path = %self.path.display(), %error, "the oracle could not be written");
            }
        }
        drop(file);
        // An error only means that the log has no subscriber.
        let _ = self.entries.send(entry);
    }

    /// Returns every entry so far, oldest first.
    pub(crate) fn read(&self) -> Result<Vec<Entry>, LabError> {
        let text = std::fs::read_to_string(&self.path)
            .map_err(io(format!("read {}", self.path.display())))?;
        let broken = |error| LabError::Plan(format!("{}: {error}", self.path.display()));
        text.lines()
            .map(|line| serde_json::from_str(line).map_err(broken))
            .collect()
    }

    /// Subscribes to entries written from now on.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Entry> {
        self.entries.subscribe()
    }
}
