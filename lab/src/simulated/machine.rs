//! A machine that keeps state: power, what runs, disks with what is on them, and a log of everything that was done to it. The log is the
//! oracle: what it does not hold did not happen.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use muster_core::clock::Clock;
use muster_core::facts::{Cpu, Disk as DiskFacts, DiskTransport, Facts, Memory, Neighbour, Nic};
use muster_core::firmware::BmcInventory;
use muster_core::gates::{Evidence, Gate, GateResult, Verdict, fingerprint};
use muster_core::ids::{ClaimId, JobId, OperationId, PermitId};
use muster_core::permits::{PermitKind, verify};
use muster_core::stacks::{ConvergePlan, ConvergeReport, ItemOutcome, ItemReport};
use muster_core::values::Mac;
use muster_core::wire::PROTOCOL;
use muster_core::wire::node::{
    Answer, Challenge, Failure, GatePlan, ImageWritten, Marker, Plan, WipeMethod, WipedDisk, Work,
    WorkResult,
};
use serde::{Deserialize, Serialize};

use super::habits::{Habits, Took, What};

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

/// A way in which the next job of a kind goes.
#[derive(Clone, Debug)]
pub enum Turn {
    Fails(Failure),
    /// Every gate of the run ends so.
    Gates(Verdict),
}

/// What muster-node keeps of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Spool {
    plan: Plan,
    challenge: Challenge,
    result: Option<WorkResult>,
}

/// What muster-node has to say about a job.
#[derive(Clone, Debug)]
pub enum Heard {
    Challenge(Challenge),
    Result(WorkResult),
    /// It has worked on a later assignment or attempt.
    Stale,
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

    /// `muster-node run`: starts a job, or finds it. What writes disks asks for its permit first.
    pub fn run(&mut self, plan: &Plan) -> Heard {
        let known = self.spools.get(&plan.job);
        if plan.epoch < self.epoch || known.is_some_and(|known| plan.attempt < known.plan.attempt) {
            return Heard::Stale;
        }
        // What ended well is not done again: the real one answers with what it has.
        let ended = self
            .spools
            .get(&plan.job)
            .and_then(|spool| spool.result.clone());
        if let Some(result) = ended.filter(|result| !matches!(result, WorkResult::Failed(_))) {
            return Heard::Result(result);
        }
        if let Some(failure) = self.marked(plan) {
            return Heard::Result(WorkResult::Failed(failure));
        }
        let known = self.spools.get(&plan.job);
        self.epoch = plan.epoch;
        if known.is_none_or(|known| known.plan.work != plan.work) {
            let spool = Spool {
                plan: plan.clone(),
                challenge: self.challenge(plan),
                result: None,
            };
            self.spools.insert(plan.job, spool);
            match &plan.work {
                Work::Converge(_) if self.converged => self.begin(plan.job, What::Recheck),
                Work::Converge(_) => self.begin(plan.job, What::Converge),
                Work::Gate(_) => self.begin(plan.job, What::Gates),
                // They begin with their permit.
                Work::WriteImage(_) | Work::Wipe(_) => {}
            }
        }
        let result = match &plan.work {
            Work::Converge(stack) => Some(WorkResult::Converged(self.converge(stack))),
            Work::Gate(gates) => Some(self.gates(gates)),
            Work::WriteImage(_) | Work::Wipe(_) => None,
        };
        let spool = self.spools.get_mut(&plan.job).expect("made above");
        spool.plan.attempt = plan.attempt;
        if result.is_some() {
            spool.result = result;
        }
        match &spool.result {
            Some(result) => Heard::Result(result.clone()),
            None => Heard::Challenge(spool.challenge.clone()),
        }
    }

    /// Why a disk is not this plan's to write: it is marked with another claim, or with a later epoch.
    fn marked(&self, plan: &Plan) -> Option<Failure> {
        let (claim, serials) = match &plan.work {
            Work::WriteImage(image) => (Some(image.claim), vec![image.disk_serial.clone()]),
            Work::Wipe(wipe) => (wipe.claim, wipe.disk_serials.clone()),
            Work::Converge(_) | Work::Gate(_) => return None,
        };
        let finished = self
            .spools
            .get(&plan.job)
            .is_some_and(|spool| spool.result.is_some());
        let marks = serials
            .iter()
            .filter_map(|serial| self.disks.get(serial)?.marker.as_ref());
        let foreign = marks
            .filter(|_| !finished)
            .find(|mark| Some(mark.claim) != claim || mark.epoch > plan.epoch)?;
        let message = format!(
            "a disk is in use by claim {} since epoch {}",
            foreign.claim, foreign.epoch
        );
        Some(Failure {
            code: "marked_in_use".into(),
            message,
            retryable: false,
        })
    }

    /// `muster-node answer`: the server's word on the challenge. `trusted` is the key of the site's live image.
    pub fn answer(&mut self, job: JobId, answer: &Answer, trusted: &str) {
        let Some(spool) = self
            .spools
            .get(&job)
            .filter(|spool| spool.result.is_none())
            .cloned()
        else {
            return;
        };
        let (kind, permit) = match &spool.plan.work {
            Work::WriteImage(plan) => (PermitKind::Image, plan.permit),
            Work::Wipe(plan) => (PermitKind::Wipe, plan.permit),
            Work::Converge(_) | Work::Gate(_) => return,
        };
        let signed = match answer {
            Answer::Granted { signature } => verify(trusted, kind, &spool.challenge, signature)
                .map_err(|error| error.to_string()),
            Answer::Refused { reason } => Err(reason.clone()),
        };
        let result = match signed {
            Err(message) => WorkResult::Failed(Failure {
                code: "permit_refused".into(),
                message,
                retryable: false,
            }),
            Ok(()) => self.write(&spool.plan, permit),
        };
        self.spools.get_mut(&job).expect("found above").result = Some(result);
    }

