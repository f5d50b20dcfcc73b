//! Tests of every rejection, and of the rendered files.

#![expect(clippy::too_many_lines, reason = "a scenario reads in one piece")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::facts::{Facts, Nic};
use crate::values::Mac;

fn nic(name: &str, last: u8, pci: &str, speed_mbps: Option<u32>) -> Nic {
    let mac = Mac([0x52, 0x54, 0, 0, 0, last]);
    Nic {
        name: name.into(),
        mac,
        driver: None,
        pci_address: Some(pci.into()),
        speed_mbps,
        link_up: true,
    }
}

fn facts() -> Facts {
    let nics = vec![
        nic("eth0", 1, "0000:00:02.0", Some(10_000)),
        nic("eth1", 2, "0000:00:10.0", Some(10_000)),
        nic("eth2", 3, "0000:1a:00.0", Some(400_000)),
    ];
    Facts {
        nics,
        ..Facts::default()
    }
}

fn own() -> Own {
    Own {
        mac: Mac([0x52, 0x54, 0, 0, 0, 1]),
        address: "10.77.0.11".parse().unwrap(),
        subnet: "prov".into(),
        network: "10.77.0.0/24".parse().unwrap(),
        gateway: Some("10.77.0.1".parse().unwrap()),
        dns: vec!["10.77.0.2".parse().unwrap()],
    }
}

fn profile() -> Value {
    json!({
        "interfaces": {
            "first": { "is": { "boot": true }, "mtu": 9000 },
            "second": { "is": { "pci": "0000:00:10.0" }, "mtu": 9000 },
            "rail0": {
                "is": { "rail": 0 }, "mtu": 4200, "addresses": [{ "label": "rail0" }],
                "routes": [{ "to": "10.30.0.0/16", "via": "10.30.1.1" }],
            },
        },
        "bonds": { "bond0": { "members": ["second", "first"], "mode": "active-backup", "primary": "first" } },
        "vlans": { "storage": {
            "id": 120, "over": "bond0", "addresses": [{ "beside": { "subnet": "prov", "network": "10.77.120.0/24" } }],
        }},
    })
}

fn read(profile: Value) -> NetworkProfile {
    serde_json::from_value(profile).expect("a profile")
}

/// The profile with another value at one place; null removes the value.
fn with(pointer: &str, value: Value) -> Value {
    let mut profile = profile();
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
    let parent = profile
        .pointer_mut(parent)
        .expect("what it is in")
        .as_object_mut()
        .expect("an object");
    match value {
        Value::Null => drop(parent.remove(name)),
        value => drop(parent.insert(name.to_owned(), value)),
    }
    profile
}

fn rendered(
    profile: Value,
    change: impl FnOnce(&mut Facts, &mut BTreeMap<String, String>, &mut Own),
) -> Result<String, String> {
    let (mut facts, mut labels, mut own) = (
        facts(),
        BTreeMap::from([("rail0".into(), "10.30.1.11/24".into())]),
        own(),
    );
    change(&mut facts, &mut labels, &mut own);
    let subject = Subject {
        profile: "bonded",
        node: "n1",
        facts: &facts,
        labels: &labels,
        own: &own,
    };
    let files = render(&read(profile), subject)?;
    assert_eq!(NetworkFile::problem(&files), None);
    Ok(files
        .into_iter()
        .map(|NetworkFile { path, content }| format!("=== {path}\n{content}"))
        .collect())
}

#[test]
fn a_bond_a_vlan_and_a_rail_are_rendered() {
    let text = rendered(profile(), |_, _, _| {}).unwrap();
    assert_eq!(text, GOLDEN, "{text}");
}

const GOLDEN: &str = "\
=== /etc/systemd/network/10-muster-bond0.netdev
# Written by Muster from the pool's network profile.
[NetDev]
Name=bond0
Kind=bond
MTUBytes=9000
MACAddress=52:54:00:00:00:01

[Bond]
Mode=active-backup
MIIMonitorSec=100ms
=== /etc/systemd/network/10-muster-first.network
# Written by Muster from the pool's network profile.
[Match]
PermanentMACAddress=52:54:00:00:00:01

[Link]
MTUBytes=9000

