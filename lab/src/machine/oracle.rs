//! The machine's own account of its power: append-only, written before anybody is answered. Tests read it to see that an act
//! meant to happen once did not happen twice, whatever the control plane believes.

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

/// Entries one machine may write; a runaway guest stops being logged, not the lab.
const MAX_ENTRIES: u64 = 100_000;

/// One line of `oracle.jsonl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When, by the lab's clock.
    pub at: Timestamp,
    /// How often the machine had booted when this happened, this boot included.
    pub boot: u64,
    /// What happened.
    pub what: Happening,
    /// Who or what caused it.
    pub cause: Cause,
}

/// What can happen to a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Happening {
    /// Power came on.
    PowerOn {
        /// What the firmware was told to try.
        order: BootOrder,
    },
    /// It booted again without losing power.
    Reboot {
        /// What the firmware was told to try.
        order: BootOrder,
    },
    /// Power went off.
    PowerOff,
    /// The power button was pressed briefly.
    ButtonPressed,
    /// It should have run and did not.
    Failed {
        /// What is known.
        why: String,
    },
    /// The lab did something to it.
    Fault {
        /// What.
        what: String,
    },
}

/// Who or what caused something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Cause {
    /// Somebody through the BMC.
    Bmc {
        /// The account.
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

/// The log of one machine.
#[derive(Debug)]
pub(crate) struct Oracle {
    path: PathBuf,
    clock: Clock,
    file: Mutex<(File, u64)>,
    entries: broadcast::Sender<Entry>,
}

impl Oracle {
    /// Opens the log for appending.
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

    /// Writes an entry.
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
        // Nobody listening is fine.
        let _ = self.entries.send(entry);
    }

    /// Every entry so far, oldest first.
    pub(crate) fn read(&self) -> Result<Vec<Entry>, LabError> {
        let text = std::fs::read_to_string(&self.path)
            .map_err(io(format!("read {}", self.path.display())))?;
        let broken = |error| LabError::Plan(format!("{}: {error}", self.path.display()));
        text.lines()
            .map(|line| serde_json::from_str(line).map_err(broken))
            .collect()
    }

    /// Entries as they are written from now on.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Entry> {
        self.entries.subscribe()
    }
}
