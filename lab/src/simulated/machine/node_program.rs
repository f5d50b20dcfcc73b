//! muster-node on a simulated machine: jobs in a spool, permits by challenge, and writes to disks.

use jiff::Timestamp;
use muster_core::gates::{
    Criterion, Evidence, Gate, GateResult, Limit, Measured, Op, Verdict, fingerprint,
};
use muster_core::ids::{JobId, OperationId, PermitId};
use muster_core::permits::{PermitKind, verify};
use muster_core::stacks::{ConvergePlan, ConvergeReport, ItemOutcome, ItemReport};
use muster_core::wire::PROTOCOL;
use muster_core::wire::node::{
    Answer, Challenge, Failure, GatePlan, ImageWritten, Marker, Plan, WipeMethod, WipePlan,
    WipedDisk, Work, WorkResult, WriteImage,
};
use serde::{Deserialize, Serialize};

use super::super::habits::What;
use super::{Disk, Done, Machine, Turn};

/// A job in muster-node's spool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Spool {
    plan: Plan,
    challenge: Challenge,
    result: Option<WorkResult>,
}

/// The answer of muster-node about a job.
#[derive(Clone, Debug)]
pub enum Heard {
    Challenge(Challenge),
    Result(WorkResult),
    /// muster-node already worked on a later assignment or attempt.
    Stale,
}

impl Machine {
    /// `muster-node run`: starts a job, or finds the job in the spool. A job with writes to disks
    /// first asks for its permit.
    pub fn run(&mut self, plan: &Plan) -> Heard {
        let known = self.spools.get(&plan.job);
        if plan.epoch < self.epoch || known.is_some_and(|known| plan.attempt < known.plan.attempt) {
            return Heard::Stale;
        }
        // A successful job is not repeated: the real muster-node also answers with the kept result.
        let ended = self
            .spools
            .get(&plan.job)
            .and_then(|spool| spool.result.clone());
        if let Some(result) = ended.filter(|result| !matches!(result, WorkResult::Failed(_))) {
            return Heard::Result(result);
        }
        if let Some(failure) = self.check_markers(plan) {
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
                // These jobs begin with their permit.
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

    /// Returns a failure if a disk has the marker of another claim or of a later epoch. An image asks
    /// for every disk, and a wipe for the disks of the plan.
    fn check_markers(&self, plan: &Plan) -> Option<Failure> {
        let (claim, serials) = match &plan.work {
            Work::WriteImage(image) => (Some(image.claim), self.disks.keys().cloned().collect()),
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

    /// `muster-node answer`: handles the server's answer to the challenge. `trusted` is the key of
    /// the site's live image.
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

    /// Writes the disks; called once for each granted permit.
    fn write(&mut self, plan: &Plan, permit: PermitId) -> WorkResult {
        let root = self.root();
        let marked = self.disks[&root].marker.as_ref().map(|marker| marker.claim);
        let (act, result) = match &plan.work {
            Work::WriteImage(image) => ("image", self.write_image(plan, image)),
            Work::Wipe(wipe) => ("wipe", self.wipe(plan, wipe)),
            Work::Converge(_) | Work::Gate(_) => unreachable!("asks for no permit"),
        };
        self.record(Done {
            act: act.into(),
            job: plan.job,
            permit,
            epoch: plan.epoch,
            marked,
            at: Timestamp::default(),
        });
        result
    }

    fn write_image(&mut self, plan: &Plan, image: &WriteImage) -> WorkResult {
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

    fn wipe(&mut self, plan: &Plan, wipe: &WipePlan) -> WorkResult {
        self.begin(plan.job, What::Wipe);
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
        let measure = |gate: &Gate| GateResult {
            measured: self.measure(gate),
            ..make_result(gate, verdict)
        };
        let results = wanted.map(measure).collect();
        WorkResult::Gated {
            results,
            fingerprint: fingerprint(&self.facts()),
        }
    }
}

impl Machine {
    /// Measures each metric with a lower or an upper limit at twice the needed quality.
    fn measure(&self, gate: &Gate) -> Vec<Measured> {
        let measure = |criterion: &Criterion| {
            let (Limit::Number(limit), quality) = (&criterion.limit, 2.0 * self.speed) else {
                return None;
            };
            let value = match criterion.op {
                Op::AtLeast => limit * quality,
                Op::AtMost => limit / quality,
                Op::Equal | Op::NotEqual => return None,
            };
            Some(Measured {
                metric: criterion.metric.clone(),
                entity: criterion.of.clone().unwrap_or_default(),
                value: Limit::Number(value),
                op: criterion.op,
                limit: criterion.limit.clone(),
                unit: criterion.unit.clone(),
                verdict: Verdict::Pass,
            })
        };
        gate.criteria.iter().filter_map(measure).collect()
    }
}

pub(in crate::simulated) fn make_result(gate: &Gate, verdict: Verdict) -> GateResult {
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
