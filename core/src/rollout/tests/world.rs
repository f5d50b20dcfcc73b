//! A small model of the world: applies the actions of a plan as an executor would, and checks each
//! action against a plain count of the nodes that are out.

use super::*;

/// A deterministic source of numbers.
#[derive(Debug)]
pub(super) struct Dice(pub(super) u64);

impl Dice {
    /// Returns a number from 0 to `sides - 1`.
    pub(super) fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        for shift in [30, 27] {
            mixed = (mixed ^ (mixed >> shift)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        }
        ((mixed ^ (mixed >> 31)) % sides as u64) as usize
    }

    /// True in one of `sides` cases.
    pub(super) fn hits(&mut self, sides: usize) -> bool {
        self.roll(sides) == 0
    }
}

/// Returns whether a member is out, and counts.
fn counts_as_out(member: &Member, now: Timestamp) -> bool {
    let written_off = member.written_off_until.is_some_and(|until| until > now);
    match member.service {
        Service::Taken => true,
        Service::Out | Service::Unknown => !written_off,
        Service::Serving => member.others_drain.is_some() && !written_off,
        Service::Joining => false,
    }
}

/// Checks that the members out, the taken node included, are within the pool's and each of the
/// node's domains' budgets.
fn check_budgets(fleet: &Fleet, taken: &Member, now: Timestamp) {
    let check = |name: &str, max: Amount, is_in: &dyn Fn(&Member) -> bool| {
        let members: Vec<&Member> = fleet.members().filter(|member| is_in(member)).collect();
        let is_off = |member: &Member| member.written_off_until.is_some_and(|until| until > now);
        let is_down =
            |member: &Member| member.service != Service::Serving || member.others_drain.is_some();
        let counted = members.iter().filter(|member| {
            let is_ignored = is_off(member) && is_down(member) && member.service != Service::Taken;
            member.service != Service::Joining && !is_ignored
        });
        let out = members
            .iter()
            .filter(|member| counts_as_out(member, now))
            .count();
        let max = max.of(counted.count() as u32);
        assert!(
            out as u32 <= max,
            "{name}: {out} out, {max} allowed after taking {taken:?}"
        );
    };
    check("pool", fleet.budget.max_unavailable, &|member| {
        member.in_pool
    });
    for domain in &fleet.budget.domains {
        if taken.domains.contains(&domain.id) {
            check(&domain.id, domain.max_unavailable, &|member| {
                member.domains.contains(&domain.id)
            });
        }
    }
}

/// Applies the first `most` actions of a plan, each checked against the budgets.
pub(super) fn apply(fleet: &mut Fleet, plan: &Plan, now: Timestamp, most: usize) {
    for action in plan.actions.iter().take(most) {
        let at = fleet
            .nodes
            .iter()
            .position(|node| node.member.node == action.node)
            .unwrap();
        let (target, node) = (fleet.target, &mut fleet.nodes[at]);
        apply_act(node, &action.act, target, now);
        if let Act::Close {
            takes_slot: true, ..
        } = action.act
        {
            let member = fleet.nodes[at].member.clone();
            check_budgets(fleet, &member, now);
        }
    }
}

fn apply_act(node: &mut Node, act: &Act, target: RevisionNumber, now: Timestamp) {
    let is_unchanged = matches!(
        node.stage,
        Stage::Changing(
            Change::Draining
                | Change::Drained
                | Change::DrainFailed { .. }
                | Change::DrainCancelled
        )
    );
    if let Stage::Changing(Change::Wrong { result } | Change::DrainFailed { why: result }) =
        &node.stage
    {
        node.wrong.push(result.clone());
    }
    let returned = match (node.member.service, is_unchanged) {
        (Service::Taken, true) => Service::Serving,
        (Service::Taken, false) => Service::Out,
        (Service::Serving | Service::Out | Service::Joining | Service::Unknown, _) => {
            node.member.service
        }
    };
    node.stage = match act {
        Act::Wait => Stage::Waiting,
        Act::Close {
            takes_slot,
            requeue,
        } => {
            assert_eq!(
                *takes_slot,
                node.member.service == Service::Serving,
                "{node:?}"
            );
            if *takes_slot {
                node.member.service = Service::Taken;
            }
            if *requeue {
                node.jobs = Jobs::Known(Vec::new());
            }
            node.going_to = Some(target);
            Stage::Changing(Change::Draining)
        }
        Act::Change { .. } => Stage::Changing(Change::Working),
        Act::Validate => Stage::Validating(Validation::Gating),
        Act::Readmit => Stage::Validating(Validation::Readmitting),
        Act::GiveBack { not_before } => {
            node.member.service = returned;
            if *not_before > now {
                node.condition.deferred_until = Some(*not_before);
            }
            Stage::NotBegun
        }
        Act::Finish { changed } => Stage::Done { changed: *changed },
        Act::Skip => {
            node.member.service = returned;
            Stage::Skipped
        }
        Act::Fail { give_back } => {
            assert_eq!(*give_back, is_unchanged, "{node:?}");
            node.member.service = returned;
            node.failed_before = true;
            Stage::Failed
        }
    };
    node.since = now;
}

