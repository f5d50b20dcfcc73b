//! A machine that keeps state: power, what runs, disks with what is on them, and a log of everything that was done to it. The log is the
//! oracle: what it does not hold did not happen.

pub mod node_program; // muster-node on the machine
mod turn; // The way a job goes

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

use self::node_program::Spool;
use super::habits::{Habits, Took, What};

pub use self::turn::Turn;

/// Something that was done to a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// `power_on`, `reset`, `reboot`, `power_off`, `image`, `wipe`.
    pub act: Cow<'static, str>,
    pub job: JobId,
    pub permit: PermitId,
    pub epoch: i64,
    /// The claim whose marker was on the disk before.
    pub marked: Option<ClaimId>,
    /// On the machine's own clock.
    #[serde(default)]
    pub at: Timestamp,
}

/// What runs on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Running {
    Off,
    Live {
        nonce: String,
    },
    Installed,
    /// On, and nothing that answers.
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
    /// Somebody else installed it, and it runs.
    pub foreign: bool,
    /// Whether it has a disk without a serial.
    pub nameless_disk: bool,
    /// The switch ports that its interfaces hear.
    pub neighbours: Vec<Neighbour>,
    /// What its BMC says of firmware and BIOS; nothing where it says nothing.
    #[serde(default)]
    pub firmware: Option<BmcInventory>,
    pub running: Running,
    pub disks: BTreeMap<String, Disk>,
    pub log: Vec<Done>,
    /// How the next jobs go, by kind; those after them go as the habits say.
    #[serde(skip)]
    pub turns: BTreeMap<&'static str, VecDeque<Turn>>,
    /// How long it takes for what, and how often something goes wrong. Without them everything is instant and goes well.
    habits: Option<Habits>,
    /// What it took its time for, in order.
    pub took: Vec<Took>,
    /// When it will be done with that, in milliseconds since the epoch: it goes on whoever watches.
    busy_until_ms: i64,
    draws: u64,
    boots: u32,
    /// The stack was installed since the disk was written, and whether the machine was booted since.
    converged: bool,
    booted_converged: bool,
    spools: BTreeMap<JobId, Spool>,
    epoch: i64,
    /// What its BMC takes; any until somebody changes it.
    #[serde(default)]
    pub bmc_password: Option<String>,
}

impl Machine {
    /// A machine that is off and empty.
    pub fn new(name: String, mac: Mac) -> Self {
        let disks =
            ["DATA", "DECOY", "ROOT"].map(|kind| (format!("{kind}-{name}"), Disk::default()));
        Self {
            name,
            mac,
            memory_mib: 2048,
            foreign: false,
            nameless_disk: false,
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
            bmc_password: None,
        }
    }

    /// The same machine with habits.
    pub fn with(mut self, habits: Habits) -> Self {
        self.habits = Some(habits);
        self
    }

    /// The serial of the disk that images go onto.
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

    /// As somebody else left it: an OS on its disk that runs and knows nothing of Muster.
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

    /// Begins something that takes its time; what a job has begun goes on when another attempt of it asks for the same.
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

    /// How long it still needs for what it does.
    pub fn busy_for(&self) -> Duration {
        let left = self.busy_until_ms - Clock::System.now().as_millisecond();
        Duration::from_millis(u64::try_from(left).unwrap_or(0))
    }

    fn record(&mut self, done: Done) {
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

    /// Through its firmware into the live image.
    pub fn boot_live(&mut self, done: Done, nonce: &str) {
        self.begin(done.job, What::BootLive);
        self.record(done);
        self.boots += 1;
        self.running = Running::Live {
            nonce: nonce.to_owned(),
        };
        // The live image's spool is in memory.
        self.spools.clear();
    }

    /// Through its firmware, or by a reboot, into what is on its disk.
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