[Network]
Bond=bond0
PrimarySlave=yes
DHCP=no
IPv6AcceptRA=no
LinkLocalAddressing=no
=== /etc/systemd/network/10-muster-rail0.network
# Written by Muster from the pool's network profile.
[Match]
PermanentMACAddress=52:54:00:00:00:03

[Link]
MTUBytes=4200

[Network]
Address=10.30.1.11/24
DHCP=no
IPv6AcceptRA=no
LinkLocalAddressing=no

[Route]
Destination=10.30.0.0/16
Gateway=10.30.1.1
=== /etc/systemd/network/10-muster-second.network
# Written by Muster from the pool's network profile.
[Match]
PermanentMACAddress=52:54:00:00:00:02

[Link]
MTUBytes=9000

[Network]
Bond=bond0
DHCP=no
IPv6AcceptRA=no
LinkLocalAddressing=no
=== /etc/systemd/network/10-muster-storage.netdev
# Written by Muster from the pool's network profile.
[NetDev]
Name=storage
Kind=vlan
MTUBytes=9000

[VLAN]
Id=120
=== /etc/systemd/network/10-muster-storage.network
# Written by Muster from the pool's network profile.
[Match]
Name=storage

[Network]
Address=10.77.120.11/24
DHCP=no
IPv6AcceptRA=no
LinkLocalAddressing=no
=== /etc/systemd/network/10-muster.network
# Written by Muster from the pool's network profile.
[Match]
Name=bond0

[Network]
VLAN=storage
Address=10.77.0.11/24
Gateway=10.77.0.1
DNS=10.77.0.2
DHCP=no
IPv6AcceptRA=no
LinkLocalAddressing=no
";

#[test]
fn a_bond_speaks_lacp_as_it_is_told() {
    let lacp = json!({ "members": ["first"], "mode": "802.3ad", "lacp_rate": "fast", "hash_policy": "layer3+4" });
    let text = rendered(with("/bonds/bond0", lacp), |_, _, _| {}).unwrap();
    assert!(
        text.contains("Mode=802.3ad\nMIIMonitorSec=100ms\nTransmitHashPolicy=layer3+4\nLACPTransmitRate=fast\n"),
        "{text}"
    );
}

