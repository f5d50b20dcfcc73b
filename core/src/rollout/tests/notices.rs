//! Notices to users, and the limit of their deferrals.

use super::*;

/// A policy with notices a day and an hour before the change.
fn with_notices() -> RolloutPolicy {
    RolloutPolicy {
        notice_before_s: vec![86_400, 3600],
        max_deferral_s: 7200,
        ..policy()
    }
}

/// A node announced for 2 days after the start, with two jobs of alice and a job of bob.
fn announced() -> Fleet {
    let mut fleet = fleet(1);
    let mut of_bob = job("9", None);
    of_bob.holder = "bob".to_owned();
    fleet.nodes[0].jobs = Jobs::Known(vec![job("7", None), job("8", None), of_bob]);
    fleet.nodes[0].announced_for = Some(start() + minutes(48 * 60));
    fleet
}

fn holders(fleet: &Fleet, now: Timestamp) -> Vec<(String, Timestamp)> {
    let due = find_due_notices(&with_notices(), fleet, now);
    due.into_iter()
        .map(|notice| (notice.holder, notice.due))
        .collect()
}

#[test]
fn each_holder_gets_each_notice_once() {
    let mut fleet = announced();
    let (day, hour) = (start() + minutes(24 * 60), start() + minutes(47 * 60));
    assert_eq!(holders(&fleet, day - minutes(1)), []);
    let both = |due| vec![("alice".to_owned(), due), ("bob".to_owned(), due)];
    assert_eq!(holders(&fleet, day), both(day));
    fleet.nodes[0].notified.insert(("alice".to_owned(), day));
    assert_eq!(holders(&fleet, day), [("bob".to_owned(), day)]);
    // Of two due times that have passed the last counts.
    assert_eq!(holders(&fleet, hour), both(hour));
    fleet.nodes[0].notified.extend(both(hour));
    assert_eq!(holders(&fleet, hour + minutes(59)), []);
    fleet.nodes[0].notified.clear();
    assert_eq!(
        holders(&fleet, hour + minutes(60)),
        [],
        "the change may start"
    );
}

#[test]
fn a_deferral_moves_the_notices() {
    let mut fleet = announced();
    let hour = start() + minutes(47 * 60);
    fleet.nodes[0].notified.insert(("alice".to_owned(), hour));
    fleet.nodes[0].condition.deferred_until = Some(hour + minutes(120));
    assert_eq!(
        holders(&fleet, hour + minutes(59)).len(),
        2,
        "the day's notice for the new time"
    );
    let moved = hour + minutes(60);
    assert_eq!(holders(&fleet, moved)[0], ("alice".to_owned(), moved));
}

#[test]
fn a_notice_says_when_what_and_until_when_to_defer() {
    let mut fleet = announced();
    let now = start() + minutes(24 * 60);
    let text = |policy: &RolloutPolicy, fleet: &Fleet, now| {
        let due = find_due_notices(policy, fleet, now);
        due.first().map(|notice| notice.text.clone())
    };
    assert_eq!(
        text(&with_notices(), &fleet, now).unwrap(),
        "Node n0 gets a change with the effect reboot at 2026-11-28T08:00:00Z or later. Running jobs \
         may end first. A deferral is possible until 2026-11-28T10:00:00Z."
    );
    // The drain deadline ends the jobs of a waiting node.
    let requeue = RolloutPolicy {
        drain: DrainPolicy::Deadline {
            after_s: 7200,
            then: AfterDeadline::Requeue,
        },
        ..with_notices()
    };
    fleet.nodes[0].stage = Stage::Waiting;
    assert_eq!(
        text(&requeue, &fleet, start() + minutes(60)).unwrap(),
        "Node n0 gets a change with the effect reboot at 2026-11-26T10:00:00Z or later. Jobs that \
         still run then are requeued."
    );
    fleet.control = Control::Halted(HaltReason::Person("look".to_owned()));
    assert_eq!(text(&with_notices(), &fleet, now), None, "halted");
    let mut done = announced();
    done.nodes[0].stage = Stage::Done { changed: true };
    assert_eq!(text(&with_notices(), &done, now), None);
    let mut unneeded = announced();
    unneeded.nodes[0].effect = Effect::None;
    assert_eq!(text(&with_notices(), &unneeded, now), None);
}

#[test]
fn a_deferral_has_a_limit() {
    let fleet = announced();
    let latest = start() + minutes(50 * 60);
    let ask = |policy: &RolloutPolicy, asked| limit_deferral(policy, &fleet.nodes[0], asked);
    assert_eq!(ask(&with_notices(), latest), Ok(latest));
    let late = ask(&with_notices(), latest + minutes(1)).unwrap_err();
    assert_eq!(late, DeferralRefused::TooLate { latest });
    assert_eq!(
        (late.code(), late.to_string().as_str()),
        (
            "deferral_too_late",
            "defer until 2026-11-28T10:00:00Z at the latest"
        )
    );
    assert_eq!(ask(&policy(), start()), Err(DeferralRefused::NotAllowed));
    let unannounced = limit_deferral(&with_notices(), &node(0), start());
    assert_eq!(unannounced, Err(DeferralRefused::NotAnnounced));
}

#[test]
fn a_node_is_not_closed_before_the_announced_time() {
    let mut fleet = announced();
    fleet.nodes[0].jobs = Jobs::Known(Vec::new());
    let announced = fleet.nodes[0].announced_for.unwrap();
    let early = plan(&policy(), &fleet, announced - minutes(1));
    assert_eq!((closed(&early), why(&early, 0)), (vec![], Some("deferred")));
    assert_eq!(closed(&plan(&policy(), &fleet, announced)), [id(0)]);
}
