//! Every reachable state of small worlds: two rollouts share the ledger, the executor may crash after
//! any action, nodes fail at every step, and people halt and resume at any time.

use std::collections::{HashMap, VecDeque};

use super::world::{apply, check_plan};
use super::*;

/// The faults of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Loss,
    Drain,
    Cancel,
    Wrong,
    Gate,
    /// A running job without an end, which ends at any time.
    Job,
}

/// A world: each node has a rollout, domains and faults.
struct World {
    nodes: Vec<(usize, &'static [&'static str], &'static [Fault])>,
    budget: Budget,
    policy: RolloutPolicy,
    /// The maintenance window closes and opens at any time.
    has_windows: bool,
}

/// A state of a world.
#[derive(Clone, Debug)]
struct State {
    nodes: Vec<Node>,
    /// The first rollout is halted and resumed at any time.
    is_halted: bool,
    /// The second rollout is superseded at any time.
    is_superseded: bool,
    is_window_open: bool,
}

impl State {
    /// The facts that differ between states, as text.
    fn key(&self) -> String {
        let facts = |node: &Node| {
            let deferred = node.condition.deferred_until.is_some();
            let idle = node.jobs == Jobs::Known(Vec::new());
            format!(
                "{:?} {} {:?} {deferred} {idle}",
                node.stage, node.member.service, node.wrong
            )
        };
        let nodes: Vec<String> = self.nodes.iter().map(facts).collect();
        let flags = (self.is_halted, self.is_superseded, self.is_window_open);
        format!("{flags:?} {}", nodes.join("|"))
    }

    fn has_ended(&self) -> bool {
        self.nodes
            .iter()
            .all(|node| node.stage.mark().is_terminal())
    }
}

impl World {
    fn first(&self) -> State {
        let nodes = self
            .nodes
            .iter()
            .enumerate()
            .map(|(number, (_, domains, faults))| {
                let mut node = node(number);
                node.member.domains = domains.iter().map(|&id| id.to_owned()).collect();
                if faults.contains(&Fault::Job) {
                    node.jobs = Jobs::Known(vec![job("7", None)]);
                }
                node
            });
        State {
            nodes: nodes.collect(),
            is_halted: false,
            is_superseded: false,
            is_window_open: true,
        }
    }

    /// The facts as a rollout reads them: the nodes of the other rollout are neighbours.
    fn fleet(&self, state: &State, rollout: usize) -> Fleet {
        let of = |node: usize| self.nodes[node].0 == rollout;
        let numbered = || state.nodes.iter().enumerate();
        let halt = HaltReason::Person("look".to_owned());
        let control = match rollout {
            0 if state.is_halted => Control::Halted(halt),
            1 if state.is_superseded => Control::Superseded,
            _ => Control::Running,
        };
        let window = match state.is_window_open {
            true => Opening::Open { until: None },
            false => Opening::Closed { opens: None },
        };
        Fleet {
            control,
            window,
            budget: self.budget.clone(),
            nodes: numbered()
                .filter(|(at, _)| of(*at))
                .map(|(_, node)| node.clone())
                .collect(),
            neighbours: numbered()
                .filter(|(at, _)| !of(*at))
                .map(|(_, node)| node.member.clone())
                .collect(),
            ..fleet(0)
        }
    }

    /// Every state after the present state.
    fn successors(&self, state: &State) -> Vec<State> {
        let mut found = Vec::new();
        for rollout in 0..2 {
            let fleet = self.fleet(state, rollout);
            let plan = plan(&self.policy, &fleet, start());
            check_plan(&self.policy, &fleet, &plan, start());
            found.extend(self.skip_rest(state, &plan));
            for most in 1..=plan.actions.len() {
                let mut fleet = fleet.clone();
                apply(&mut fleet, &plan, start(), most);
                let mut next = state.clone();
                for node in fleet.nodes {
                    let at = state
                        .nodes
                        .iter()
                        .position(|other| other.name == node.name)
                        .unwrap();
                    next.nodes[at] = node;
                }
                found.push(next);
            }
        }
        for (at, (_, _, faults)) in self.nodes.iter().enumerate() {
            for node in go_on(&state.nodes[at], faults) {
                let mut next = state.clone();
                next.nodes[at] = node;
                found.push(next);
            }
        }
        found.push(State {
            is_halted: !state.is_halted,
            ..state.clone()
        });
        found.push(State {
            is_superseded: true,
            ..state.clone()
        });
        if self.has_windows {
            found.push(State {
                is_window_open: !state.is_window_open,
                ..state.clone()
            });
        }
        found
    }

    /// The state after a person skips the nodes of a unit kept back by a skipped or failed node.
    fn skip_rest(&self, state: &State, plan: &Plan) -> Option<State> {
        let is_kept = |node: &Node| {
            let places = &plan.placements;
            let place = places.iter().find(|place| place.node == node.member.node);
            let why = place.and_then(|place| place.why.as_ref());
            let left = |why: &Hindrance| matches!(why, Hindrance::Skipped | Hindrance::Failed);
            node.stage == Stage::NotBegun
                && matches!(why, Some(Rule::Unit { why, .. }) if left(why))
        };
        let mut next = state.clone();
        for node in next.nodes.iter_mut().filter(|node| is_kept(node)) {
            node.stage = Stage::Skipped;
        }
        (next.key() != state.key()).then_some(next)
    }