/// A wrong spec, and the place of the reported fault.
#[test]
fn each_fault_is_told_where_it_stands() {
    let member = |members: Value| json!({ "members": members, "mode": "active-backup" });
    let vlan = |id: u16, over: &str, mtu: u32| json!({ "id": id, "over": over, "mtu": mtu });
    let beside = |network: &str| json!([{ "beside": { "subnet": "prov", "network": network } }]);
    let route = |to: &str, via: &str| json!([{ "to": to, "via": via }]);
    let faulty = [
        (
            "/interfaces/a b",
            json!({ "is": { "rail": 1 } }),
            "interfaces/a b",
        ),
        (
            "/interfaces/0",
            json!({ "is": { "rail": 1 } }),
            "interfaces/0",
        ),
        (
            "/interfaces/lo",
            json!({ "is": { "rail": 1 } }),
            "interfaces/lo",
        ),
        (
            "/interfaces/sixteen-letters0",
            json!({ "is": { "rail": 1 } }),
            "interfaces/sixteen-letters0",
        ),
        (
            "/interfaces/bond0",
            json!({ "is": { "rail": 1 } }),
            "bonds/bond0",
        ),
        (
            "/interfaces/first/is",
            json!({ "boot": false }),
            "interfaces/first/is/boot",
        ),
        (
            "/interfaces/x",
            json!({ "is": { "pci": "1a:00.0" } }),
            "interfaces/x/is/pci",
        ),
        (
            "/interfaces/x",
            json!({ "is": { "pci": "0000:1A:00.0" } }),
            "interfaces/x/is/pci",
        ),
        (
            "/interfaces/x",
            json!({ "is": { "interface": "eth 0" } }),
            "interfaces/x/is/interface",
        ),
        (
            "/interfaces/x",
            json!({ "is": { "rail": 0 } }),
            "interfaces/x/is",
        ),
        ("/interfaces/rail0/mtu", json!(575), "interfaces/rail0/mtu"),
        ("/interfaces/rail0/mtu", json!(9217), "interfaces/rail0/mtu"),
        (
            "/interfaces/first/addresses",
            json!([{ "label": "x" }]),
            "interfaces/first/addresses",
        ),
        (
            "/interfaces/rail0/addresses",
            json!([{ "label": "" }]),
            "interfaces/rail0/addresses/0/label",
        ),
        (
            "/interfaces/rail0/addresses",
            beside("10.30.1.1/24"),
            "interfaces/rail0/addresses/0/beside/network",
        ),
        (
            "/interfaces/rail0/addresses",
            beside("10.30.1.0/31"),
            "interfaces/rail0/addresses/0/beside/network",
        ),
        (
            "/interfaces/rail0/routes",
            route("10.30.0.1/16", "10.30.1.1"),
            "interfaces/rail0/routes/0/to",
        ),
        (
            "/interfaces/rail0/routes",
            route("10.30.0.0/16", "fd00::1"),
            "interfaces/rail0/routes/0/via",
        ),
        ("/bonds/bond0/members", json!([]), "bonds/bond0/members"),
        (
            "/bonds/bond0/members",
            json!(["first", "storage"]),
            "bonds/bond0/members/1",
        ),
        (
            "/bonds/bond0/members",
            json!(["first", "first"]),
            "bonds/bond0/members/1",
        ),
        (
            "/bonds/bond1",
            member(json!(["second"])),
            "bonds/bond1/members/0",
        ),
        ("/bonds/bond0/mtu", json!(9001), "bonds/bond0/mtu"),
        (
            "/bonds/bond0/primary",
            json!("rail0"),
            "bonds/bond0/primary",
        ),
        ("/bonds/bond0/mode", json!("802.3ad"), "bonds/bond0/primary"),
        (
            "/bonds/bond0/hash_policy",
            json!("layer2"),
            "bonds/bond0/hash_policy",
        ),
        (
            "/bonds/bond0/lacp_rate",
            json!("slow"),
            "bonds/bond0/lacp_rate",
        ),
        (
            "/bonds/bond0/mii_interval_ms",
            json!(9),
            "bonds/bond0/mii_interval_ms",
        ),
        ("/vlans/v", vlan(0, "bond0", 1500), "vlans/v/id"),
        ("/vlans/v", vlan(4095, "bond0", 1500), "vlans/v/id"),
        ("/vlans/v", vlan(120, "bond0", 1500), "vlans/v/id"),
        ("/vlans/v", vlan(1, "first", 1500), "vlans/v/over"),
        ("/vlans/v", vlan(1, "storage", 1500), "vlans/v/over"),
        ("/vlans/v", vlan(1, "v", 1500), "vlans/v/over"),
        ("/vlans/v", vlan(1, "rail0", 4201), "vlans/v/mtu"),
        ("/management", json!("eth0"), "management"),
        ("/management", json!("first"), "management"),
        ("/interfaces/first/is", json!({ "rail": 1 }), "interfaces"),
    ];
    assert_eq!(read(profile()).faults(), []);
    for (pointer, value, at) in faulty {
        let faults = read(with(pointer, value.clone())).faults();
        let mut places: Vec<&str> = faults.iter().map(|(place, _)| place.as_str()).collect();
        places.dedup();
        assert!(places.contains(&at), "{pointer} = {value}: {faults:?}");
        assert!(
            faults
                .iter()
                .all(|(_, why)| why.ends_with('.') && why.len() > 15),
            "{faults:?}"
        );
    }
}

#[test]
fn a_bond_in_a_bond_cannot_be_written_down() {
    let faults = read(with(
        "/bonds/bond1",
        json!({ "members": ["bond0"], "mode": "balance-xor" }),
    ))
    .faults();
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(
        faults[0]
            .1
            .contains("interfaces of the profile, not bonds or VLANs"),
        "{faults:?}"
    );
    for unknown in [
        json!({ "is": { "boot": true, "rail": 0 } }),
        json!({ "is": {} }),
        json!({ "is": { "mac": "x" } }),
    ] {
        assert!(serde_json::from_value::<NetworkProfile>(with("/interfaces/x", unknown)).is_err());
    }
}

