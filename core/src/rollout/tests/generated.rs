//! Generated fleets over many ticks: overlapping domains, losses, failures, movers, budgets changed
//! in flight, halts, supersedes, and windows across a change of summer time.

use proptest::prelude::*;

use super::world::{Dice, apply, check_plan, unit_of};
use super::*;

const DOMAINS: [&str; 4] = ["rack:r1", "rack:r2", "rail:a", "rail:b"];
const UNITS: [&str; 3] = ["nvl:1", "nvl:2", "nvl:3"];
/// Ticks of a disturbed world, and of a calm world until every node has ended.
const DISTURBED: usize = 40;
const CALM: usize = 400;

/// A pool with its rollouts over the same nodes. The last rollout is in force.
#[derive(Debug)]
pub(super) struct World {
    pub(super) policy: RolloutPolicy,
    /// The facts of the machines, shared by the rollouts.
    machines: Vec<Node>,
    pub(super) rollouts: Vec<Fleet>,
    budget: Budget,
    neighbours: Vec<Member>,
    has_units: bool,
    pub(super) calendar: Calendar,
    pub(super) now: Timestamp,
    dice: Dice,
    /// All acts succeed, without a block.
    is_calm: bool,
}

impl World {
    pub(super) fn new(count: usize, seed: u64) -> Self {
        let mut dice = Dice(seed);
        // A change of summer time in Zurich lies within the run.
        let first = ["2026-03-28T12:00:00Z", "2026-10-24T12:00:00Z"][dice.roll(2)];
        let nightly = MaintenanceWindow {
            time_zone: "Europe/Zurich".to_owned(),
            weekly: vec![Weekly {
                days: Day::ALL.to_vec(),
                start: "22:30".parse().unwrap(),
                length_min: 360,
            }],
            freezes: Vec::new(),
        };
        let mut world = Self {
            policy: some_policy(&mut dice),
            machines: (0..count).map(node).collect(),
            rollouts: vec![fleet(count)],
            budget: Budget {
                max_unavailable: Amount::Count(1),
                domains: DOMAINS
                    .iter()
                    .map(|id| domain(id, 1))
                    .chain(UNITS.iter().map(|id| whole(id, 1)))
                    .collect(),
            },
            neighbours: (100..100 + dice.roll(4)).map(member).collect(),
            has_units: dice.hits(2),
            calendar: if dice.hits(3) {
                nightly.into()
            } else {
                Calendar::default()
            },
            now: first.parse().unwrap(),
            dice,
            is_calm: false,
        };
        world.change_budgets();
        for at in 0..count {
            world.move_node(at, at / 3);
            let dice = &mut world.dice;
            let machine = &mut world.machines[at];
            if dice.hits(8) {
                machine.effect = [Effect::None, Effect::InPlace, Effect::Reinstall][dice.roll(3)];
            }
            if dice.hits(10) {
                machine.member.service = Service::Joining;
            }
        }
        world
    }

    fn change_budgets(&mut self) {
        let dice = &mut self.dice;
        let max = Amount::Count(1 + dice.roll(4) as u32);
        let percent = Amount::Percent(1 + dice.roll(40) as u8);
        self.budget.max_unavailable = if dice.hits(2) { max } else { percent };
        for domain in &mut self.budget.domains {
            domain.max_unavailable = Amount::Count(1 + dice.roll(4) as u32);
        }
        self.policy.budgets.max_changing = Amount::Count(1 + dice.roll(4) as u32);
    }

    fn move_node(&mut self, at: usize, unit: usize) {
        let dice = &mut self.dice;
        let chosen = DOMAINS.iter().filter(|_| dice.hits(2));
        let mut domains: BTreeSet<String> = chosen.map(|id| (*id).to_owned()).collect();
        if let Some(unit) = UNITS.get(unit).filter(|_| self.has_units) {
            domains.insert((*unit).to_owned());
        }
        self.machines[at].member.domains = domains;
    }

    /// Every rollout plans and acts, then the world goes on.
    pub(super) fn tick(&mut self) {
        for at in 0..self.rollouts.len() {
            self.load(at);
            let fleet = &mut self.rollouts[at];
            let plan = plan(&self.policy, fleet, self.now);
            check_plan(&self.policy, fleet, &plan, self.now);
            // The executor may crash after any action.
            let most = if self.is_calm {
                usize::MAX
            } else {
                self.dice.roll(12)
            };
            apply(fleet, &plan, self.now, most);
            if let Verdict::Halt(reason) = plan.verdict {
                fleet.control = Control::Halted(reason);
            }
            for node in &mut fleet.nodes {
                go_on(node, fleet.target, self.is_calm, &mut self.dice);
            }
            self.store(at);
        }
        match self.is_calm {
            true => {
                self.repair_nodes();
                self.free_units();
            }
            false => {
                self.disturb_machines();
                self.disturb_rollout();
            }
        }
        self.now += minutes(1 + self.dice.roll(45) as i64);
        for machine in &mut self.machines {
            if let Jobs::Known(jobs) = &mut machine.jobs {
                jobs.retain(|job| job.ends.is_none_or(|ends| ends > self.now));
            }
        }
    }

