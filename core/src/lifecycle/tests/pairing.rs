//! The actions required of a node in service by a run of pairs, and the requests with higher
//! priority.

use super::super::snapshot::Pairing;
use super::*;

fn asked(wanted: Pairing) -> Snapshot {
    Snapshot {
        claim: Some(ClaimState::Bound),
        installed: true,
        pairing: Some(wanted),
        ..node(State::InService)
    }
}

fn faulty() -> Snapshot {
    asked(Pairing::Faulty(Cause::pairs(
        "iperf3-pair",
        "n1 fails with n2, n3, who pass with others".into(),
    )))
}

#[test]
fn a_node_is_held_measured_as_often_as_asked_and_given_back() {
    assert_eq!(
        decide(&asked(Pairing::Hold), now()),
        Decision::Start(Step::Hold)
    );
    let mut measured = asked(Pairing::Measure);
    assert_eq!(decide(&measured, now()), Decision::Start(Step::Pair));
    for status in [
        StepStatus::Succeeded,
        StepStatus::Cancelled,
        StepStatus::Failed {
            at: now(),
            failure: failure(false),
        },
    ] {
        measured.steps = vec![step(Step::Pair, status)];
        assert_eq!(
            decide(&measured, now()),
            Decision::Retry(Step::Pair, now()),
            "with another node"
        );
    }
    for status in [
        StepStatus::Queued,
        StepStatus::Running { waiting_for: None },
        StepStatus::Lost,
    ] {
        measured.steps = vec![step(Step::Pair, status)];
        assert!(matches!(decide(&measured, now()), Decision::Wait(_)));
        // The run was stopped: its step must end before jobs start again.
        let over = Snapshot {
            pairing: Some(Pairing::GiveBack(now())),
            ..measured.clone()
        };
        assert_eq!(decide(&over, now()), Decision::Cancel(Step::Pair));
    }
    let later = now() + jiff::SignedDuration::from_secs(30);
    let mut back = asked(Pairing::GiveBack(later));
    assert_eq!(decide(&back, now()), Decision::Start(Step::Admit));
    back.steps = vec![step(
        Step::Admit,
        StepStatus::Failed {
            at: now(),
            failure: failure(false),
        },
    )];
    assert_eq!(
        decide(&back, now()),
        Decision::Retry(Step::Admit, later),
        "until it works"
    );
    assert!(matches!(
        decide(&asked(Pairing::Back), now()),
        Decision::Granted(_)
    ));
    let Decision::Wait(wait) = decide(&asked(Pairing::Waits("the others".into())), now()) else {
        panic!("must wait")
    };
    assert!(wait.condition == "the others" && wait.until.is_some_and(|until| until > now()));
}

#[test]
fn a_blamed_end_is_taken_out_as_one_that_fails_its_gates() {
    let Decision::Advance(out) = decide(&faulty(), now()) else {
        panic!("must leave")
    };
    assert_eq!(
        (out.to, out.purpose),
        (State::Draining, Some(Purpose::Repair))
    );
    assert!(
        matches!(out.ladder, Some(Ladder::Begin(cause)) if cause.signature == "gate:iperf3-pair")
    );
    // The bounds of a recovery apply here too: the node takes jobs again.
    let held = Snapshot {
        hold: Some(Hold::Fleet("too many".into())),
        ..faulty()
    };
    assert_eq!(decide(&held, now()), Decision::Start(Step::Admit));
    assert_eq!(
        decide(
            &Snapshot {
                protected: true,
                ..faulty()
            },
            now()
        ),
        Decision::Start(Step::Admit)
    );
    let scheduler = SchedulerOut::new("drained".into(), Some("broken fan".into()), true);
    assert_eq!(
        decide(
            &Snapshot {
                scheduler: Some(scheduler),
                ..faulty()
            },
            now()
        ),
        Decision::Start(Step::Admit)
    );
}

#[test]
fn what_a_person_asks_goes_before_the_run() {
    for wanted in [
        Pairing::Hold,
        Pairing::Measure,
        Pairing::Waits("x".into()),
        Pairing::GiveBack(now()),
    ] {
        let mut one = asked(wanted);
        one.steps = vec![step(Step::Pair, StepStatus::Running { waiting_for: None })];
        one.action = Some(Action::Drain);
        assert_eq!(decide(&one, now()), Decision::Cancel(Step::Pair));
        one.steps.clear();
        assert!(matches!(
            decide(&one, now()),
            Decision::Advance(Move {
                to: State::Draining,
                ..
            })
        ));
        (one.action, one.claim) = (None, Some(ClaimState::Releasing));
        assert!(
            matches!(decide(&one, now()), Decision::Advance(Move { to: State::Draining, purpose, .. }) if purpose == Some(Purpose::Release))
        );
    }
}
