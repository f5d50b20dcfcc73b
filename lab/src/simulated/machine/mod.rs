//! A simulated machine with state: power, running system, disks with their content, and a log of
//! every act on the machine. The log is the oracle of the tests: an act without an entry did not
//! happen.

mod jobs; // Jobs of users
pub mod node_program; // muster-node on the machine
mod turn; // Outcomes of jobs

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use muster_core::clock::Clock;
use muster_core::facts::{Cpu, Disk as DiskFacts, DiskTransport, Facts, Memory, Neighbour, Nic};
use muster_core::firmware::BmcInventory;
use muster_core::ids::{ClaimId, JobId, PermitId};
use muster_core::values::Mac;
use muster_core::wire::node::Marker;
use serde::{Deserialize, Serialize};

use self::jobs::Service;
use self::node_program::Spool;
use super::habits::{Habits, Took, What};

pub use self::jobs::Served;
pub use self::turn::Turn;

/// An act on a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Name of the act: `power_on`, `reset`, `reboot`, `power_off`, `image` or `wipe`.
    pub act: Cow<'static, str>,
    pub job: JobId,
    pub permit: PermitId,
    pub epoch: i64,
    /// The claim in the disk's marker before the act; `None` for a disk without a marker.
    pub marked: Option<ClaimId>,
    /// Time by the machine's own clock.
    #[serde(default)]
    pub at: Timestamp,
}