    /// Copies the facts of the machines into a rollout. A node started by another rollout is busy.
    pub(super) fn load(&mut self, at: usize) {
        let is_started = |fleet: &Fleet, node: usize| {
            matches!(
                fleet.nodes[node].stage.mark(),
                Mark::Changing | Mark::Validating
            )
        };
        let busy: Vec<bool> = (0..self.machines.len())
            .map(|node| {
                self.rollouts
                    .iter()
                    .enumerate()
                    .any(|(other, fleet)| other != at && is_started(fleet, node))
            })
            .collect();
        let fleet = &mut self.rollouts[at];
        fleet.window = self.calendar.open_at(self.now);
        fleet.closed = self
            .calendar
            .list_closed(self.now - minutes(24 * 60), self.now);
        fleet.frozen_until = self.calendar.frozen_at(self.now);
        fleet.budget = self.budget.clone();
        fleet.neighbours = self.neighbours.clone();
        for ((node, machine), busy) in fleet.nodes.iter_mut().zip(&self.machines).zip(busy) {
            *node = Node {
                stage: node.stage.clone(),
                since: node.since,
                wrong: node.wrong.clone(),
                failed_before: node.failed_before,
                ..machine.clone()
            };
            node.condition.busy = busy.then(|| "another rollout".to_owned());
            if node.runs == Some(fleet.target) {
                node.effect = Effect::None;
            }
        }
    }

    /// Copies the facts changed by a rollout back to the machines.
    fn store(&mut self, at: usize) {
        for (node, machine) in self.rollouts[at].nodes.iter().zip(&mut self.machines) {
            if node.condition.busy.is_none() {
                machine.member = node.member.clone();
                machine.jobs = node.jobs.clone();
                machine.runs = node.runs;
                machine.going_to = node.going_to;
                machine.condition.deferred_until = node.condition.deferred_until;
            }
        }
    }

    fn disturb_machines(&mut self) {
        let at = self.dice.roll(self.machines.len());
        let is_started = self.is_started(at);
        let is_waiting = self
            .rollouts
            .iter()
            .any(|fleet| fleet.nodes[at].stage == Stage::Waiting);
        let (now, dice) = (self.now, &mut self.dice);
        let machine = &mut self.machines[at];
        let condition = &mut machine.condition;
        match dice.roll(16) {
            0 | 1 if !is_started => {
                let states = [
                    Service::Serving,
                    Service::Serving,
                    Service::Out,
                    Service::Unknown,
                ];
                machine.member.service = states[dice.roll(4)];
            }
            2 => machine.member.others_drain = dice.hits(2).then(|| "root".to_owned()),
            3 => condition.held = dice.hits(2),
            4 => condition.protected = dice.hits(2),
            5 => condition.adopted = dice.hits(2),
            6 => condition.unreadable = dice.hits(2).then(|| "row".to_owned()),
            7 => machine.requeue_agreed = dice.hits(2),
            8 => machine.member.written_off_until = Some(now + minutes(dice.roll(300) as i64)),
            9 => {
                let unit = if dice.hits(3) { dice.roll(4) } else { at / 3 };
                self.move_node(at, unit);
            }
            10 => machine.jobs = Jobs::Unknown,
            // While the node waits, the scheduler places no longer jobs.
            11..=14 if !is_started && !is_waiting => {
                let ends = (!dice.hits(6)).then(|| now + minutes(dice.roll(600) as i64));
                let id = ["7", "8", "9"][dice.roll(3)];
                machine.jobs = Jobs::Known(vec![job(id, ends)]);
            }
            _ => machine.jobs = Jobs::Known(Vec::new()),
        }
        if !self.neighbours.is_empty() {
            let at = self.dice.roll(self.neighbours.len());
            self.neighbours[at].service =
                [Service::Serving, Service::Taken, Service::Out][self.dice.roll(3)];
        }
    }