/// Changes making a node unfit, and words of the error message.
#[test]
fn a_node_that_does_not_fit_is_told_by_name() {
    type Change = fn(&mut Facts, &mut BTreeMap<String, String>, &mut Own);
    let unfit: [(Change, &[&str]); 9] = [
        (
            |facts, _, _| drop(facts.nics.remove(1)),
            &[
                "bonded",
                "n1",
                "at the PCI address 0000:00:10.0 (second)",
                "eth0",
            ],
        ),
        (
            |facts, _, _| drop(facts.nics.remove(0)),
            &["bonded", "n1", "52:54:00:00:00:01", "Inspect"],
        ),
        (
            |facts, _, _| facts.nics[2].link_up = false,
            &["bonded", "n1", "by first and by rail0"],
        ),
        (
            |facts, _, _| facts.nics.iter_mut().for_each(|nic| nic.speed_mbps = None),
            &["that is rail 0", "n1"],
        ),
        (
            |facts, _, _| facts.nics[2].name = "bond0".into(),
            &["makes bond0", "n1"],
        ),
        (|_, labels, _| labels.clear(), &["label rail0", "n1"]),
        (
            |_, labels, _| _ = labels.insert("rail0".into(), "10.30.1.11\nGateway=10.0.0.1".into()),
            &["no address", "n1"],
        ),
        (
            |_, labels, _| _ = labels.insert("rail0".into(), "10.31.1.11/24".into()),
            &["10.30.1.1 is in none", "n1"],
        ),
        (
            |_, _, own| own.subnet = "other".into(),
            &["in the subnet other", "beside prov", "n1"],
        ),
    ];
    for (change, words) in unfit {
        let why = rendered(profile(), change).unwrap_err();
        assert!(
            words.iter().all(|word| why.contains(word)),
            "{words:?} in {why}"
        );
    }
    let large = |_: &mut Facts, _: &mut BTreeMap<String, String>, own: &mut Own| {
        own.network = "10.77.0.0/16".parse().unwrap();
        own.address = "10.77.1.255".parse().unwrap();
    };
    let why = rendered(profile(), large).unwrap_err();
    assert!(why.contains("no host number 511"), "{why}");
    let small = with(
        "/interfaces/rail0",
        json!({ "is": { "rail": 0 }, "mtu": 1279, "addresses": [{ "label": "rail0" }] }),
    );
    let six = |_: &mut Facts, labels: &mut BTreeMap<String, String>, _: &mut Own| {
        labels.insert("rail0".into(), "fd00::11/64".into());
    };
    assert!(rendered(small, six).unwrap_err().contains("at least 1280"));
    let large = with("/interfaces/rail0/routes", Value::Null);
    assert!(
        rendered(large, six)
            .unwrap()
            .contains("Address=fd00::11/64\n")
    );
}

/// Two slow cards with one driver, and four cards with another driver and equal speed: rails 0 to 3
/// if all have a link.
fn cards() -> Vec<Nic> {
    let card = |name: &str, last, pci: &str, driver: &str, speed| Nic {
        driver: Some(driver.into()),
        ..nic(name, last, pci, Some(speed))
    };
    vec![
        card("eth0", 1, "0000:00:02.0", "igb", 1000),
        card("eth1", 2, "0000:00:10.0", "igb", 1000),
        card("rail_c", 5, "0000:9a:00.0", "mlx5_core", 400_000),
        card("rail_a", 3, "0000:1a:00.0", "mlx5_core", 400_000),
        card("rail_b", 4, "0000:2a:00.0", "mlx5_core", 400_000),
        card("rail_d", 6, "0000:ba:00.0", "mlx5_core", 400_000),
    ]
}

