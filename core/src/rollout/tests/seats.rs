//! Places of waiting nodes that the budgets refuse, beside nodes out of service.

use super::*;

/// A serving node that waits for a job, a serving node with the same job, and a node out of service:
/// the budget has no free slot, and the canary is a single node.
fn way_back() -> (RolloutPolicy, Fleet) {
    let policy = RolloutPolicy {
        canary: Some(Canary {
            count: Some(1),
            nodes: Vec::new(),
            soak_s: 0,
        }),
        ..policy()
    };
    let mut fleet = fleet(3);
    for number in [0, 1] {
        fleet.nodes[number].jobs = job_for("7", 600);
    }
    fleet.nodes[0].stage = Stage::Waiting;
    fleet.nodes[2] = out(node(2));
    fleet.budget.max_unavailable = Amount::Count(1);
    (policy, fleet)
}

/// Returns whether the plan gives the first node back, with the code of the reason.
fn given_back(policy: &RolloutPolicy, fleet: &Fleet) -> Option<&'static str> {
    let planned = plan(policy, fleet, start());
    let mut actions = planned.actions.iter();
    let of_first = actions.find(|action| action.node == id(0))?;
    matches!(of_first.act, Act::GiveBack { .. }).then(|| of_first.because.code())
}

#[test]
fn trap_17_a_failed_node_begins_the_way_back_without_a_free_slot() {
    let (policy, mut fleet) = way_back();
    fleet.nodes[0].stage = Stage::NotBegun;
    assert_eq!(closed(&plan(&policy, &fleet, start())), [id(2)]);
    // With a free slot, a serving node is the canary.
    fleet.budget.max_unavailable = Amount::Count(2);
    let planned = plan(&policy, &fleet, start());
    assert_eq!(
        (closed(&planned), acts(&planned, 0)),
        (vec![], vec!["wait"])
    );
    // A node written off uses no slot.
    fleet.budget.max_unavailable = Amount::Count(1);
    fleet.nodes[2].member.written_off_until = Some(start() + minutes(60));
    let planned = plan(&policy, &fleet, start());
    assert_eq!(
        (closed(&planned), acts(&planned, 0)),
        (vec![], vec!["wait"])
    );
}

#[test]
fn trap_17_a_waiting_node_gives_its_place_to_a_failed_one() {
    let (policy, mut fleet) = way_back();
    assert_eq!(given_back(&policy, &fleet), Some("pool_budget"));
    assert!(closed(&plan(&policy, &fleet, start())).is_empty());
    fleet.nodes[0].stage = Stage::NotBegun;
    assert_eq!(closed(&plan(&policy, &fleet, start())), [id(2)]);
    // In service again, the node gives the slot to the first.
    fleet.nodes[2].member.service = Service::Serving;
    fleet.nodes[2].stage = Stage::Done { changed: true };
    fleet.nodes[0].jobs = Jobs::Known(Vec::new());
    assert_eq!(closed(&plan(&policy, &fleet, start())), [id(0)]);
}

#[test]
fn trap_17_a_waiting_node_keeps_its_place_unless_a_failed_node_can_begin() {
    type Set = fn(&mut RolloutPolicy, &mut Fleet);
    let cases: [(&str, Set); 12] = [
        ("the budget has room", |_, fleet| {
            fleet.budget.max_unavailable = Amount::Count(2);
        }),
        ("written off", |_, fleet| {
            fleet.nodes[2].member.written_off_until = Some(start() + minutes(60));
        }),
        ("the failed node is held", |_, fleet| {
            fleet.nodes[2].condition.held = true;
        }),
        ("the failed node has work", |_, fleet| {
            fleet.nodes[2].condition.busy = Some("recovery".to_owned());
        }),
        ("the failed node needs no change", |_, fleet| {
            fleet.nodes[2].effect = Effect::None;
        }),
        ("only a node without room would wait", |_, fleet| {
            fleet.nodes[1].jobs = job_for("8", 60);
            fleet.nodes[2].condition.held = true;
        }),
        ("the failed node begins in a free place", |policy, _| {
            policy.canary.as_mut().unwrap().count = Some(2);
        }),
        ("a person named the canary", |policy, _| {
            policy.canary = Some(Canary {
                count: None,
                nodes: vec!["n0".to_owned()],
                soak_s: 0,
            });
        }),
        ("a node is under change", |policy, fleet| {
            fleet
                .nodes
                .push(staged(3, Stage::Changing(Change::Working)));
            policy.canary.as_mut().unwrap().count = Some(2);
        }),
        ("a node is validated", |policy, fleet| {
            let gating = Stage::Validating(Validation::Gating);
            fleet.nodes.push(staged(3, gating));
            policy.canary.as_mut().unwrap().count = Some(2);
        }),
        ("the slot is another change's", |_, fleet| {
            fleet.budget.max_unavailable = Amount::Count(2);
            fleet.neighbours.push(Member {
                service: Service::Taken,
                ..member(9)
            });
        }),
        ("another failed node waits for its job", |policy, fleet| {
            fleet.nodes.push(out(node(3)));
            fleet.nodes[3].stage = Stage::Waiting;
            fleet.nodes[3].jobs = job_for("8", 600);
            policy.canary.as_mut().unwrap().count = Some(2);
        }),
    ];
    for (name, change) in cases {
        let (mut policy, mut fleet) = way_back();
        change(&mut policy, &mut fleet);
        let planned = plan(&policy, &fleet, start());
        assert_eq!(given_back(&policy, &fleet), None, "{name}: {planned:?}");
    }
}

