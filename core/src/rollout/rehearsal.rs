//! A run of the planner against a model of the fleet, for estimates. In the model each act succeeds
//! after a set duration, and no node is lost.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::action::{Act, Action};
use super::calendar::Calendar;
use super::fleet::{Change, Fleet, Jobs, Node, Service, Stage, Validation};
use super::plan::{Plan, Verdict, plan};
use super::policy::{DrainPolicy, RolloutPolicy};
use super::rule::Rule;
use super::windows::{Opening, Period, add, measure_outside};
use crate::effects::Effect;
use crate::ids::NodeId;

/// Plans of a rehearsal.
const MOST_PLANS: usize = 20_000;
/// The end of a rehearsal.
const HORIZON: SignedDuration = SignedDuration::from_hours(366 * 24);
/// Events within a minute are planned together, in larger fleets within a minute for each 1000 nodes.
const NODES_OF_A_MINUTE: usize = 1000;
/// Ends of jobs and waits within this part of the time since the start are planned together.
const PART: i64 = 25;

/// The durations of a rehearsal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    /// Seconds from closed to done, by effect.
    pub durations_s: BTreeMap<Effect, u32>,
    /// The part of the time left that a job still runs, in percent.
    pub jobs_percent: u8,
}

/// The model: the fleet, and the end of the step under way on each node.
struct Rehearsal<'a> {
    policy: &'a RolloutPolicy,
    pace: &'a Pace,
    fleet: Fleet,
    ends: BTreeMap<NodeId, Timestamp>,
    start: Timestamp,
    now: Timestamp,
    /// The time of the previous step.
    advanced: Timestamp,
}

/// Runs the rollout to the end, and returns the time of the end. `most_work` limits the plans
/// multiplied by the nodes.
///
/// # Errors
/// Returns the reason as a sentence if the rollout comes to no end by itself.
pub(super) fn rehearse(
    policy: &RolloutPolicy,
    fleet: &Fleet,
    calendar: &Calendar,
    pace: &Pace,
    most_work: usize,
    now: Timestamp,
) -> Result<Timestamp, String> {
    let mut model = Rehearsal {
        policy,
        pace,
        fleet: fleet.clone(),
        ends: BTreeMap::new(),
        start: now,
        now,
        advanced: now,
    };
    let minutes = fleet.nodes.len().div_ceil(NODES_OF_A_MINUTE).max(1);
    let step = SignedDuration::from_mins(i64::try_from(minutes).unwrap_or(i64::MAX));
    // The other uses of the links end, at unknown times.
    for link in model.fleet.links.values_mut() {
        link.others = 0;
    }
    model.prepare();
    let most = MOST_PLANS.min(most_work / fleet.nodes.len().max(1));
    for _ in 0..most {
        model.advance(calendar);
        let plan = plan(policy, &model.fleet, model.now);
        match &plan.verdict {
            Verdict::Done => return Ok(model.now),
            Verdict::Halt(reason) => return Err(Rule::Halted(reason.clone()).to_string()),
            Verdict::Running | Verdict::Stalled { .. } => {}
        }
        model.apply(&plan);
        let ends_a_step = |action: &Action| !action.act.starts();
        let next = match plan.actions.iter().any(ends_a_step) {
            true => continue,
            false => model.find_next(&plan),
        };
        let Some(next) = next else {
            if !plan.actions.is_empty() {
                continue;
            }
            return Err(describe_end(&model.fleet, &plan));
        };
        model.now = next.max(add(model.now, step));
        if model.now > now + HORIZON {
            return Err("the rollout takes more than a year".to_owned());
        }
    }
    Err("the rollout has too many steps for an estimate".to_owned())
}

impl Pace {
    /// Returns the seconds from closed to done.
    pub(super) fn duration_s(&self, effect: Effect) -> u32 {
        self.durations_s.get(&effect).copied().unwrap_or_default()
    }

