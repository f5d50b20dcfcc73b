//! The table in the docs: legal moves as data, and the reasons for each move, found by calling
//! [`decide`] in every situation.

#![expect(clippy::too_many_lines, reason = "a scenario reads in one piece")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use super::*;
use crate::wire::failure::FailureCode;

/// The outcome of a stay's steps: all succeed, or a single step fails or is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    Well,
    Fails(usize),
    Stopped(usize),
}

const COURSES: [Course; 9] = [
    Course::Well,
    Course::Fails(0),
    Course::Fails(1),
    Course::Fails(2),
    Course::Fails(3),
    Course::Stopped(0),
    Course::Stopped(1),
    Course::Stopped(2),
    Course::Stopped(3),
];

/// Returns every situation of a state that changes the next move.
fn situations(state: State) -> Vec<Snapshot> {
    let actions = Action::ALL
        .iter()
        .copied()
        .filter(|action| table::action_allowed(state, *action));
    let actions: Vec<Option<Action>> = [None].into_iter().chain(actions.map(Some)).collect();
    let phases: &[Option<State>] = match state {
        State::Failed => &[
            Some(State::Inspecting),
            Some(State::Imaging),
            Some(State::Installing),
            Some(State::Validating),
            Some(State::Admitting),
            Some(State::Draining),
            Some(State::Wiping),
        ],
        _ => &[None],
    };
    let claims: &[Option<ClaimState>] = match state {
        State::Discovered | State::Retired => &[None],
        _ => &[None, Some(ClaimState::Bound), Some(ClaimState::Releasing)],
    };
    // The rungs under way on a failing node, or the pool's rungs before a recovery begins.
    let ladders: &[Option<&[Rung]>] = match state {
        State::Repairing => &[
            None,
            Some(&[]),
            Some(&[Rung::Reboot]),
            Some(&[Rung::Reimage]),
        ],
        State::Draining | State::Validating => &[None, Some(&[Rung::Reboot])],
        _ => &[None],
    };
    let mut all = Vec::new();
    for &action in &actions {
        for &claim in claims {
            for &failed_phase in phases {
                for purpose in Purpose::ALL {
                    for flags in 0..16_u8 {
                        let flag = |bit: u8| flags & (1 << bit) != 0;
                        let mut one = node(state);
                        (one.action, one.claim, one.failed_phase) = (action, claim, failed_phase);
                        let drains =
                            state == State::Draining || failed_phase == Some(State::Draining);
                        if drains && *purpose == Purpose::Release && claim.is_none() {
                            continue;
                        }
                        one.purpose = drains.then_some(*purpose);
                        one.in_cluster |= drains;
                        (one.installed, one.unsanitised) = (flag(0), flag(1));
                        one.until = flag(2).then(now);
                        let disks = if flag(3) {
                            vec![disk(Some("ROOT"))]
                        } else {
                            Vec::new()
                        };
                        one.facts = Some(Facts {
                            disks,
                            ..Facts::default()
                        });
                        one.suite = Some(Suite {
                            name: "admit".into(),
                            version: "1".into(),
                            gates: Vec::new(),
                        });
                        for rungs in ladders {
                            let rungs = rungs.map(<[Rung]>::to_vec);
                            let (recovery, policy) = match (rungs, state) {
                                (None, _) => (None, None),
                                (Some(rungs), State::Validating) => (
                                    None,
                                    Some(RecoveryPolicy {
                                        rungs,
                                        ..RecoveryPolicy::none()
                                    }),
                                ),
                                (Some(rungs), _) => (Some(recovery(&rungs, 0)), None),
                            };
                            all.push(Snapshot {
                                recovery,
                                policy,
                                ..one.clone()
                            });
                        }
                    }
                }
            }
        }
    }
    all
}

/// Runs a stay until the node leaves the state; returns the next state and the reason.
fn leaves(mut node: Snapshot, course: Course) -> Option<(State, String)> {
    for _ in 0..20 {
        match decide(&node, now()) {
            Decision::Start(begun) => {
                let status = match course {
                    // Fails permanently, with a failure of the machine.
                    Course::Fails(at) if node.steps.len() == at => {
                        let failure = Failure {
                            code: FailureCode::Timeout,
                            ..failure(false)
                        };
                        StepStatus::Failed { at: now(), failure }
                    }
                    Course::Stopped(at) if node.steps.len() == at => StepStatus::Cancelled,
                    Course::Well | Course::Fails(_) | Course::Stopped(_) => StepStatus::Succeeded,
                };
                node.steps.push(step(begun, status));
            }
            Decision::Retry(again, _) => {
                let view = node.steps.iter_mut().find(|view| view.step == again)?;
                (view.status, view.round) = (StepStatus::Succeeded, view.round + 1);
            }
            Decision::Advance(moved) => return Some((moved.to, cause(&node, &moved))),
            Decision::Wait(_)
            | Decision::Cancel(_)
            | Decision::Granted(_)
            | Decision::Refused(_) => return None,
        }
    }
    panic!("it goes in circles in {}", node.state);
}

