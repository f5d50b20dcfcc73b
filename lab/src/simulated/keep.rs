//! Simulated machines that outlive the process, as real machines do. Each machine is a file,
//! replaced as a whole after every change. A killed process leaves every machine either before or
//! after an act, never in the middle.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::machine::Machine;
use super::scheduler::Scheduler;

pub(super) const SCHEDULER: &str = "scheduler";

/// A directory of simulated machines.
#[derive(Debug)]
pub struct Keep {
    pub(super) dir: PathBuf,
    /// The last content of each file. A file is written only after a change, because machines are
    /// read more often than changed.
    pub(super) kept: HashMap<String, Vec<u8>>,
}

impl Keep {
    pub(super) fn machine(&mut self, machine: &Machine) {
        self.replace(&machine.name, encode(machine));
    }

    pub(super) fn scheduler(&mut self, scheduler: &Scheduler) {
        self.replace(SCHEDULER, encode(scheduler));
    }

    fn replace(&mut self, name: &str, bytes: Vec<u8>) {
        if self.kept.get(name) != Some(&bytes) {
            write(&self.dir, name, &bytes)
                .expect("a simulated machine without its disk cannot go on");
            self.kept.insert(name.to_owned(), bytes);
        }
    }
}

pub(super) fn encode(what: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(what).expect("maps have text keys, numbers are finite")
}

pub(super) fn read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let bytes = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_slice(&bytes).with_context(|| format!("what {} holds", path.display()))
}

/// Writes a file atomically with respect to the end of this process. A power cut can still lose the
/// write (no fsync); a rehearsal ends with its host anyway.
pub(super) fn write(dir: &Path, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let fresh = dir.join(name).with_extension("new");
    std::fs::write(&fresh, bytes)?;
    std::fs::rename(fresh, dir.join(name).with_extension("json"))
}