/// The system running on the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Running {
    Off,
    Live {
        nonce: String,
    },
    Installed,
    /// The machine is on, but no system answers.
    Nothing,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Disk {
    pub image: bool,
    pub marker: Option<Marker>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Machine {
    pub name: String,
    pub mac: Mac,
    pub memory_mib: u64,
    /// Whether the machine runs a system installed without Muster.
    pub foreign: bool,
    /// Whether the machine has a disk without a serial.
    pub nameless_disk: bool,
    /// Factor on the values measured by gates: at 0.9 the machine is slower by a tenth.
    #[serde(default = "full_speed")]
    pub speed: f64,
    /// The switch ports seen by the interfaces, as by LLDP.
    pub neighbours: Vec<Neighbour>,
    /// Firmware and BIOS as reported by the BMC; `None` if the BMC reports neither.
    #[serde(default)]
    pub firmware: Option<BmcInventory>,
    pub running: Running,
    pub disks: BTreeMap<String, Disk>,
    pub log: Vec<Done>,
    /// Planned outcomes of the next jobs, by kind of job. Later jobs follow `habits`.
    #[serde(skip)]
    pub turns: BTreeMap<&'static str, VecDeque<Turn>>,
    /// Durations and failure rates; `None` means that every job is instant and succeeds.
    habits: Option<Habits>,
    /// The duration of each phase so far, in order.
    pub took: Vec<Took>,
    /// End of the current phase, in milliseconds since the epoch. The phase continues even if no
    /// agent watches.
    busy_until_ms: i64,
    draws: u64,
    boots: u32,
    /// Whether the stack was installed since the disk was written.
    converged: bool,
    /// Whether the machine was booted after the stack was installed.
    booted_converged: bool,
    spools: BTreeMap<JobId, Spool>,
    epoch: i64,
    #[serde(default)]
    service: Service,
    /// The password accepted by the BMC; `None` accepts any password, until the first change.
    #[serde(default)]
    pub bmc_password: Option<String>,
}

fn full_speed() -> f64 {
    1.0
}

impl Machine {
    /// Builds a machine that is off and has empty disks.
    pub fn new(name: String, mac: Mac) -> Self {
        let disks =
            ["DATA", "DECOY", "ROOT"].map(|kind| (format!("{kind}-{name}"), Disk::default()));
        Self {
            name,
            mac,
            memory_mib: 2048,
            foreign: false,
            nameless_disk: false,
            speed: full_speed(),
            neighbours: Vec::new(),
            firmware: None,
            running: Running::Off,
            disks: disks.into(),
            log: Vec::new(),
            turns: BTreeMap::new(),
            habits: None,
            took: Vec::new(),
            busy_until_ms: 0,
            draws: 0,
            boots: 0,
            converged: false,
            booted_converged: false,
            spools: BTreeMap::new(),
            epoch: 0,
            service: Service::default(),
            bmc_password: None,
        }
    }

    /// Gives the machine habits: durations and failure rates.
    pub fn with(mut self, habits: Habits) -> Self {
        self.habits = Some(habits);
        self
    }

    /// Returns the serial of the disk for images.
    pub fn root(&self) -> String {
        format!("ROOT-{}", self.name)
    }

    pub fn boot_id(&self) -> String {
        format!("boot-{}-{}", self.name, self.boots)
    }

    pub fn host_key(&self) -> String {
        format!("ssh-ed25519 AAAA{}", self.boots)
    }

    pub fn fingerprint(&self) -> String {
        format!("SHA256:{}", "k".repeat(43))
    }

    /// Installs a running operating system without Muster, as on a machine taken over from another
    /// owner.
    pub fn install_by_somebody_else(&mut self) {
        self.foreign = true;
        self.boots += 1;
        self.running = Running::Installed;
        let root = self.root();
        self.disks.insert(
            root,
            Disk {
                image: true,
                marker: None,
            },
        );
    }

    pub fn empty(&self) -> bool {
        self.disks
            .values()
            .all(|disk| !disk.image && disk.marker.is_none())
    }

    pub fn next_turn(&mut self, kind: &str) -> Option<Turn> {
        let told = self.turns.get_mut(kind).and_then(VecDeque::pop_front);
        told.or_else(|| {
            self.draws += 1;
            self.habits?.turn(&self.name, self.draws, kind)
        })
    }

    /// Begins a phase. Another attempt of the same job continues the phase, if the phase is still
    /// in progress.
    pub fn begin(&mut self, job: JobId, what: What) {
        let Some(habits) = self.habits else { return };
        let begun = self
            .took
            .last()
            .is_some_and(|last| (last.job, last.what) == (job, what));
        if begun && !self.busy_for().is_zero() {
            return;
        }
        self.draws += 1;
        let ms = habits.latency_ms(&self.name, self.draws, what);
        self.took.push(Took { job, what, ms });
        self.busy_until_ms = Clock::System.now().as_millisecond() + ms.round() as i64;
    }

    /// Returns the remaining time of the current phase.
    pub fn busy_for(&self) -> Duration {
        let left = self.busy_until_ms - Clock::System.now().as_millisecond();
        Duration::from_millis(u64::try_from(left).unwrap_or(0))
    }

    fn record(&mut self, done: Done) {
        self.interrupt(&done.act);
        self.log.push(Done {
            at: Clock::System.now(),
            ..done
        });
    }

    pub fn facts(&self) -> Facts {
        let disk = |(at, serial): (usize, &String)| DiskFacts {
            name: format!("nvme{at}n1"),
            serial: Some(serial.clone()),
            transport: DiskTransport::Nvme,
            size_bytes: 8 << 30,
            ..DiskFacts::default()
        };
        let nameless = self.nameless_disk.then(|| DiskFacts {
            name: "sdz".into(),
            ..DiskFacts::default()
        });
        let nic = Nic {
            name: "eth0".into(),
            mac: self.mac,
            driver: None,
            pci_address: None,
            speed_mbps: None,
            link_up: true,
        };
        Facts {
            boot_id: self.boot_id(),
            cpus: vec![Cpu {
                socket: 0,
                model: "simulated".into(),
                cores: 2,
                threads: 2,
            }],
            memory: Memory {
                total_bytes: self.memory_mib << 20,
                ..Memory::default()
            },
            disks: self
                .disks
                .keys()
                .enumerate()
                .map(disk)
                .chain(nameless)
                .collect(),
            nics: vec![nic],
            neighbours: self.neighbours.clone(),
            ..Facts::default()
        }
    }

    /// Boots the machine through its firmware into the live image.
    pub fn boot_live(&mut self, done: Done, nonce: &str) {
        self.begin(done.job, What::BootLive);
        self.record(done);
        self.boots += 1;
        self.running = Running::Live {
            nonce: nonce.to_owned(),
        };
        // The spool of the live image is in memory, so a boot loses the spool.
        self.spools.clear();
    }

    /// Boots the machine through its firmware, or by a reboot, from its disk. Without an image on
    /// the disk, no system answers.
    pub fn boot_disk(&mut self, done: Done) {
        self.begin(done.job, What::BootDisk);
        self.record(done);
        self.boots += 1;
        self.running = if self.disks[&self.root()].image {
            Running::Installed
        } else {
            Running::Nothing
        };
        self.booted_converged = self.converged;
    }

    pub fn power_off(&mut self, done: Done) {
        self.begin(done.job, What::PowerOff);
        self.record(done);
        self.running = Running::Off;
    }
}
