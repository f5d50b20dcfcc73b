//! The estimated end of a rollout, as an early and a late time with the assumptions. The planner runs
//! twice against a model of the fleet: once with short and once with long durations.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::amount::count_nodes;
use super::calendar::Calendar;
use super::failures::find_halt;
use super::fleet::{Control, Fleet, Jobs, Node, Silent, Stage};
use super::plan::{Plan, Verdict, plan};
use super::policy::RolloutPolicy;
use super::rehearsal::{Pace, rehearse};
use super::rule::{Rule, WaitsFor};
use crate::effects::Effect;

/// Plans multiplied by nodes, for each of both runs: a few seconds at most.
const MOST_WORK: usize = 2_000_000;

/// The estimated end of a rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Eta {
    /// Every node has ended.
    Ended,
    Ends(Estimate),
    /// The rollout is halted, a person must act, or the end depends on facts without a known end.
    Unknown {
        /// The reason as a sentence.
        why: String,
    },
}

/// An end with a spread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Estimate {
    pub early: Timestamp,
    /// Not before `early`.
    pub late: Timestamp,
    /// Nodes that have not ended.
    pub left: u32,
    /// The assumptions as sentences.
    pub assumes: Vec<String>,
}

/// Estimates the end of a rollout at `now`. `calendar` has the windows behind the facts of the fleet.
pub fn estimate(policy: &RolloutPolicy, fleet: &Fleet, calendar: &Calendar, now: Timestamp) -> Eta {
    estimate_within(policy, fleet, calendar, MOST_WORK, now)
}

/// Estimates like [`estimate`], with a limit on the plans multiplied by the nodes, for each of both
/// runs.
pub fn estimate_within(
    policy: &RolloutPolicy,
    fleet: &Fleet,
    calendar: &Calendar,
    most_work: usize,
    now: Timestamp,
) -> Eta {
    // A monitor answers within minutes, and a changed node is compared within seconds.
    let is_awaited = match &fleet.silent {
        Some(Silent::Monitor(_)) => true,
        Some(Silent::Gate { is_pending, .. }) => *is_pending,
        None => false,
    };
    let answered = is_awaited.then(|| Fleet {
        silent: None,
        ..fleet.clone()
    });
    let fleet = answered.as_ref().unwrap_or(fleet);
    if let Some(reason) = find_halt(policy, fleet) {
        return Eta::Unknown {
            why: Rule::Halted(reason).to_string(),
        };
    }
    if fleet.control == Control::Superseded {
        return Eta::Unknown {
            why: Rule::Superseded.to_string(),
        };
    }
    let first = plan(policy, fleet, now);
    if first.verdict == Verdict::Done {
        return Eta::Ended;
    }
    if let Some(why) = find_doubt(fleet, &first) {
        return Eta::Unknown { why };
    }
    let paces = find_paces(fleet);
    let run = |pace: &Pace| rehearse(policy, fleet, calendar, pace, most_work, now);
    match (run(&paces.short), run(&paces.long)) {
        (Ok(one), Ok(other)) => Eta::Ends(Estimate {
            early: one.min(other),
            late: one.max(other),
            left: fleet.count(is_left),
            assumes: list_assumptions(policy, fleet, calendar, &first, &paces),
        }),
        (Err(why), _) | (Ok(_), Err(why)) => Eta::Unknown { why },
    }
}

fn is_left(node: &Node) -> bool {
    !node.stage.mark().is_terminal()
}

/// Returns the stall, or the first node that waits for a person.
fn find_doubt(fleet: &Fleet, plan: &Plan) -> Option<String> {
    if let Verdict::Stalled { cause, since } = &plan.verdict {
        return Some(format!("no progress since {since:.0}: {cause}"));
    }
    let mut pairs = fleet.nodes.iter().zip(&plan.placements);
    pairs.find_map(|(node, place)| {
        let rule = place.why.as_ref();
        let rule = rule.filter(|rule| rule.waits_for() == WaitsFor::Person)?;
        Some(format!("{}: {rule}", node.name))
    })
}

/// The short and the long durations of changes.
struct Paces {
    short: Pace,
    long: Pace,
}