/// Describes the reason for a move in a person's words.
fn cause(node: &Snapshot, moved: &Move) -> String {
    let unhappy = |status: &StepStatus| matches!(status, StepStatus::Failed { .. });
    match node.action {
        _ if moved
            .reason
            .as_deref()
            .is_some_and(|reason| reason.contains("was undone")) =>
        {
            "the release is undone".into()
        }
        Some(action) if moved.effects.contains(&Effect::ActionTaken) && !node.releasing() => {
            format!("requested: {action}")
        }
        _ if moved.effects.contains(&Effect::Stopped)
            || moved.to == State::InService && node.state == State::Draining =>
        {
            "stopped on request".into()
        }
        _ if moved.to == State::Repairing => "a failure, and the pool has a recovery ladder".into(),
        _ if moved.to == State::Imaging && node.state == State::Repairing => {
            "the ladder reaches its rung re-image".into()
        }
        _ if moved.to == State::Validating && node.recovery.is_some() => "a rung is done".into(),
        _ if matches!(&moved.ladder, Some(Ladder::End { .. })) => "no rung is left".into(),
        _ if moved.to == State::Failed => "a step fails permanently".into(),
        _ if node
            .steps
            .iter()
            .any(|view| view.step == Step::Wipe && unhappy(&view.status)) =>
        {
            "the wipe cannot be verified".into()
        }
        _ if moved.to == State::Wiping
            || node.releasing() && moved.effects.contains(&Effect::ActionTaken) =>
        {
            "the claim is deleted".into()
        }
        _ if node.state == State::Available => "claimed".into(),
        _ if node.state == State::Draining => {
            format!("drained for {}", node.purpose.unwrap_or(Purpose::Release))
        }
        _ if node.state == State::Maintenance => "the time is over".into(),
        _ if moved.to == State::Quarantined && node.unsanitised && node.claim.is_none() => {
            "the disks may hold data".into()
        }
        _ if moved.to == State::Quarantined => "the hardware differs from the profile".into(),
        _ => "all done".into(),
    }
}

/// Returns every move made in some situation, with its reasons.
fn moves() -> BTreeMap<(State, State), BTreeSet<String>> {
    let mut moves: BTreeMap<(State, State), BTreeSet<String>> = BTreeMap::new();
    for &state in State::ALL {
        for situation in situations(state) {
            for course in COURSES {
                if let Some((to, cause)) = leaves(situation.clone(), course) {
                    moves.entry((state, to)).or_default().insert(cause);
                }
            }
        }
    }
    // A required gate without a `pass`. The situations above contain no measured values.
    moves
        .entry((State::Validating, State::Quarantined))
        .or_default()
        .insert("a gate fails".into());
    moves
}

fn document() -> String {
    let moves = moves();
    let mut text = String::from(
        "# The lifecycle of a node\n\n\
         Generated from `core/src/lifecycle`: `UPDATE_DOCS=1 cargo nextest run -p muster-core document` writes the page again.\n\n\
         ```mermaid\nstateDiagram-v2\n",
    );
    for (from, to) in moves.keys() {
        let _ = writeln!(text, "    {from} --> {to}");
    }
    text.push_str("```\n\n## Moves between states\n\n| from | to | when |\n|---|---|---|\n");
    for ((from, to), causes) in &moves {
        let causes: Vec<&str> = causes.iter().map(String::as_str).collect();
        let _ = writeln!(text, "| {from} | {to} | {} |", causes.join("; "));
    }
    text.push_str("\n## Allowed actions and time limits\n\n| state | allowed actions | stuck after |\n|---|---|---|\n");
    for &state in State::ALL {
        let actions: Vec<&str> = Action::ALL
            .iter()
            .filter(|action| table::action_allowed(state, **action))
            .map(|action| action.as_str())
            .collect();
        let stuck = state
            .default_deadline_s()
            .map_or("never".into(), |seconds| format!("{} min", seconds / 60));
        let _ = writeln!(text, "| {state} | {} | {stuck} |", actions.join(", "));
    }
    let later: Vec<String> = State::ALL
        .iter()
        .flat_map(|from| table::targets(*from).iter().map(move |to| (*from, *to)))
        .filter(|edge| !moves.contains_key(edge))
        .map(|(from, to)| format!("{from} → {to}"))
        .collect();
    let _ = writeln!(text, "\nLegal, but not used yet: {}.", later.join(", "));
    text
}

/// Asserts that every move is legal and that the docs list all moves. A legal move without a
/// situation is reserved for an unfinished feature.
#[test]
fn the_document_is_the_table() {
    for (from, to) in moves().keys() {
        assert!(table::legal(*from, *to), "{from} -> {to}");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/lifecycle.md");
    let document = document();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &document).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == document,
        "docs/lifecycle.md differs from the table: set UPDATE_DOCS=1 and run this test again"
    );
}
