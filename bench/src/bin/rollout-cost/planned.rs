//! A rollout by the planner. A tick is planned in each step, and its actions are applied as the server
//! applies them. While a node waits, a reservation keeps jobs beyond the drain lead away.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use muster_core::effects::Effect;
use muster_core::ids::{NodeId, ObjectId};
use muster_core::rollout::{
    Act, Amount, Budget, Change, Condition, Control, Fleet, Job, Jobs, Member, Node, Opening,
    RevisionNumber, RolloutPolicy, Service, Stage, Validation, Verdict, plan,
};

use super::cluster::{CHANGE_S, Cluster, Door, GATES_S, Machine, Outcome};

const TARGET: RevisionNumber = RevisionNumber(2);
/// The finding of a failed gate.
const FINDING: &str = "the gate fails";

/// A node without its jobs in the model.
struct Place {
    /// The end of the step under way.
    ends: Option<u64>,
    since: u64,
    stage: Stage,
    service: Service,
    not_before: Option<Timestamp>,
    id: NodeId,
}

/// The rollout's state in the model.
struct Model {
    policy: RolloutPolicy,
    most: Amount,
    control: Control,
    places: Vec<Place>,
    index: BTreeMap<NodeId, usize>,
}

/// Runs the rollout with `most` nodes out of service at a time, and the default policy otherwise. A
/// halted rollout runs until the nodes under way have ended.
///
/// # Errors
/// When the run takes more than a year, or the planner asks for an act outside of the model.
pub(crate) fn run(mut cluster: Cluster, most: usize) -> anyhow::Result<Outcome> {
    let mut model = Model::new(cluster.machines.len(), u32::try_from(most)?);
    while !model.settle(&mut cluster)? {
        anyhow::ensure!(cluster.advance(), "the rollout takes more than a year");
        for (place, machine) in model.places.iter_mut().zip(&cluster.machines) {
            place.observe(machine, cluster.now);
        }
    }
    let count = |has: fn(&Stage) -> bool| {
        let places = model.places.iter();
        places.filter(|place| has(&place.stage)).count()
    };
    let done = count(|stage| matches!(stage, Stage::Done { .. }));
    let broken = count(|stage| {
        let failed = Stage::Validating(Validation::GateFailed {
            finding: FINDING.to_owned(),
        });
        *stage == Stage::Failed || *stage == failed
    });
    Ok(cluster.outcome(done, broken))
}

impl Model {
    fn new(nodes: usize, most: u32) -> Self {
        let most = Amount::Count(most);
        let mut policy = RolloutPolicy::default();
        policy.budgets.max_changing = most;
        let places: Vec<Place> = (0..nodes).map(|_| Place::new()).collect();
        let pairs = places.iter().enumerate();
        Self {
            policy,
            most,
            control: Control::Running,
            index: pairs
                .map(|(position, place)| (place.id, position))
                .collect(),
            places,
        }
    }

    /// Plans and applies ticks until a tick has no action. Returns true at the end of the rollout.
    fn settle(&mut self, cluster: &mut Cluster) -> anyhow::Result<bool> {
        loop {
            let fleet = self.describe(cluster)?;
            let plan = plan(&self.policy, &fleet, at(cluster.now)?);
            match plan.verdict {
                Verdict::Done => return Ok(true),
                Verdict::Halt(reason) => self.control = Control::Halted(reason),
                Verdict::Running | Verdict::Stalled { .. } => {}
            }
            for action in &plan.actions {
                let position = self.index[&action.node];
                let machine = &mut cluster.machines[position];
                self.places[position].apply(&action.act, machine, cluster.now, &self.policy)?;
            }
            if plan.actions.is_empty() {
                let is_under_way = |place: &Place| {
                    matches!(place.stage, Stage::Changing(_) | Stage::Validating(_))
                };
                let is_halted = self.control != Control::Running;
                return Ok(is_halted && !self.places.iter().any(is_under_way));
            }
        }
    }

    fn describe(&self, cluster: &Cluster) -> anyhow::Result<Fleet> {
        let pairs = self.places.iter().zip(&cluster.machines);
        let nodes = pairs.map(|(place, machine)| place.describe(machine));
        let nodes: Vec<Node> = nodes.collect::<anyhow::Result<_>>()?;
        Ok(Fleet {
            target: TARGET,
            supersedes: None,
            control: self.control.clone(),
            promoted: false,
            planned: u32::try_from(nodes.len())?,
            since: at(0)?,
            window: Opening::Open { until: None },
            closed: Vec::new(),
            frozen_until: None,
            signals: Vec::new(),
            silent: None,
            failed_and_left: 0,
            budget: Budget {
                max_unavailable: self.most,
                domains: Vec::new(),
            },
            links: BTreeMap::new(),
            durations_s: Vec::new(),
            nodes,
            neighbours: Vec::new(),
        })
    }
}