    fn disturb_rollout(&mut self) {
        let now = self.now;
        let (event, at) = (self.dice.roll(24), self.dice.roll(self.machines.len()));
        let last = self.rollouts.len() - 1;
        let fleet = &mut self.rollouts[last];
        match event {
            0 => self.change_budgets(),
            1 => fleet.control = Control::Halted(HaltReason::Person("look".to_owned())),
            2 | 3 => fleet.control = Control::Running,
            4 => fleet.promoted = self.dice.hits(2),
            5 => fleet.signals = vec!["loss of nodes".to_owned()],
            6 | 7 => {
                fleet.signals.clear();
                fleet.silent = None;
            }
            8 if fleet.nodes[at].stage.mark().is_terminal() => {
                fleet.nodes[at].stage = Stage::NotBegun;
                fleet.nodes[at].wrong.clear();
                fleet.nodes[at].since = now;
            }
            9 => {
                let day = now.to_zoned(jiff::tz::TimeZone::UTC).date();
                let today = Freeze {
                    first: day,
                    last: day,
                    reason: String::new(),
                };
                self.calendar.windows.truncate(1);
                self.calendar.windows.push(MaintenanceWindow {
                    freezes: vec![today],
                    ..MaintenanceWindow::always()
                });
            }
            10 => self.policy.failure_budget.count = Some(self.dice.roll(4) as u32),
            11 if last == 0 && self.dice.hits(3) => {
                fleet.control = Control::Superseded;
                let mut next = super::fleet(self.machines.len());
                next.target = RevisionNumber(3);
                next.supersedes = Some(TARGET);
                next.since = now;
                self.rollouts.push(next);
            }
            12 => fleet.silent = Some(Silent::Monitor("errors".to_owned())),
            13 => {
                fleet.silent = Some(Silent::Gate {
                    name: "gpu.burn/burn.speed".to_owned(),
                    is_pending: self.dice.hits(2),
                });
            }
            _ => {}
        }
    }

    /// Returns whether a rollout changes or validates a node.
    fn is_started(&self, at: usize) -> bool {
        let started = |fleet: &Fleet| {
            matches!(
                fleet.nodes[at].stage.mark(),
                Mark::Changing | Mark::Validating
            )
        };
        self.rollouts.iter().any(started)
    }

    /// Nodes that failed in a rollout return to service.
    fn repair_nodes(&mut self) {
        for at in 0..self.machines.len() {
            if !self.is_started(at) && self.machines[at].member.service == Service::Out {
                self.machines[at].member.service = Service::Serving;
            }
        }
    }

    /// A node that was skipped or has failed keeps its unit back: people retry the node, or skip the
    /// whole unit.
    fn free_units(&mut self) {
        for rollout in 0..self.rollouts.len() {
            self.load(rollout);
            let fleet = &mut self.rollouts[rollout];
            let plan = plan(&self.policy, fleet, self.now);
            let person = |rule: &Rule| {
                let Rule::Unit { node, why, .. } = rule else {
                    return None;
                };
                matches!(why, Hindrance::Skipped | Hindrance::Failed).then(|| node.clone())
            };
            let named = plan
                .placements
                .iter()
                .find_map(|place| person(place.why.as_ref()?));
            let Some(name) = named else { continue };
            let is_named = |node: &Node| node.name == name;
            let at = fleet.nodes.iter().position(is_named).unwrap();
            if self.policy.allow.permits(fleet.nodes[at].effect) && self.dice.hits(2) {
                fleet.nodes[at].stage = Stage::NotBegun;
                fleet.nodes[at].wrong.clear();
                continue;
            }
            for other in unit_of(fleet, at) {
                if fleet.nodes[other].stage == Stage::NotBegun {
                    fleet.nodes[other].stage = Stage::Skipped;
                }
            }
        }
    }

    /// Budgets too small for a unit are raised, as the faults ask.
    fn raise_budgets(&mut self) {
        let last = self.rollouts.len() - 1;
        self.load(last);
        if find_unit_faults(&self.policy, &self.rollouts[last], self.now).is_empty() {
            return;
        }
        let enough = Amount::Count(12);
        self.policy.budgets.max_changing = enough;
        self.policy.budgets.max_waiting = enough;
        self.budget.max_unavailable = enough;
        for domain in &mut self.budget.domains {
            domain.max_unavailable = enough;
        }
    }

