//! Network links of sites.

use super::*;

const OTHER_SITE: ObjectId = ObjectId(Uuid::from_u128(1));

/// A fleet at a site whose link supplies 3 GB in ten minutes. Each node receives 1 GB.
fn limited(count: usize) -> Fleet {
    let link = Link {
        site: "zrh".to_owned(),
        mbps: 40,
        others: 0,
    };
    Fleet {
        links: BTreeMap::from([(SITE, link)]),
        ..fleet(count)
    }
}

#[test]
fn a_link_bounds_the_nodes_that_change_at_the_same_time() {
    let mut fleet = limited(6);
    fleet.nodes[0] = staged(0, Stage::Changing(Change::Working));
    let planned = plan(&policy(), &fleet, start());
    assert_eq!(closed(&planned), [id(1), id(2)]);
    assert_eq!(why(&planned, 3), Some("link"));
    assert_eq!(planned.concurrency.max, 3);
    let rule = planned.concurrency.bound_by.unwrap();
    assert_eq!(
        rule.to_string(),
        "the link of site zrh carries 3.0 GB for changing nodes; 1.0 GB more would take longer than 10 minutes (at most 3.0 GB)"
    );

    // A node that runs the target has received everything.
    fleet.nodes[0] = staged(0, Stage::Changing(Change::Arrived));
    let planned = plan(&policy(), &fleet, start());
    assert_eq!(closed(&planned), [id(1), id(2), id(3)]);
}

#[test]
fn nodes_of_other_sites_and_nodes_without_a_transfer_go_on() {
    let mut fleet = limited(5);
    fleet.nodes[0] = staged(0, Stage::Changing(Change::Draining));
    fleet.links.get_mut(&SITE).unwrap().others = 3_000_000_000;
    fleet.nodes[2].site = OTHER_SITE;
    fleet.nodes[3].transfer_bytes = 0;
    let planned = plan(&policy(), &fleet, start());
    assert_eq!(closed(&planned), [id(2), id(3)]);
    assert_eq!(
        [1, 4].map(|number| why(&planned, number)),
        [Some("link"); 2]
    );
}

#[test]
fn one_node_of_the_rollout_may_always_change() {
    let mut fleet = limited(2);
    for node in &mut fleet.nodes {
        node.transfer_bytes = u64::MAX;
    }
    assert_eq!(closed(&plan(&policy(), &fleet, start())), [id(0)]);
    // A node may be imaged for days at the same site.
    fleet.links.get_mut(&SITE).unwrap().others = 9_000_000_000;
    let planned = plan(&policy(), &fleet, start());
    assert_eq!(closed(&planned), [id(0)]);
    assert_eq!(planned.binding.map(|rule| rule.code()), Some("link"));
}

#[test]
fn an_estimate_assumes_that_other_uses_of_the_link_end() {
    let mut fleet = limited(6);
    let find_end = |fleet: &Fleet| match estimate(&policy(), fleet, &Calendar::default(), start()) {
        Eta::Ends(estimate) => Some((estimate.early, estimate.late)),
        Eta::Ended | Eta::Unknown { .. } => None,
    };
    let free = find_end(&fleet);
    assert!(free.is_some());
    fleet.links.get_mut(&SITE).unwrap().others = 9_000_000_000;
    assert_eq!(find_end(&fleet), free);
    fleet.links.clear();
    assert_ne!(find_end(&fleet), free);
}

#[test]
fn a_change_that_is_tried_again_uses_the_link() {
    let mut fleet = limited(4);
    let result = "no image".to_owned();
    fleet.nodes[0] = staged(0, Stage::Changing(Change::Wrong { result }));
    let planned = plan(&policy(), &fleet, start());
    assert_eq!(acts(&planned, 0), ["change"]);
    assert_eq!(closed(&planned), [id(1), id(2)]);
}

#[test]
fn a_unit_begins_when_the_link_has_room_for_all_its_nodes() {
    let mut fleet = limited(4);
    fleet.budget.domains = vec![whole("nvl:1", 1000)];
    for number in [1, 2, 3] {
        let domains = &mut fleet.nodes[number].member.domains;
        domains.insert("nvl:1".to_owned());
    }
    fleet.nodes[0] = staged(0, Stage::Changing(Change::Working));
    let planned = plan(&policy(), &fleet, start());
    assert!(closed(&planned).is_empty());
    assert_eq!(why(&planned, 1), Some("unit_limit"));
    fleet.nodes[0] = done(0);
    assert_eq!(closed(&plan(&policy(), &fleet, start())).len(), 3);

    // A unit larger than the link, closed in part.
    for number in [1, 2, 3] {
        fleet.nodes[number].transfer_bytes = 2_000_000_000;
    }
    for number in [1, 2] {
        fleet.nodes[number].stage = Stage::Changing(Change::Draining);
        fleet.nodes[number].member.service = Service::Taken;
    }
    assert_eq!(closed(&plan(&policy(), &fleet, start())), [id(3)]);
}