/// Checks the rules for every plan.
pub(super) fn check_plan(policy: &RolloutPolicy, fleet: &Fleet, plan: &Plan, now: Timestamp) {
    let places: Vec<NodeId> = plan.placements.iter().map(|place| place.node).collect();
    let nodes: Vec<NodeId> = fleet.nodes.iter().map(|node| node.member.node).collect();
    assert_eq!(places, nodes, "every node has exactly one mark");
    let acted: BTreeSet<NodeId> = plan.actions.iter().map(|action| action.node).collect();
    assert_eq!(
        acted.len(),
        plan.actions.len(),
        "a node has at most one action"
    );
    let is_halted = matches!(plan.verdict, Verdict::Halt(_));
    let is_stopped = is_halted || fleet.control != Control::Running;
    let may_begin = matches!(fleet.window, Opening::Open { until } if until.is_none_or(|until| until > now))
        && fleet.frozen_until.is_none_or(|until| until <= now)
        && fleet.silent.is_none();
    for action in &plan.actions {
        let node = fleet
            .nodes
            .iter()
            .find(|node| node.member.node == action.node)
            .unwrap();
        assert!(
            !node.stage.mark().is_terminal(),
            "a terminal mark is left by no plan: {action:?}"
        );
        assert!(
            !(is_stopped && action.act.starts()),
            "a stopped rollout starts {action:?}"
        );
        if let Act::Wait | Act::Close { .. } = action.act {
            assert!(
                may_begin && node.member.others_drain.is_none() && !node.condition.held,
                "{action:?}"
            );
        }
        if let Act::Close { requeue: false, .. } = action.act {
            let lead = now + SignedDuration::from_secs(i64::from(policy.drain_lead_s));
            let in_time = |job: &Job| job.ends.is_some_and(|ends| ends <= lead);
            assert!(
                matches!(&node.jobs, Jobs::Known(jobs) if jobs.iter().all(in_time)),
                "closed early: {node:?}"
            );
        }
    }
    let units: Vec<BTreeSet<usize>> = (0..fleet.nodes.len())
        .map(|at| unit_of(fleet, at))
        .collect();
    check_units(policy, fleet, plan, &units);
    check_slots(policy, fleet, plan);
    check_waves(policy, fleet, plan, &units);
    check_progress(policy, fleet, plan, now, &units);
    check_places(policy, fleet, plan, now);
}

/// A waiting node given back for a budget does not wait again at the next tick: another node begins.
fn check_places(policy: &RolloutPolicy, fleet: &Fleet, plan: &Plan, now: Timestamp) {
    let waits = |node: &&Node| node.stage == Stage::Waiting;
    let waiting = fleet.nodes.iter().filter(waits);
    let waiting: BTreeSet<NodeId> = waiting.map(|node| node.member.node).collect();
    let is_given = |action: &&Action| {
        matches!(action.act, Act::GiveBack { .. })
            && matches!(action.because, Because::Rule(Rule::Budget(_)))
            && waiting.contains(&action.node)
    };
    let given: BTreeSet<NodeId> = (plan.actions.iter().filter(is_given))
        .map(|action| action.node)
        .collect();
    if given.is_empty() {
        return;
    }
    let mut after = fleet.clone();
    apply(&mut after, plan, now, usize::MAX);
    let next = super::plan(policy, &after, now);
    let begins = |action: &&Action| matches!(action.act, Act::Close { .. } | Act::Wait);
    let first = next.actions.iter().find(begins);
    assert!(
        first.is_some_and(|action| !given.contains(&action.node)),
        "given back: {:?}, then {:?}\n{fleet:#?}",
        plan.actions,
        next.actions
    );
}