/// Cards without a link, the requested rail, and the result: the last byte of the rail's MAC, or
/// the card causing an error.
#[test]
fn a_rail_is_never_another_card_because_one_has_no_link() {
    let one = |rail: u8| json!({ "interfaces": { "first": { "is": { "boot": true } }, "rail": { "is": { "rail": rail } } } });
    let cases: [(&[&str], u8, Result<u8, &str>); 13] = [
        (&[], 0, Ok(3)),
        (&[], 3, Ok(6)),
        (&["eth1"], 0, Ok(3)),
        (&["eth1"], 3, Ok(6)),
        (&["rail_a"], 0, Err("rail_a (0000:1a:00.0)")),
        (&["rail_a"], 2, Err("rail_a (0000:1a:00.0)")),
        (&["rail_b"], 0, Ok(3)),
        (&["rail_b"], 1, Err("rail_b (0000:2a:00.0)")),
        (&["rail_d"], 2, Ok(5)),
        (&["rail_d"], 3, Err("rail_d (0000:ba:00.0)")),
        (&["rail_b", "rail_d"], 0, Ok(3)),
        (&["rail_a", "rail_b", "rail_c"], 0, Err("rail_")),
        (
            &["eth0", "eth1", "rail_a", "rail_b", "rail_c", "rail_d"],
            0,
            Err("eth0 (0000:00:02.0)"),
        ),
    ];
    for (dark, number, expected) in cases {
        let told = rendered(one(number), |facts, _, _| {
            facts.nics = cards();
            for nic in facts
                .nics
                .iter_mut()
                .filter(|nic| dark.contains(&nic.name.as_str()))
            {
                (nic.link_up, nic.speed_mbps) = (false, None);
            }
        });
        match (told, expected) {
            (Ok(text), Ok(last)) => {
                let rail = "10-muster-rail.network\n# Written by Muster from the pool's network profile.\n[Match]\nPermanentMACAddress=52:54:00:00:00:0";
                assert!(
                    text.contains(&format!("{rail}{last}\n")),
                    "{dark:?}, rail {number}: {text}"
                );
            }
            (Err(why), Err(card)) => {
                let words = [
                    "bonded",
                    "n1",
                    &format!("which card is rail {number} cannot be told: {card}"),
                    "has no link",
                    "`pci`",
                ];
                assert!(
                    words.iter().all(|word| why.contains(word)),
                    "{dark:?}, rail {number}: {why}"
                );
            }
            (told, expected) => panic!("{dark:?}, rail {number}: {told:?}, not {expected:?}"),
        }
    }
    // A card with an unknown driver may be a rail.
    let unknown = rendered(one(0), |facts, _, _| {
        facts.nics = cards();
        (facts.nics[1].link_up, facts.nics[1].driver) = (false, None);
    });
    assert!(
        unknown
            .unwrap_err()
            .contains("eth1 (0000:00:10.0) has no link")
    );
    let fewer = rendered(one(4), |facts, _, _| facts.nics = cards());
    assert!(fewer.unwrap_err().contains("that is rail 4"));
}

#[test]
fn of_many_cards_the_unnamed_are_counted() {
    let crowd = |facts: &mut Facts, _: &mut BTreeMap<String, String>, _: &mut Own| {
        let more = (4..=20).map(|last| nic(&format!("eth{last}"), last, "0000:aa:00.0", Some(1)));
        facts.nics.extend(more);
    };
    let missing = with("/interfaces/second/is/pci", json!("0000:ff:00.0"));
    let why = rendered(missing, crowd).unwrap_err();
    assert!(why.contains("and 4 more. Inspect"), "{why}");
    let few = rendered(
        with("/interfaces/second/is/pci", json!("0000:ff:00.0")),
        |_, _, _| {},
    );
    assert!(!few.unwrap_err().contains("more. Inspect"));
}

