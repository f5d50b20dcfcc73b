//! Machines that outlive their process, as real ones do: each is a file that is replaced whole whenever something happened to it. A process
//! that is killed leaves every machine before or after an act, never within one.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::machine::Machine;
use super::rack::{Rack, Scheduler};

const SCHEDULER: &str = "scheduler";

/// A directory of machines.
#[derive(Debug)]
pub struct Keep {
    dir: PathBuf,
    /// What each file holds: machines are looked at more often than they change.
    kept: HashMap<String, Vec<u8>>,
}

impl Keep {
    /// Writes a rack into an empty directory.
    ///
    /// # Errors
    /// When the directory cannot be made or written.
    pub fn create(dir: &Path, rack: &Rack) -> anyhow::Result<()> {
        std::fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
        for machine in rack.machines.values() {
            write(dir, &machine.name, &encode(machine))
                .with_context(|| format!("keep {}", machine.name))?;
        }
        write(dir, SCHEDULER, &encode(&rack.scheduler)).context("keep the scheduler")
    }

    /// The rack as it was left; what happens to it from here on is kept too.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn open(dir: &Path) -> anyhow::Result<Rack> {
        let mut machines: Vec<Machine> = Vec::new();
        for entry in std::fs::read_dir(dir).with_context(|| format!("read {}", dir.display()))? {
            let path = entry?.path();
            let name = path
                .file_stem()
                .and_then(|stem| stem.to_str())
                .unwrap_or_default();
            if path
                .extension()
                .is_some_and(|extension| extension == "json")
                && name != SCHEDULER
            {
                machines.push(read(&path)?);
            }
        }
        let scheduler: Scheduler = read(&dir.join(SCHEDULER).with_extension("json"))?;
        let keep = Self {
            dir: dir.to_path_buf(),
            kept: HashMap::new(),
        };
        Ok(Rack {
            scheduler,
            keep: Some(keep),
            ..Rack::of(machines)
        })
    }

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

fn encode(what: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(what).expect("maps have text keys, numbers are finite")
}

fn read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let bytes = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_slice(&bytes).with_context(|| format!("what {} holds", path.display()))
}

/// Whole or not at all, for whoever looks after this process is gone. Not for whoever looks after a power cut: a rehearsal ends with its host.
fn write(dir: &Path, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let fresh = dir.join(name).with_extension("new");
    std::fs::write(&fresh, bytes)?;
    std::fs::rename(fresh, dir.join(name).with_extension("json"))
}