#[test]
fn trap_17_a_full_domain_lets_a_failed_node_begin() {
    let (policy, mut fleet) = way_back();
    fleet.nodes[0].stage = Stage::NotBegun;
    for node in &mut fleet.nodes {
        node.member.domains = BTreeSet::from(["a".to_owned()]);
    }
    fleet.budget.max_unavailable = Amount::Count(3);
    fleet.budget.domains = vec![domain("a", 1)];
    assert_eq!(closed(&plan(&policy, &fleet, start())), [id(2)]);
    fleet.nodes[0].stage = Stage::Waiting;
    assert_eq!(given_back(&policy, &fleet), Some("domain_budget"));
}

#[test]
fn trap_17_a_unit_without_room_lets_a_failed_node_begin() {
    let (policy, mut fleet) = way_back();
    for number in [0, 1] {
        fleet.nodes[number].member.domains = BTreeSet::from(["u".to_owned()]);
        fleet.nodes[number].stage = Stage::NotBegun;
    }
    fleet.budget.max_unavailable = Amount::Count(2);
    fleet.budget.domains = vec![Domain {
        whole: true,
        ..domain("u", 2)
    }];
    assert_eq!(closed(&plan(&policy, &fleet, start())), [id(2)]);
    for number in [0, 1] {
        fleet.nodes[number].stage = Stage::Waiting;
    }
    let planned = plan(&policy, &fleet, start());
    assert_eq!(
        (acts(&planned, 0), acts(&planned, 1)),
        (vec!["give_back"], vec!["give_back"])
    );
    // A unit with one serving node is not out of service.
    fleet.nodes[0] = out(node(0));
    fleet.nodes[0].member.domains = BTreeSet::from(["u".to_owned()]);
    fleet.nodes[1].stage = Stage::NotBegun;
    fleet.nodes[1].jobs = Jobs::Known(Vec::new());
    fleet.nodes[2].stage = Stage::Skipped;
    fleet.nodes[2].member.service = Service::Serving;
    assert_eq!(closed(&plan(&policy, &fleet, start())), [id(0), id(1)]);
}

#[test]
fn trap_17_a_waiting_node_gives_its_place_to_a_serving_node_with_room() {
    // Nodes 0 and 2 are in a full domain; node 1 is in no domain, and idle.
    let (policy, mut fleet) = way_back();
    for number in [0, 2] {
        fleet.nodes[number].member.domains = BTreeSet::from(["a".to_owned()]);
    }
    fleet.nodes[1].jobs = Jobs::Known(Vec::new());
    fleet.budget.max_unavailable = Amount::Count(2);
    fleet.budget.domains = vec![domain("a", 1)];
    assert_eq!(given_back(&policy, &fleet), Some("domain_budget"));
    fleet.nodes[0].stage = Stage::NotBegun;
    assert_eq!(closed(&plan(&policy, &fleet, start())), [id(1)]);
}

#[test]
fn trap_17_a_node_given_back_does_not_wait_again_beside_its_job_mate() {
    // A held node out of service has the job of the waiting node, and is the first by rack.
    let (mut policy, mut fleet) = way_back();
    policy.order = vec![OrderKey::Rack];
    fleet.nodes.push(out(node(3)));
    fleet.nodes[3].condition.held = true;
    fleet.nodes[3].jobs = job_for("7", 600);
    fleet.nodes[3].rack = Some("a".to_owned());
    fleet.nodes[2].rack = Some("b".to_owned());
    assert_eq!(given_back(&policy, &fleet), Some("pool_budget"));
    fleet.nodes[0].stage = Stage::NotBegun;
    assert_eq!(closed(&plan(&policy, &fleet, start())), [id(2)]);
}

#[test]
fn trap_17_the_last_waiting_node_alone_gives_its_place() {
    let (mut policy, mut fleet) = way_back();
    policy.canary.as_mut().unwrap().count = Some(2);
    fleet.nodes[1].stage = Stage::Waiting;
    fleet.nodes[1].jobs = job_for("8", 700);
    let acts_on_both = |fleet: &Fleet| {
        let planned = plan(&policy, fleet, start());
        (acts(&planned, 0), acts(&planned, 1))
    };
    assert_eq!(acts_on_both(&fleet), (vec![], vec!["give_back"]));
    // The second node of a job would follow the first at once.
    fleet.nodes[1].jobs = job_for("7", 600);
    let both = (vec!["give_back"], vec!["give_back"]);
    assert_eq!(acts_on_both(&fleet), both);
}
