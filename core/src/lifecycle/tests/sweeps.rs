//! The results of a sweep, the steps before a sweep, and the nodes left untouched.

#![expect(clippy::too_many_lines, reason = "a scenario reads in one piece")]

use super::faults::{moved, result, silent, suite};
use super::*;
use crate::gates::{Gate, GateResult, Verdict};

#[test]
fn a_sweep_takes_a_node_out_only_for_what_it_measured() {
    let mut serving = node(State::InService);
    (serving.claim, serving.action) = (Some(ClaimState::Bound), Some(Action::Sweep));
    assert!(
        matches!(decide(&serving, now()), Decision::Refused(_)),
        "the pool names no sweep suite"
    );
    serving.sweep = Some(suite());
    assert_eq!(decide(&serving, now()), Decision::Start(Step::Sweep));
    serving.steps = vec![StepView {
        round: 2,
        ..step(Step::Sweep, StepStatus::Succeeded)
    }];
    for (verdict, stays) in [
        (Verdict::Pass, true),
        (Verdict::Error, true),
        (Verdict::Skipped, true),
        (Verdict::Fail, false),
    ] {
        serving.swept = result(verdict);
        assert_eq!(
            matches!(decide(&serving, now()), Decision::Granted(_)),
            stays,
            "{verdict:?}"
        );
    }
    let out = moved(&serving);
    assert_eq!(
        (out.to, out.purpose, out.reason.as_deref()),
        (
            State::Draining,
            Some(Purpose::Repair),
            Some("gate x: 3 errors")
        )
    );
    assert!(matches!(&out.ladder, Some(Ladder::Begin(cause)) if !cause.asked));
    for held in [true, false] {
        (serving.hold, serving.protected) = (held.then(|| Hold::Fleet("5 others".into())), !held);
        let Decision::Granted(told) = decide(&serving, now()) else {
            panic!("it stays")
        };
        assert!(
            told.starts_with("gate x: 3 errors; the node stays in service: "),
            "{told}"
        );
    }
    // Measured failures are kept while other recoveries run first. After too many recoveries a
    // person must inspect the node.
    (serving.hold, serving.protected) = (Some(Hold::Later("2 others".into())), false);
    let Decision::Wait(wait) = decide(&serving, now()) else {
        panic!("it waits its turn")
    };
    assert!(
        wait.until.is_some_and(|until| until > now()) && wait.condition.contains("2 others"),
        "{}",
        wait.condition
    );
    assert!(
        matches!(
            decide(
                &Snapshot {
                    stop: true,
                    ..serving.clone()
                },
                now()
            ),
            Decision::Granted(_)
        ),
        "a person stops it"
    );
    serving.hold = Some(Hold::Node("the node was recovered 2 times".into()));
    let out = moved(&serving);
    assert_eq!(
        (out.to, out.purpose, &out.ladder),
        (State::Draining, Some(Purpose::Repair), &None)
    );
    assert_eq!(
        out.reason.as_deref(),
        Some("gate x: 3 errors; the node was recovered 2 times")
    );
    // Lost contact counts as down; a job that could not be built does not.
    (serving.hold, serving.protected) = (None, false);
    serving.steps = vec![StepView {
        round: 2,
        ..step(Step::Sweep, silent())
    }];
    assert!(
        matches!(moved(&serving).ladder, Some(Ladder::Begin(cause)) if cause.signature == "unreachable")
    );
    serving.scheduler = kept_out(Some("Not responding"));
    assert!(
        matches!(moved(&serving).ladder, Some(Ladder::Begin(_))),
        "that is its scheduler's word for the same"
    );
    serving.scheduler = None;
    serving.steps = vec![step(
        Step::Sweep,
        StepStatus::Failed {
            at: now(),
            failure: failure(false),
        },
    )];
    assert!(matches!(decide(&serving, now()), Decision::Refused(_)));
}

fn kept_out(reason: Option<&str>) -> Option<SchedulerOut> {
    let reason = reason.map(str::to_owned);
    Some(SchedulerOut::new("drained".into(), reason, true))
}

/// A gate without an answer does not let the failure of another gate go, in either order.
#[test]
fn a_failure_beside_an_error_takes_a_node_out() {
    let mut serving = node(State::InService);
    (serving.claim, serving.action) = (Some(ClaimState::Bound), Some(Action::Sweep));
    let mut sweep = suite();
    let other = Gate {
        id: "y".into(),
        ..sweep.gates[0].clone()
    };
    sweep.gates.push(other);
    serving.sweep = Some(sweep);
    serving.steps = vec![StepView {
        round: 2,
        ..step(Step::Sweep, StepStatus::Succeeded)
    }];
    for verdicts in [
        [Verdict::Error, Verdict::Fail],
        [Verdict::Fail, Verdict::Error],
    ] {
        let of_gate = |(id, verdict): (&str, Verdict)| GateResult {
            gate: id.into(),
            ..result(verdict).remove(0)
        };
        serving.swept = ["x", "y"].into_iter().zip(verdicts).map(of_gate).collect();
        let failed = match verdicts[0] == Verdict::Fail {
            true => "gate x: 3 errors",
            false => "gate y: 3 errors",
        };
        let out = moved(&serving);
        assert_eq!(
            (out.to, out.reason.as_deref()),
            (State::Draining, Some(failed))
        );
    }
}