impl Place {
    fn new() -> Self {
        Self {
            ends: None,
            since: 0,
            stage: Stage::NotBegun,
            service: Service::Serving,
            not_before: None,
            id: NodeId::new(),
        }
    }

    /// Ends the step under way.
    fn observe(&mut self, machine: &Machine, now: u64) {
        let is_over = self.ends.is_some_and(|ends| ends <= now);
        let next = match &self.stage {
            Stage::Changing(Change::Draining) if machine.job.is_none() => {
                Stage::Changing(Change::Drained)
            }
            Stage::Changing(Change::Working) if is_over => Stage::Changing(Change::Arrived),
            Stage::Validating(Validation::Gating) if is_over => {
                Stage::Validating(match machine.is_faulty {
                    true => Validation::GateFailed {
                        finding: FINDING.to_owned(),
                    },
                    false => Validation::Passed,
                })
            }
            _ => return,
        };
        self.stage = next;
        self.since = now;
        self.ends = None;
    }

    fn apply(
        &mut self,
        act: &Act,
        machine: &mut Machine,
        now: u64,
        policy: &RolloutPolicy,
    ) -> anyhow::Result<()> {
        self.since = now;
        match act {
            Act::Wait => {
                machine.door = Door::Short(u64::from(policy.drain_lead_s));
                self.stage = Stage::Waiting;
            }
            Act::Close { requeue: false, .. } => {
                machine.door = Door::Closed;
                self.service = Service::Taken;
                self.stage = Stage::Changing(match machine.job {
                    Some(_) => Change::Draining,
                    None => Change::Drained,
                });
            }
            Act::Change { .. } => {
                self.ends = Some(now + CHANGE_S);
                self.stage = Stage::Changing(Change::Working);
            }
            Act::Validate => {
                self.ends = Some(now + GATES_S);
                self.stage = Stage::Validating(Validation::Gating);
            }
            Act::Readmit => {
                machine.door = Door::Open;
                self.service = Service::Serving;
                self.stage = Stage::Validating(Validation::Readmitting);
            }
            Act::GiveBack { not_before } => {
                machine.door = Door::Open;
                self.service = Service::Serving;
                self.not_before = Some(*not_before);
                self.stage = Stage::NotBegun;
            }
            Act::Finish { changed } => self.stage = Stage::Done { changed: *changed },
            Act::Fail { give_back: false } => self.stage = Stage::Failed,
            Act::Close { requeue: true, .. } | Act::Fail { give_back: true } | Act::Skip => {
                anyhow::bail!("an act outside of the model: {}", act.code())
            }
        }
        Ok(())
    }

    fn describe(&self, machine: &Machine) -> anyhow::Result<Node> {
        let job = machine.job.map(|job| {
            anyhow::Ok(Job {
                ends: Some(at(job.latest)?),
                id: "1".to_owned(),
                holder: "alice".to_owned(),
                requeues: true,
            })
        });
        let is_done = matches!(self.stage, Stage::Done { .. });
        Ok(Node {
            member: Member {
                node: self.id,
                in_pool: true,
                domains: BTreeSet::new(),
                service: self.service,
                others_drain: None,
                written_off_until: None,
            },
            name: self.id.to_string(),
            site: ObjectId::new(),
            rack: None,
            labels: BTreeMap::new(),
            stage: self.stage.clone(),
            since: at(self.since)?,
            runs: Some(match is_done {
                true => TARGET,
                false => RevisionNumber(1),
            }),
            going_to: None,
            effect: match is_done {
                true => Effect::None,
                false => Effect::Reboot,
            },
            transfer_bytes: 0,
            jobs: Jobs::Known(job.into_iter().collect::<anyhow::Result<_>>()?),
            wrong: Vec::new(),
            failed_before: self.stage == Stage::Failed,
            requeue_agreed: false,
            gpus: None,
            idle_since: None,
            announced_for: None,
            notified: BTreeSet::new(),
            condition: Condition {
                deferred_until: self.not_before,
                ..Condition::default()
            },
        })
    }
}

fn at(seconds: u64) -> anyhow::Result<Timestamp> {
    Ok(Timestamp::UNIX_EPOCH + SignedDuration::from_secs(i64::try_from(seconds)?))
}