/// Returns the positions of the nodes that are changed together with a node, the node included.
pub(super) fn unit_of(fleet: &Fleet, at: usize) -> BTreeSet<usize> {
    let is_whole = |id: &&String| {
        let mut domains = fleet.budget.domains.iter();
        domains.any(|domain| domain.whole && domain.id == **id)
    };
    let mut unit = BTreeSet::from([at]);
    if !fleet.nodes[at]
        .member
        .domains
        .iter()
        .any(|id| is_whole(&id))
    {
        return unit;
    }
    loop {
        let ids: BTreeSet<&String> = unit
            .iter()
            .flat_map(|&at| &fleet.nodes[at].member.domains)
            .filter(is_whole)
            .collect();
        let joins = |node: &Node| node.member.domains.iter().any(|id| ids.contains(id));
        let positions = 0..fleet.nodes.len();
        let larger: BTreeSet<usize> = positions
            .filter(|&other| other == at || joins(&fleet.nodes[other]))
            .collect();
        if larger == unit {
            return unit;
        }
        unit = larger;
    }
}

/// Returns whether the rollout can close a node, or needs to.
fn is_open(node: &Node) -> bool {
    matches!(node.stage, Stage::NotBegun | Stage::Waiting) && node.effect != Effect::None
}

/// Checks that a plan closes a unit as a whole, and changes a unit after the last drain only.
fn check_units(policy: &RolloutPolicy, fleet: &Fleet, plan: &Plan, units: &[BTreeSet<usize>]) {
    let act = |at: usize| {
        let id = fleet.nodes[at].member.node;
        let mut actions = plan.actions.iter();
        actions
            .find(|action| action.node == id)
            .map(|action| &action.act)
    };
    for (at, others) in units.iter().enumerate() {
        let is_kept = |other: &usize| {
            let node = &fleet.nodes[*other];
            let serves = node.member.service == Service::Serving;
            let has_failed = node.stage == Stage::Failed && serves;
            let has_left = has_failed || node.stage == Stage::Skipped;
            has_left && node.effect != Effect::None
        };
        let is_left_open = |other: &usize| {
            is_open(&fleet.nodes[*other]) && !matches!(act(*other), Some(Act::Close { .. }))
        };
        if others.len() == 1 {
            continue;
        }
        if matches!(act(at), Some(Act::Close { .. })) {
            assert!(
                !others.iter().any(is_left_open) && !others.iter().any(is_kept),
                "a unit is closed in part: {plan:?}"
            );
            let permitted = |other: &usize| policy.allow.permits(fleet.nodes[*other].effect);
            assert!(
                others
                    .iter()
                    .filter(|other| is_open(&fleet.nodes[**other]))
                    .all(permitted)
            );
        }
        let was_drained = fleet.nodes[at].stage == Stage::Changing(Change::Drained);
        if was_drained && matches!(act(at), Some(Act::Change { .. })) {
            let is_late = |other: &usize| {
                let node = &fleet.nodes[*other];
                is_open(node) || node.stage == Stage::Changing(Change::Draining)
            };
            assert!(!others.iter().any(is_late), "changed early: {plan:?}");
        }
    }
}

/// Checks that no node begins beyond the end of a wave while a node of the wave is open. A unit
/// raises the sizes, and an admitted unit counts whole.
fn check_waves(policy: &RolloutPolicy, fleet: &Fleet, plan: &Plan, units: &[BTreeSet<usize>]) {
    let sizes = units.iter().map(|unit| unit.len() as u32);
    let largest = sizes.filter(|size| *size > 1).max().unwrap_or(0);
    let canary = match &policy.canary {
        None => 0,
        Some(Canary {
            count: Some(count), ..
        }) => *count,
        Some(Canary { count: None, .. }) => return,
    };
    let sizes: Vec<u32> = match &policy.waves {
        Waves::Sizes(sizes) => sizes.iter().map(|size| size.of(fleet.planned)).collect(),
        Waves::Exponential { initial, factor } => {
            let first = initial.of(fleet.planned);
            (0..8).map(|wave| first * factor.pow(wave)).collect()
        }
    };
    let mut ends = vec![if canary == 0 { 0 } else { canary.max(largest) }];
    for size in sizes {
        ends.push(ends[ends.len() - 1] + size.max(largest));
    }
    if fleet.promoted || canary == 0 || largest > 0 {
        ends.remove(0);
    }
    let is_admitted = |node: &Node| {
        let at = fleet.nodes.iter().position(|other| other.name == node.name);
        let mut others = units[at.unwrap()].iter().map(|other| &fleet.nodes[*other]);
        let is_closing = |node: &Node| {
            matches!(
                node.stage,
                Stage::Waiting | Stage::Changing(Change::Draining | Change::Drained)
            )
        };
        node.effect != Effect::None && others.any(is_closing)
    };
    let has_begun = |node: &Node| match node.stage {
        Stage::NotBegun => is_admitted(node),
        Stage::Skipped => false,
        Stage::Done { changed } => changed,
        Stage::Waiting | Stage::Changing(_) | Stage::Validating(_) | Stage::Failed => true,
    };
    let begun = fleet.count(has_begun);
    let open = fleet.count(|node| has_begun(node) && !node.stage.mark().is_terminal());
    let begins = plan.actions.iter().filter(|action| {
        let node = fleet
            .nodes
            .iter()
            .find(|node| node.member.node == action.node)
            .unwrap();
        !has_begun(node) && matches!(action.act, Act::Wait | Act::Close { .. })
    });
    let after = begun + begins.count() as u32;
    for end in ends {
        let crosses = begun <= end && end < after;
        assert!(
            !crosses || ((begun == end || largest > 0) && open == 0),
            "{begun} to {after} begun, {open} open, wave ends at {end}: {plan:?}"
        );
    }
}