#[test]
fn a_node_that_somebody_else_drained_is_swept_and_left_to_them() {
    let mut theirs = node(State::InService);
    (theirs.claim, theirs.action, theirs.sweep) =
        (Some(ClaimState::Bound), Some(Action::Sweep), Some(suite()));
    theirs.steps = vec![StepView {
        round: 2,
        ..step(Step::Sweep, StepStatus::Succeeded)
    }];
    theirs.swept = result(Verdict::Fail);
    for hold in [
        None,
        Some(Hold::Later("2 others".into())),
        Some(Hold::Node("the node was recovered 2 times".into())),
    ] {
        (theirs.scheduler, theirs.hold) = (kept_out(Some("broken fan")), hold);
        let Decision::Granted(told) = decide(&theirs, now()) else {
            panic!("it stays")
        };
        assert!(
            told.starts_with("gate x: 3 errors; the node stays in service: ")
                && told.contains("(broken fan)"),
            "{told}"
        );
    }
    theirs.hold = None;
    for nobody in [Some("muster: gate y: 1"), Some("Not responding"), None] {
        theirs.scheduler = kept_out(nobody);
        assert_eq!(moved(&theirs).to, State::Draining, "{nobody:?}");
    }
    // A person requesting a recovery has inspected the node.
    (theirs.scheduler, theirs.action, theirs.steps) =
        (kept_out(Some("broken fan")), Some(Action::Recover), vec![]);
    assert_eq!(moved(&theirs).to, State::Draining);
}

#[test]
fn a_loading_sweep_holds_the_node_and_always_returns_it() {
    let mut idle = node(State::InService);
    (idle.claim, idle.action, idle.sweep) =
        (Some(ClaimState::Bound), Some(Action::Sweep), Some(suite()));
    idle.sweep.as_mut().unwrap().gates[0].needs = vec![crate::gates::Need::Drained];
    assert_eq!(decide(&idle, now()), Decision::Start(Step::Hold));
    // A node not known to be idle is swept beside its jobs.
    let out = SchedulerOut::new("drained".into(), None, false);
    let out = Snapshot {
        scheduler: Some(out),
        ..idle.clone()
    };
    let protected = Snapshot {
        protected: true,
        ..idle.clone()
    };
    for beside in [
        out,
        protected,
        Snapshot {
            room: Room::Nothing,
            ..idle.clone()
        },
    ] {
        assert_eq!(decide(&beside, now()), Decision::Start(Step::Sweep));
    }
    let later = Snapshot {
        room: Room::Later,
        ..idle.clone()
    };
    assert!(matches!(decide(&later, now()), Decision::Wait(wait) if wait.until.is_some()));

    idle.held_back = true;
    idle.steps = vec![step(Step::Hold, StepStatus::Running { waiting_for: None })];
    assert!(matches!(decide(&idle, now()), Decision::Wait(_)));
    assert_eq!(
        decide(
            &Snapshot {
                stop: true,
                ..idle.clone()
            },
            now()
        ),
        Decision::Cancel(Step::Hold)
    );
    // The node has jobs: the node is returned to the scheduler, and then swept beside the jobs.
    let failed = StepStatus::Failed {
        at: now(),
        failure: failure(true),
    };
    idle.steps = vec![step(Step::Hold, failed.clone())];
    assert_eq!(decide(&idle, now()), Decision::Start(Step::Admit));
    idle.steps.push(step(Step::Admit, failed));
    assert!(
        matches!(decide(&idle, now()), Decision::Retry(Step::Admit, at) if at > now()),
        "until it works"
    );
    idle.steps[1] = step(Step::Admit, StepStatus::Succeeded);
    assert_eq!(decide(&idle, now()), Decision::Start(Step::Sweep));

    idle.steps = vec![step(Step::Hold, StepStatus::Succeeded)];
    assert_eq!(decide(&idle, now()), Decision::Start(Step::Sweep));
    assert_eq!(
        decide(
            &Snapshot {
                stop: true,
                ..idle.clone()
            },
            now()
        ),
        Decision::Start(Step::Admit),
        "stopped"
    );
    idle.steps.push(StepView {
        round: 2,
        ..step(Step::Sweep, StepStatus::Succeeded)
    });
    idle.swept = result(Verdict::Pass);
    assert_eq!(decide(&idle, now()), Decision::Start(Step::Admit));
    let failing = Snapshot {
        swept: result(Verdict::Fail),
        ..idle.clone()
    };
    assert_eq!(
        moved(&failing).to,
        State::Draining,
        "from where it is, without a job in between"
    );
    idle.steps.push(step(Step::Admit, StepStatus::Succeeded));
    assert!(matches!(decide(&idle, now()), Decision::Granted(_)));

    // The sweep is gone, and the node is still held. Another inspection first returns the node to
    // the scheduler; a pass without any request does the same.
    idle.steps.clear();
    assert_eq!(
        decide(
            &Snapshot {
                action: None,
                ..idle.clone()
            },
            now()
        ),
        Decision::Start(Step::Admit)
    );
    idle.steps = vec![step(Step::Drift, StepStatus::Succeeded)];
    assert_eq!(
        decide(
            &Snapshot {
                action: Some(Action::CheckDrift),
                ..idle
            },
            now()
        ),
        Decision::Start(Step::Admit)
    );
}
