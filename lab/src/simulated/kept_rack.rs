//! A whole simulated rack, written to and read from a directory of machines.

use std::collections::HashMap;
use std::path::Path;

use anyhow::Context as _;

use super::keep::{Keep, SCHEDULER, encode, read, write};
use super::machine::Machine;
use super::rack::Rack;
use super::scheduler::Scheduler;

impl Keep {
    /// Writes a rack into an empty directory, a file for each machine and a file for the scheduler.
    ///
    /// # Errors
    /// Fails if the directory cannot be made or written.
    pub fn create(dir: &Path, rack: &Rack) -> anyhow::Result<()> {
        std::fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
        for machine in rack.machines.values() {
            write(dir, &machine.name, &encode(machine))
                .with_context(|| format!("keep {}", machine.name))?;
        }
        write(dir, SCHEDULER, &encode(&rack.scheduler)).context("keep the scheduler")
    }

    /// Reads the rack in the state of the last write; later changes are written to the directory
    /// too.
    ///
    /// # Errors
    /// Fails if the directory cannot be read or a file is malformed.
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
}
