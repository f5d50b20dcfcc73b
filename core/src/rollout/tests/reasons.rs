//! Reasons of nodes, as shown by a plan before the start.

use super::*;

#[test]
fn the_own_reason_of_a_node_is_known_before_the_rollout_comes_to_the_node() {
    let mut fleet = fleet(4);
    fleet.nodes[1].effect = Effect::Reinstall;
    fleet.nodes[2].condition.held = true;
    fleet.nodes[3].effect = Effect::None;
    let policy = RolloutPolicy {
        canary: Some(Canary {
            count: Some(1),
            nodes: Vec::new(),
            soak_s: 1800,
        }),
        ..policy()
    };
    let own = |fleet: &Fleet| -> Vec<Option<&'static str>> {
        let plan = plan(&policy, fleet, start());
        let places = plan.placements.iter();
        places
            .map(|place| place.own.as_ref().map(Because::code))
            .collect()
    };
    let expected = [None, Some("not_allowed"), Some("held"), None];
    assert_eq!(own(&fleet), expected, "behind the canary");
    fleet.window = Opening::Closed { opens: None };
    assert_eq!(own(&fleet), expected, "in a closed window");
    fleet.nodes[1].condition.unreadable = Some("unknown".to_owned());
    assert_eq!(own(&fleet)[1], Some("unreadable"));
    fleet.nodes[1].stage = Stage::Skipped;
    assert_eq!(own(&fleet)[1], None);
}