/// Returns the durations: measured in this run, or assumed by the effect.
fn find_paces(fleet: &Fleet) -> Paces {
    let mut measured = fleet.durations_s.clone();
    measured.sort_unstable();
    // A quarter of the nodes was faster than the short duration, and a tenth slower than the long.
    let rank = |percent: usize| {
        let rank = (measured.len() * percent).div_ceil(100);
        measured.get(rank.saturating_sub(1)).copied()
    };
    let pace = |percent: usize, assumed: fn(Effect) -> u32, jobs_percent: u8| {
        let duration =
            |effect: &Effect| (*effect, rank(percent).unwrap_or_else(|| assumed(*effect)));
        let effects = [
            Effect::None,
            Effect::InPlace,
            Effect::Reboot,
            Effect::Reinstall,
            Effect::Wipe,
        ];
        Pace {
            durations_s: effects.iter().map(duration).collect::<BTreeMap<_, _>>(),
            jobs_percent,
        }
    };
    Paces {
        short: pace(25, assume_short, 50),
        long: pace(90, |effect| 4 * assume_short(effect), 100),
    }
}

/// Returns the assumed seconds from closed to done, gates included. Started nodes without an effect
/// left count as a reboot.
fn assume_short(effect: Effect) -> u32 {
    match effect {
        Effect::InPlace => 5 * 60,
        Effect::None | Effect::Reboot => 15 * 60,
        Effect::Reinstall | Effect::Wipe => 30 * 60,
    }
}

fn list_assumptions(
    policy: &RolloutPolicy,
    fleet: &Fleet,
    calendar: &Calendar,
    plan: &Plan,
    paces: &Paces,
) -> Vec<String> {
    let mut list = assume_durations(fleet, paces);
    list.push("Half of the time of a node is the change, and half is the gates.".to_owned());
    let is_candidate = |node: &Node| matches!(node.stage, Stage::NotBegun | Stage::Waiting);
    let has_jobs = |node: &Node| node.jobs != Jobs::Known(Vec::new());
    if fleet.count(|node| is_candidate(node) && has_jobs(node)) > 0 {
        list.push("Jobs end between half of their time left and their limit.".to_owned());
    }
    list.push("Nodes without jobs get no new job before their change.".to_owned());
    list.push("No other node fails, and nodes out of service stay out.".to_owned());
    if !policy.halt_when.is_empty() {
        list.push("No alert and no monitor halts the rollout.".to_owned());
    }
    let concurrency = &plan.concurrency;
    if let Some(rule) = &concurrency.bound_by {
        let max = count_nodes(concurrency.max);
        list.push(format!("Now at most {max} can change at a time: {rule}."));
    }
    if calendar.has_limits() {
        list.push("Nodes are closed in the maintenance windows only.".to_owned());
        list.push("No job started outside of the windows runs on into them.".to_owned());
    }
    if let Some(canary) = policy.canary.as_ref().filter(|_| !plan.has_canary_passed) {
        let minutes = canary.soak_s.div_ceil(60);
        list.push(format!(
            "The canary passes and soaks for {minutes} minutes."
        ));
    }
    list
}

fn assume_durations(fleet: &Fleet, paces: &Paces) -> Vec<String> {
    let spread = |effect: Effect| {
        let minutes = |pace: &Pace| pace.duration_s(effect).div_ceil(60);
        format!(
            "{} to {} minutes",
            minutes(&paces.short),
            minutes(&paces.long)
        )
    };
    if !fleet.durations_s.is_empty() {
        let done = count_nodes(u32::try_from(fleet.durations_s.len()).unwrap_or(u32::MAX));
        let spread = spread(Effect::Reboot);
        return vec![format!(
            "A node takes {spread} from closed to done, measured on {done} of this run."
        )];
    }
    let effects = [Effect::InPlace, Effect::Reboot, Effect::Reinstall];
    let is_present =
        |effect: &Effect| fleet.count(|node| is_left(node) && node.effect == *effect) > 0;
    let sentence = |effect: Effect| {
        format!(
            "No time of this run is known, and the effect {effect} is assumed to take {}.",
            spread(effect)
        )
    };
    effects
        .into_iter()
        .filter(is_present)
        .map(sentence)
        .collect()
}