/// Checks that no act exceeds the slots of its phase.
fn check_slots(policy: &RolloutPolicy, fleet: &Fleet, plan: &Plan) {
    let phases: [(&str, Mark, Amount); 3] = [
        ("wait", Mark::Waiting, policy.budgets.max_waiting),
        ("close", Mark::Changing, policy.budgets.max_changing),
        ("validate", Mark::Validating, policy.budgets.max_validating),
    ];
    for (code, mark, max) in phases {
        let begun = plan
            .actions
            .iter()
            .filter(|action| action.act.code() == code)
            .count() as u32;
        let is_asked = policy.drain != DrainPolicy::Wait && mark == Mark::Waiting;
        let in_use = fleet.count(|node| node.stage.mark() == mark);
        assert!(
            begun == 0 || is_asked || in_use + begun <= max.of(fleet.planned),
            "{code}: {in_use} + {begun}, {max}"
        );
    }
}

/// Checks that a running rollout without started nodes begins with a node that may begin.
fn check_progress(
    policy: &RolloutPolicy,
    fleet: &Fleet,
    plan: &Plan,
    now: Timestamp,
    units: &[BTreeSet<usize>],
) {
    let is_started = |node: &Node| {
        matches!(
            node.stage.mark(),
            Mark::Waiting | Mark::Changing | Mark::Validating
        )
    };
    let is_running = fleet.control == Control::Running && !matches!(plan.verdict, Verdict::Halt(_));
    if !is_running || !plan.actions.is_empty() || fleet.nodes.iter().any(is_started) {
        return;
    }
    let ledger = Ledger::open(&fleet.budget, fleet.members(), now);
    let may_begin = |node: &Node| {
        let is_plain = Condition {
            deferred_until: None,
            ..node.condition.clone()
        } == Condition::default()
            && node
                .condition
                .deferred_until
                .is_none_or(|until| until <= now)
            && node.member.others_drain.is_none();
        node.stage == Stage::NotBegun
            && is_plain
            && node.jobs == Jobs::Known(Vec::new())
            && policy.allow.permits(node.effect)
            && matches!(node.member.service, Service::Serving | Service::Out)
    };
    for (at, place) in plan.placements.iter().enumerate() {
        let nodes = units[at].iter().map(|other| &fleet.nodes[*other]);
        let has_left = |node: &Node| {
            let has_failed = node.stage == Stage::Failed && node.member.service != Service::Serving;
            has_failed || matches!(node.stage, Stage::Done { .. })
        };
        let nodes: Vec<&Node> = nodes.filter(|node| !has_left(node)).collect();
        let members: Vec<&Member> = nodes.iter().map(|node| &node.member).collect();
        let node = &fleet.nodes[at];
        let is_scheduled = matches!(
            place.why,
            Some(
                Rule::Soak { .. }
                    | Rule::Canary { .. }
                    | Rule::CanaryWithoutResult
                    | Rule::Frozen { .. }
                    | Rule::WindowClosed { .. }
                    | Rule::MonitorSilent { .. }
                    | Rule::NotCompared { .. }
            )
        );
        let max_changing = policy.budgets.max_changing.of(fleet.planned);
        let is_refused =
            ledger.clone().take_all(&members).is_err() || nodes.len() as u32 > max_changing;
        let may_begin = may_begin(node) && nodes.iter().all(|node| may_begin(node));
        assert!(
            is_scheduled || is_refused || !may_begin,
            "nothing begins, and {node:?} may: {plan:?}"
        );
    }
}
