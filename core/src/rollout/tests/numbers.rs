//! The numbers of waves: of begun nodes by time, of all others as the planner would take them.

use super::*;

fn by_twos() -> RolloutPolicy {
    RolloutPolicy {
        canary: Some(Canary {
            count: Some(1),
            nodes: Vec::new(),
            soak_s: 0,
        }),
        waves: Waves::Sizes(vec![Amount::Count(2), Amount::Count(2)]),
        ..policy()
    }
}

fn numbers(policy: &RolloutPolicy, fleet: &Fleet) -> Vec<Option<u32>> {
    let numbers = number_waves(policy, fleet, start());
    let nodes = fleet.nodes.iter();
    nodes
        .map(|node| numbers.get(&node.member.node).copied())
        .collect()
}

#[test]
fn begun_nodes_come_first_and_nodes_without_a_change_have_no_number() {
    let mut fleet = fleet(7);
    assert_eq!(
        numbers(&by_twos(), &fleet),
        [0, 1, 1, 2, 2, 3, 3].map(Some),
        "the rest is a wave of its own"
    );
    fleet.nodes[4].stage = Stage::Done { changed: true };
    fleet.nodes[0].stage = Stage::Changing(Change::Working);
    fleet.nodes[0].since = start() + minutes(10);
    fleet.nodes[2].stage = Stage::Skipped;
    fleet.nodes[3].effect = Effect::None;
    fleet.nodes[5].effect = Effect::Wipe;
    let expected = [Some(1), Some(1), None, None, Some(0), None, Some(2)];
    assert_eq!(numbers(&by_twos(), &fleet), expected);
}

#[test]
fn a_canary_by_name_takes_no_place_in_a_wave() {
    let mut named = by_twos();
    named.canary = Some(Canary {
        count: None,
        nodes: vec!["n3".to_owned()],
        soak_s: 0,
    });
    let expected = [1, 1, 2, 0, 2].map(Some);
    assert_eq!(numbers(&named, &fleet(5)), expected);
    named.canary = None;
    assert_eq!(numbers(&named, &fleet(3)), [1, 1, 2].map(Some));
}

#[test]
fn a_unit_is_in_a_single_wave() {
    let mut fleet = fleet(5);
    fleet.budget.domains = vec![whole("nvl:1", 1000)];
    for node in &mut fleet.nodes[1..4] {
        node.member.domains = ["nvl:1".to_owned()].into();
    }
    let without = RolloutPolicy {
        canary: None,
        ..by_twos()
    };
    // Waves have room for the largest unit: n0 alone, the unit, n4.
    assert_eq!(numbers(&without, &fleet), [1, 2, 2, 2, 3].map(Some));
}