/// Text of a label, and the reason for a rejection; empty for a valid address.
#[test]
fn an_address_that_no_node_can_have_is_refused() {
    let cases = [
        ("10.30.1.11/24", None),
        ("10.30.1.11/8", None),
        ("10.30.1.11/7", Some("too large to be meant")),
        ("10.30.1.11/0", Some("too large to be meant")),
        ("fd00::11/16", None),
        ("fd00::11/15", Some("too large to be meant")),
        ("10.30.1.0/24", Some("the address of its network itself")),
        ("10.30.1.255/24", Some("a broadcast address")),
        ("10.30.1.255/16", None),
        ("10.30.1.3/30", Some("a broadcast address")),
        ("10.30.1.2/31", None),
        ("10.30.1.3/31", None),
        ("10.30.1.255/32", None),
        ("255.255.255.255/32", Some("a broadcast address")),
        ("fd00::/64", Some("the address of its network itself")),
        ("fd00::ffff:ffff:ffff:ffff/64", None),
        ("fd00::/127", None),
        ("fd00::/128", None),
        ("127.0.0.2/8", Some("a loopback address")),
        ("::1/128", Some("a loopback address")),
        ("224.0.0.5/24", Some("a multicast address")),
        ("ff02::1/64", Some("a multicast address")),
        ("0.0.0.0/24", Some("no address of a node")),
        ("::/64", Some("no address of a node")),
        ("10.30.1.11", Some("no address with a prefix length")),
    ];
    for (text, expected) in cases {
        let profile = with("/interfaces/rail0/routes", Value::Null);
        let told = rendered(profile, |_, labels, _| {
            _ = labels.insert("rail0".into(), text.into())
        });
        match (told, expected) {
            (Ok(files), None) => assert!(
                files.contains(&format!("Address={text}\n")),
                "{text}: {files}"
            ),
            (Err(why), Some(word)) => {
                let words = ["bonded", "n1", "its label rail0 is", text, word];
                assert!(words.iter().all(|word| why.contains(word)), "{text}: {why}");
            }
            (told, expected) => panic!("{text}: {told:?}, not {expected:?}"),
        }
    }
}

#[test]
fn the_own_address_goes_where_it_is_told() {
    let text = rendered(with("/management", json!("storage")), |_, _, _| {}).unwrap();
    assert!(
        text.contains(
            "10-muster.network\n# Written by Muster from the pool's network profile.\n[Match]\nName=storage\n"
        )
    );
    assert!(
        text.contains("Address=10.77.0.11/24\nAddress=10.77.120.11/24\nGateway=10.77.0.1\n"),
        "{text}"
    );
}

/// Any text, for places with free text from a person.
fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("bond0".to_owned()),
        Just("rail0".to_owned()),
        "[a-z]{1,8}[\\x00-\\x7f]{0,3}",
        "\\PC{0,8}",
        any::<String>()
    ]
}

/// An address with or without a suffix, or none.
fn label() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("10.0.0.1/24".to_owned()),
        "10.0.0.1/24[\n-z]{0,3}",
        word()
    ]
}

proptest! {
    /// Accepted profiles render only lines with our own keys, for any input text.
    #[test]
    fn nothing_that_a_person_wrote_begins_a_line(name in word(), pci in word(), bond in word(), label in label(), mtu in 1_u32..10_000) {
        let profile = json!({
            "interfaces": {
                "first": { "is": { "boot": true }, "mtu": 9000 },
                name.clone(): { "is": { "interface": pci }, "mtu": mtu, "addresses": [{ "label": "l" }] },
            },
            "bonds": { bond.clone(): { "members": ["first"], "mode": "balance-xor" } },
            "vlans": { "v": { "id": 1, "over": bond } },
        });
        let (mut facts, labels, own) = (facts(), BTreeMap::from([("l".to_owned(), label)]), own());
        facts.nics[1].name = profile["interfaces"][&name]["is"]["interface"].as_str().unwrap_or("eth1").to_owned();
        let subject = Subject { profile: "p", node: "n", facts: &facts, labels: &labels, own: &own };
        let Ok(files) = render(&read(profile), subject) else { return Ok(()) };
        prop_assert_eq!(NetworkFile::problem(&files), None);
        for line in files.iter().flat_map(|file| file.content.lines()) {
            let plain = line.is_empty() || line.starts_with(['[', '#']);
            let key = line.split('=').next().unwrap_or_default();
            prop_assert!(plain || KEYS.contains(&key), "{line:?}");
            prop_assert!(!line.chars().any(char::is_control), "{line:?}");
        }
    }
}

const KEYS: [&str; 16] = [
    "Name",
    "Kind",
    "MTUBytes",
    "MACAddress",
    "Mode",
    "MIIMonitorSec",
    "Id",
    "PermanentMACAddress",
    "Bond",
    "VLAN",
    "Address",
    "Gateway",
    "DNS",
    "DHCP",
    "IPv6AcceptRA",
    "LinkLocalAddressing",
];