    /// Ends every disturbance: people resume, repair and answer.
    pub(super) fn calm(&mut self) {
        self.is_calm = true;
        self.calendar = Calendar::default();
        self.policy.failure_budget = FailureBudget {
            count: Some(1000),
            percent: None,
        };
        for machine in &mut self.machines {
            machine.condition = Condition::default();
            machine.member.others_drain = None;
            machine.member.written_off_until = None;
            machine.jobs = Jobs::Known(Vec::new());
            if machine.member.service != Service::Taken {
                machine.member.service = Service::Serving;
            }
        }
        for neighbour in &mut self.neighbours {
            neighbour.service = Service::Serving;
        }
        for fleet in &mut self.rollouts {
            fleet.signals.clear();
            fleet.silent = None;
            fleet.promoted = true;
            if let Control::Halted(_) = fleet.control {
                fleet.control = Control::Running;
            }
        }
        self.raise_budgets();
    }

    fn has_ended(&self) -> bool {
        let has_ended = |fleet: &Fleet| {
            fleet
                .nodes
                .iter()
                .all(|node| node.stage.mark().is_terminal())
        };
        self.rollouts.iter().all(has_ended)
    }
}

fn some_policy(dice: &mut Dice) -> RolloutPolicy {
    let canary = |count, nodes: &[&str]| Canary {
        count,
        nodes: nodes.iter().map(|&name| name.to_owned()).collect(),
        soak_s: 1800,
    };
    let amount = |dice: &mut Dice| match dice.hits(2) {
        true => Amount::Count(1 + dice.roll(4) as u32),
        false => Amount::Percent(1 + dice.roll(50) as u8),
    };
    let then = AfterDeadline::ALL[dice.roll(3)];
    RolloutPolicy {
        canary: [
            None,
            Some(canary(Some(1 + dice.roll(2) as u32), &[])),
            Some(canary(None, &["n0", "n2"])),
        ][dice.roll(3)]
        .clone(),
        waves: match dice.hits(2) {
            true => Waves::Sizes((0..dice.roll(3)).map(|_| amount(dice)).collect()),
            false => Waves::Exponential {
                initial: amount(dice),
                factor: 2,
            },
        },
        order: [OrderKey::IdleFirst, OrderKey::JobEnd, OrderKey::Rack][dice.roll(3)..].to_vec(),
        drain: [
            DrainPolicy::Wait,
            DrainPolicy::Deadline {
                after_s: 7200,
                then,
            },
        ][dice.roll(2)],
        budgets: Budgets {
            max_waiting: amount(dice),
            max_changing: amount(dice),
            max_validating: amount(dice),
        },
        failure_budget: FailureBudget {
            count: Some(dice.roll(4) as u32),
            percent: None,
        },
        ..RolloutPolicy::default()
    }
}

/// The act under way on a node goes on, and sometimes fails.
fn go_on(node: &mut Node, target: RevisionNumber, is_calm: bool, dice: &mut Dice) {
    let fails = !is_calm && dice.hits(6);
    let rests = !is_calm && dice.hits(3);
    let text = |dice: &mut Dice| ["boots r1", "no boot"][dice.roll(2)].to_owned();
    node.stage = match &node.stage {
        stage if rests => stage.clone(),
        Stage::Changing(Change::Draining) if fails => match dice.hits(2) {
            true => Stage::Changing(Change::DrainCancelled),
            false => Stage::Changing(Change::DrainFailed { why: text(dice) }),
        },
        Stage::Changing(Change::Draining) if node.jobs == Jobs::Known(Vec::new()) => {
            Stage::Changing(Change::Drained)
        }
        Stage::Changing(Change::Working) if fails => {
            Stage::Changing(Change::Wrong { result: text(dice) })
        }
        Stage::Changing(Change::Working) => {
            node.runs = Some(target);
            Stage::Changing(Change::Arrived)
        }
        Stage::Validating(Validation::Gating) if fails => match dice.hits(2) {
            true => Stage::Validating(Validation::ResultMissing),
            false => Stage::Validating(Validation::GateFailed {
                finding: text(dice),
            }),
        },
        Stage::Validating(Validation::Gating | Validation::ResultMissing) => {
            Stage::Validating(Validation::Passed)
        }
        Stage::Validating(Validation::Readmitting) => {
            node.member.service = Service::Serving;
            Stage::Validating(Validation::Readmitting)
        }
        stage => stage.clone(),
    };
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// Budgets, slots and halts hold at every act of a disturbed fleet. Once the fleet is calm,
    /// every node ends in a terminal mark.
    #[test]
    fn generated_fleets_stay_within_their_budgets_and_end(count in 1..12usize, seed in any::<u64>()) {
        let mut world = World::new(count, seed);
        for _ in 0..DISTURBED {
            world.tick();
        }
        world.calm();
        for _ in 0..CALM {
            if world.has_ended() {
                break;
            }
            world.tick();
        }
        prop_assert!(world.has_ended(), "{:#?}", world);
    }
}