    /// Returns the half of the duration: the change, or the gates.
    fn half(&self, effect: Effect) -> SignedDuration {
        SignedDuration::from_secs(i64::from(self.duration_s(effect)) / 2)
    }
}

impl Rehearsal<'_> {
    /// Sets the ends of jobs and of the steps under way.
    fn prepare(&mut self) {
        for node in &mut self.fleet.nodes {
            if let Jobs::Known(jobs) = &mut node.jobs {
                for end in jobs.iter_mut().filter_map(|job| job.ends.as_mut()) {
                    let left = end.duration_since(self.now).as_secs().max(0);
                    let left = left * i64::from(self.pace.jobs_percent) / 100;
                    *end = self.now + SignedDuration::from_secs(left);
                }
            }
            let half = self.pace.half(node.effect);
            let end = match &node.stage {
                Stage::Changing(Change::Draining | Change::Drained) => {
                    let drained = find_last_end(node).unwrap_or(self.now);
                    node.stage = Stage::Changing(Change::Working);
                    Some(add(drained, half))
                }
                Stage::Changing(Change::Working) | Stage::Validating(Validation::Gating) => {
                    Some(add(node.since, half))
                }
                Stage::Validating(Validation::Readmitting) => {
                    node.member.service = Service::Serving;
                    None
                }
                Stage::Changing(
                    Change::DrainFailed { .. }
                    | Change::DrainCancelled
                    | Change::Arrived
                    | Change::Wrong { .. },
                )
                | Stage::Validating(
                    Validation::ResultMissing | Validation::GateFailed { .. } | Validation::Passed,
                )
                | Stage::NotBegun
                | Stage::Waiting
                | Stage::Done { .. }
                | Stage::Skipped
                | Stage::Failed => None,
            };
            if let Some(end) = end {
                self.ends.insert(node.member.node, end.max(self.now));
            }
        }
    }

    /// Reads the windows, and ends jobs and steps.
    fn advance(&mut self, calendar: &Calendar) {
        let now = self.now;
        // The model stops at the changes of the windows, to within a step.
        if let Opening::Closed { .. } = self.fleet.window {
            let start = self.advanced;
            self.fleet.closed.push(Period { start, end: now });
        }
        self.advanced = now;
        self.fleet.window = calendar.open_at(now);
        self.fleet.frozen_until = calendar.frozen_at(now);
        for node in &mut self.fleet.nodes {
            if let Jobs::Known(jobs) = &mut node.jobs {
                jobs.retain(|job| job.ends.is_none_or(|ends| ends > now));
            }
            let id = node.member.node;
            if self.ends.get(&id).is_none_or(|end| *end > now) {
                continue;
            }
            self.ends.remove(&id);
            node.since = now;
            if node.stage == Stage::Changing(Change::Working) {
                node.stage = Stage::Changing(Change::Arrived);
            } else {
                node.stage = Stage::Done { changed: true };
                node.member.service = Service::Serving;
            }
        }
    }

    fn apply(&mut self, plan: &Plan) {
        let actions: BTreeMap<NodeId, &Action> = plan
            .actions
            .iter()
            .map(|action| (action.node, action))
            .collect();
        for node in &mut self.fleet.nodes {
            let Some(action) = actions.get(&node.member.node) else {
                continue;
            };
            let half = self.pace.half(node.effect);
            if let Some(begin) = apply_act(node, &action.act, self.now) {
                self.ends.insert(node.member.node, add(begin, half));
            }
        }
    }

    /// Returns the next time at which a fact of the model changes.
    fn find_next(&self, plan: &Plan) -> Option<Timestamp> {
        let lead = SignedDuration::from_secs(i64::from(self.policy.drain_lead_s));
        let deadline = match self.policy.drain {
            DrainPolicy::Wait => None,
            DrainPolicy::Deadline { after_s, then: _ } => {
                Some(SignedDuration::from_secs(i64::from(after_s)))
            }
        };
        let of_nodes = self.fleet.nodes.iter().flat_map(|node| {
            let is_candidate = matches!(node.stage, Stage::NotBegun | Stage::Waiting);
            let ends = find_last_end(node).filter(|_| is_candidate);
            let waits = deadline.filter(|_| node.stage == Stage::Waiting);
            [
                ends,
                ends.map(|ends| add(ends, -lead)),
                waits.map(|after| {
                    let open = measure_outside(&self.fleet.closed, node.since, self.now);
                    add(self.now, after - open)
                }),
                node.condition.deferred_until,
                node.announced_for,
            ]
        });
        let of_nodes = of_nodes.flatten().filter(|time| *time > self.now).min();
        let elapsed = self.now.duration_since(self.start);
        let together = SignedDuration::from_secs(elapsed.as_secs() / PART);
        let of_nodes = of_nodes.map(|time| time.max(add(self.now, together)));
        let window = match self.fleet.window {
            Opening::Open { until } => until,
            Opening::Closed { opens } => opens,
        };
        let soaks = plan.placements.iter().map(|place| match &place.why {
            Some(Rule::Soak { until }) => Some(*until),
            Some(_) | None => None,
        });
        let of_rollout = [window, self.fleet.frozen_until].into_iter();
        let ends = self.ends.values().copied().map(Some);
        of_rollout
            .chain([of_nodes])
            .chain(soaks)
            .chain(ends)
            .flatten()
            .filter(|time| *time > self.now)
            .min()
    }
}