    /// The disks are written: once per permit that was granted.
    fn write(&mut self, plan: &Plan, permit: PermitId) -> WorkResult {
        let root = self.root();
        let marked = self.disks[&root].marker.as_ref().map(|marker| marker.claim);
        let (at, act) = (Timestamp::default(), "image".into());
        let mut done = Done {
            act,
            job: plan.job,
            permit,
            epoch: plan.epoch,
            marked,
            at,
        };
        let result = match &plan.work {
            Work::WriteImage(image) => {
                self.begin(plan.job, What::Image);
                let marker = Marker {
                    protocol: PROTOCOL,
                    node: plan.node,
                    claim: image.claim,
                    epoch: plan.epoch,
                    image: image.digest,
                };
                self.disks.insert(
                    image.disk_serial.clone(),
                    Disk {
                        image: true,
                        marker: Some(marker),
                    },
                );
                (self.converged, self.booted_converged) = (false, false);
                WorkResult::ImageWritten(ImageWritten {
                    disk_serial: image.disk_serial.clone(),
                    bytes: image.raw_size,
                    raw_digest: image.raw_digest,
                    host_key: self.host_key(),
                    nvram_entry: None,
                })
            }
            Work::Wipe(wipe) => {
                self.begin(plan.job, What::Wipe);
                done.act = "wipe".into();
                for serial in &wipe.disk_serials {
                    self.disks.insert(serial.clone(), Disk::default());
                }
                let wiped = |serial: &String| WipedDisk {
                    serial: serial.clone(),
                    method: WipeMethod::Discard,
                    bytes: 8 << 30,
                    verified_blocks: 64,
                };
                WorkResult::Wiped {
                    disks: wipe.disk_serials.iter().map(wiped).collect(),
                }
            }
            Work::Converge(_) | Work::Gate(_) => unreachable!("asks for no permit"),
        };
        self.record(done);
        result
    }

    fn challenge(&self, plan: &Plan) -> Challenge {
        let (permit, operation, mut disk_serials) = match &plan.work {
            Work::WriteImage(image) => (
                image.permit,
                image.operation,
                vec![image.disk_serial.clone()],
            ),
            Work::Wipe(wipe) => (wipe.permit, wipe.operation, wipe.disk_serials.clone()),
            Work::Converge(_) | Work::Gate(_) => (PermitId::new(), OperationId::new(), Vec::new()),
        };
        disk_serials.sort();
        Challenge {
            protocol: PROTOCOL,
            permit,
            operation,
            job: plan.job,
            attempt: plan.attempt,
            node: plan.node,
            epoch: plan.epoch,
            boot_id: self.boot_id(),
            chassis_serial: None,
            disk_serials,
            nonce: format!("{:064x}", self.boots),
        }
    }

    fn converge(&mut self, plan: &ConvergePlan) -> ConvergeReport {
        if plan.dry_run {
            let item = "package chrony".to_owned();
            let items = vec![ItemReport {
                item,
                outcome: ItemOutcome::Differs,
                before: None,
                after: None,
            }];
            return ConvergeReport {
                lock: plan.lock,
                items,
                reboot_for: Vec::new(),
            };
        }
        let outcome = if self.converged {
            ItemOutcome::Unchanged
        } else {
            ItemOutcome::Changed
        };
        self.converged = true;
        let root = self.root();
        self.disks
            .get_mut(&root)
            .expect("every machine has one")
            .marker = Some(plan.marker.clone());
        ConvergeReport {
            lock: plan.lock,
            items: vec![ItemReport {
                item: "kernel argument nouveau.modeset=0".into(),
                outcome,
                before: None,
                after: None,
            }],
            reboot_for: if self.booted_converged {
                Vec::new()
            } else {
                vec!["kernel argument nouveau.modeset=0".into()]
            },
        }
    }

    fn gates(&mut self, plan: &GatePlan) -> WorkResult {
        let verdict = match self.next_turn("gates") {
            Some(Turn::Gates(verdict)) => verdict,
            Some(Turn::Fails(failure)) => return WorkResult::Failed(failure),
            None => Verdict::Pass,
        };
        let wanted = plan
            .suite
            .gates
            .iter()
            .filter(|gate| plan.only.is_empty() || plan.only.contains(&gate.id));
        let results = wanted.map(|gate| result(gate, verdict)).collect();
        WorkResult::Gated {
            results,
            fingerprint: fingerprint(&self.facts()),
        }
    }
}

pub(super) fn result(gate: &Gate, verdict: Verdict) -> GateResult {
    GateResult {
        gate: gate.id.clone(),
        title: gate.title.clone(),
        stage: gate.stage,
        required: gate.required,
        shadow: gate.shadow,
        verdict,
        reason: format!("it was made to end as {}", verdict.as_str()),
        measured: Vec::new(),
        started_at: Timestamp::default(),
        duration_ms: 1,
        former: Vec::new(),
        finding: String::new(),
        waived: None,
        evidence: Evidence::default(),
    }
}