    /// Visits every reachable state, and checks that every state leads to an end. Returns the number
    /// of states.
    fn explore(&self) -> usize {
        let first = self.first();
        let mut numbers = HashMap::from([(first.key(), 0)]);
        let mut queue = VecDeque::from([(0, first)]);
        let mut before: Vec<Vec<usize>> = vec![Vec::new()];
        let mut ended = Vec::new();
        while let Some((number, state)) = queue.pop_front() {
            if state.has_ended() {
                ended.push(number);
            }
            for next in self.successors(&state) {
                let fresh = numbers.len();
                let at = *numbers.entry(next.key()).or_insert(fresh);
                if at == fresh {
                    before.push(Vec::new());
                    queue.push_back((fresh, next));
                }
                before[at].push(number);
            }
        }
        let mut leads_to_end = vec![false; before.len()];
        while let Some(number) = ended.pop() {
            if !std::mem::replace(&mut leads_to_end[number], true) {
                ended.extend(&before[number]);
            }
        }
        let stuck = numbers.iter().find(|(_, number)| !leads_to_end[**number]);
        assert_eq!(stuck, None, "no end is reachable from the state");
        before.len()
    }
}

/// Every next state of a node, without an action of a rollout.
fn go_on(node: &Node, faults: &[Fault]) -> Vec<Node> {
    let has = |fault| faults.contains(&fault);
    let to = |stage: Stage| Node {
        stage,
        ..node.clone()
    };
    let text = || "the same result".to_owned();
    let mut found = Vec::new();
    match &node.stage {
        Stage::Changing(Change::Draining) => {
            found.push(to(Stage::Changing(Change::Drained)));
            if has(Fault::Drain) {
                found.push(to(Stage::Changing(Change::DrainFailed { why: text() })));
            }
            if has(Fault::Cancel) {
                found.push(to(Stage::Changing(Change::DrainCancelled)));
            }
        }
        Stage::Changing(Change::Working) => {
            found.push(Node {
                effect: Effect::None,
                ..to(Stage::Changing(Change::Arrived))
            });
            if has(Fault::Wrong) {
                found.push(to(Stage::Changing(Change::Wrong { result: text() })));
            }
        }
        Stage::Validating(Validation::Gating) => {
            found.push(to(Stage::Validating(Validation::Passed)));
            if has(Fault::Gate) {
                found.push(to(Stage::Validating(Validation::GateFailed {
                    finding: text(),
                })));
            }
        }
        Stage::Validating(Validation::Readmitting) => {
            let mut serving = node.clone();
            serving.member.service = Service::Serving;
            found.push(serving);
        }
        Stage::NotBegun | Stage::Waiting | Stage::Done { .. } | Stage::Skipped | Stage::Failed => {
            let flipped = match node.member.service {
                Service::Serving if has(Fault::Loss) => Some(Service::Out),
                Service::Out => Some(Service::Serving),
                Service::Serving | Service::Taken | Service::Joining | Service::Unknown => None,
            };
            if let Some(service) = flipped {
                let mut node = node.clone();
                node.member.service = service;
                found.push(node);
            }
        }
        Stage::Changing(_) | Stage::Validating(_) => {}
    }
    if node.jobs != Jobs::Known(Vec::new()) {
        found.push(Node {
            jobs: Jobs::Known(Vec::new()),
            ..node.clone()
        });
    }
    if node.condition.deferred_until.is_some() {
        found.push(Node {
            condition: Condition::default(),
            ..node.clone()
        });
    }
    found
}

fn budgets(pool: u32, domains: &[&str]) -> Budget {
    Budget {
        max_unavailable: Amount::Count(pool),
        domains: domains.iter().map(|id| domain(id, 1)).collect(),
    }
}

#[test]
fn three_nodes_with_every_fault_stay_within_the_budgets_and_end() {
    let world = World {
        nodes: vec![
            (0, &["a", "b"], &[Fault::Wrong, Fault::Drain]),
            (0, &["a"], &[Fault::Job, Fault::Cancel]),
            (1, &["b"], &[Fault::Loss, Fault::Gate]),
        ],
        budget: budgets(2, &["a", "b"]),
        policy: policy(),
        has_windows: true,
    };
    let states = world.explore();
    assert!(states > 10_000, "{states}");
}

#[test]
fn a_unit_with_every_fault_is_changed_whole_and_ends() {
    let mut budget = budgets(2, &["b"]);
    budget.domains.push(whole("u", 2));
    let world = World {
        nodes: vec![
            (0, &["u"], &[Fault::Drain, Fault::Loss]),
            (0, &["u"], &[Fault::Job, Fault::Cancel, Fault::Wrong]),
            (1, &["b"], &[Fault::Loss]),
        ],
        budget,
        policy: policy(),
        has_windows: false,
    };
    let states = world.explore();
    assert!(states > 10_000, "{states}");
}

#[test]
fn four_nodes_of_two_rollouts_share_the_ledger_and_end() {
    let world = World {
        nodes: vec![
            (0, &["a"], &[Fault::Loss]),
            (0, &["b"], &[Fault::Job]),
            (1, &["a"], &[]),
            (1, &["b"], &[Fault::Gate]),
        ],
        budget: budgets(2, &["a", "b"]),
        policy: RolloutPolicy {
            waves: Waves::Sizes(vec![Amount::Count(1)]),
            ..policy()
        },
        has_windows: false,
    };
    let states = world.explore();
    assert!(states > 10_000, "{states}");
}