/// Applies an act of the plan, and returns the begin of the started step. The change of a closed node
/// begins after the last job.
fn apply_act(node: &mut Node, act: &Act, now: Timestamp) -> Option<Timestamp> {
    node.since = now;
    let return_node = |node: &mut Node| {
        if node.member.service == Service::Taken {
            node.member.service = Service::Serving;
        }
    };
    match act {
        Act::Wait => node.stage = Stage::Waiting,
        Act::Close {
            takes_slot,
            requeue,
        } => {
            if *takes_slot {
                node.member.service = Service::Taken;
            }
            let drained = find_last_end(node).filter(|_| !requeue);
            node.jobs = Jobs::Known(Vec::new());
            node.stage = Stage::Changing(Change::Working);
            return Some(drained.unwrap_or(now));
        }
        Act::Change { .. } => {
            node.stage = Stage::Changing(Change::Working);
            return Some(now);
        }
        Act::Validate => {
            node.stage = Stage::Validating(Validation::Gating);
            return Some(now);
        }
        Act::Readmit => {
            node.member.service = Service::Serving;
            node.stage = Stage::Validating(Validation::Readmitting);
        }
        Act::GiveBack { not_before } => {
            return_node(node);
            node.condition.deferred_until = Some(*not_before);
            node.stage = Stage::NotBegun;
        }
        Act::Finish { changed } => node.stage = Stage::Done { changed: *changed },
        Act::Skip => {
            return_node(node);
            node.stage = Stage::Skipped;
        }
        Act::Fail { give_back } => {
            if *give_back {
                return_node(node);
            }
            node.failed_before = true;
            node.stage = Stage::Failed;
        }
    }
    None
}

/// Returns the end of the node's last job; `None` without jobs, and for a job without an end.
fn find_last_end(node: &Node) -> Option<Timestamp> {
    node.jobs.last().and_then(|job| job.ends)
}

/// Returns the reason why the rollout comes to no end: the binding rule, with the first node held.
fn describe_end(fleet: &Fleet, plan: &Plan) -> String {
    let Some(rule) = &plan.binding else {
        return "the end of a step is unknown".to_owned();
    };
    let mut pairs = fleet.nodes.iter().zip(&plan.placements);
    let held = pairs.find(|(_, place)| place.why.as_ref() == Some(rule));
    match held {
        Some((node, _)) => format!("{}: {rule}", node.name),
        None => rule.to_string(),
    }
}
