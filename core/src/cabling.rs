//! Compares declared cables with the switch ports received by nodes over LLDP. Two cables in each
//! other's ports are reported as swapped, because a technician fixes both in a single walk to the
//! rack.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::facts::Neighbour;

/// Maximum number of cables in a plan: 60 U of nodes with several NICs each, plus reserve.
pub const CABLES_MAX: usize = 2048;
/// Maximum length of a switch, port or interface name, in bytes.
pub const NAME_MAX: usize = 128;

/// A planned cable, from a node's interface to a switch port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Cable {
    /// The node's name.
    pub node: String,
    /// The interface as named in the live image: `eno1`, `enp1s0f0np0`.
    pub nic: String,
    /// The switch's announced name, with or without domain, or its chassis id.
    pub switch: String,
    /// The port as announced by the switch: `Ethernet1/3`.
    pub port: String,
}

impl Cable {
    /// Returns the node's end: `n1 eno1`.
    pub fn end(&self) -> String {
        format!("{} {}", self.node, self.nic)
    }

    /// Returns the switch's end: `leaf1 Ethernet1/3`.
    pub fn place(&self) -> String {
        format!("{} {}", self.switch, self.port)
    }

    fn is_at(&self, heard: &Neighbour) -> bool {
        let name = heard.system_name.as_deref().unwrap_or_default();
        let short = name.split('.').next().unwrap_or_default();
        let known = [name, short, heard.chassis.as_str()];
        let switch = known
            .iter()
            .any(|known| !known.is_empty() && known.eq_ignore_ascii_case(&self.switch));
        let ports = [Some(heard.port.as_str()), heard.port_description.as_deref()];
        switch
            && ports
                .iter()
                .flatten()
                .any(|known| known.eq_ignore_ascii_case(&self.port))
    }
}

/// The observed state of a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum CableState {
    /// In the planned port.
    Right,
    /// In another cable's port, with the other cable in the port of this cable.
    Swapped,
    /// In another port.
    Elsewhere,
    /// The interface receives LLDP from more than one port, so the actual port is unknown.
    Ambiguous,
    /// The node was inspected, and the interface received no LLDP from a switch.
    Silent,
    /// The node has not been inspected yet.
    Unseen,
}

impl CableState {
    /// Returns whether a technician must go to the rack.
    pub fn wrong(self) -> bool {
        matches!(self, Self::Swapped | Self::Elsewhere | Self::Ambiguous)
    }
}

/// A planned cable with its observed state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CableFinding {
    pub cable: Cable,
    pub state: CableState,
    /// A one-sentence description. Two swapped cables share the same sentence.
    pub told: String,
}

/// Compares a plan with the LLDP neighbours of each node. A node missing from `heard` has never
/// been inspected.
pub fn findings(plan: &[Cable], heard: &BTreeMap<String, Vec<Neighbour>>) -> Vec<CableFinding> {
    let all_at = |cable: &Cable| -> Vec<&Neighbour> {
        let heard = heard.get(&cable.node).into_iter().flatten();
        heard
            .filter(|neighbour| neighbour.nic == cable.nic)
            .collect()
    };
    let at = |cable: &Cable| match all_at(cable)[..] {
        [found] => Some(found),
        _ => None,
    };
    plan.iter()
        .map(|cable| {
            let (state, told) = match (heard.contains_key(&cable.node), at(cable)) {
                (false, _) => (
                    CableState::Unseen,
                    format!("{} was not looked at yet", cable.node),
                ),
                (true, None) if all_at(cable).len() > 1 => {
                    (CableState::Ambiguous, ambiguous(cable, &all_at(cable)))
                }
                (true, None) => (
                    CableState::Silent,
                    format!("{} heard no switch", cable.end()),
                ),
                (true, Some(found)) if cable.is_at(found) => {
                    (CableState::Right, format!("{} is right", cable.end()))
                }
                (true, Some(found)) => {
                    // The planned owner of the port found.
                    let owner = plan.iter().find(|other| other.is_at(found));
                    match owner.filter(|owner| at(owner).is_some_and(|there| cable.is_at(there))) {
                        Some(other) => (CableState::Swapped, describe_swap(cable, other)),
                        None => (
                            CableState::Elsewhere,
                            describe_misplaced(cable, found, owner),
                        ),
                    }
                }
            };
            CableFinding {
                cable: cable.clone(),
                state,
                told,
            }
        })
        .collect()
}

/// Returns a sentence per problem; two swapped cables share a sentence.
pub fn sentences(found: &[CableFinding]) -> Vec<String> {
    let mut told: Vec<String> = Vec::new();
    for finding in found.iter().filter(|finding| finding.state.wrong()) {
        if !told.contains(&finding.told) {
            told.push(finding.told.clone());
        }
    }
    told
}

/// Returns the same sentence for both cables of a swapped pair.
fn describe_swap(one: &Cable, other: &Cable) -> String {
    let (first, second) = if one <= other {
        (one, other)
    } else {
        (other, one)
    };
    format!(
        "{} and {} are swapped: {} belongs in {}, {} in {}",
        first.end(),
        second.end(),
        first.end(),
        first.place(),
        second.end(),
        second.place()
    )
}

fn describe_misplaced(cable: &Cable, found: &Neighbour, owner: Option<&Cable>) -> String {
    let whose = owner.map_or_else(String::new, |owner| {
        format!(", the port of {}", owner.end())
    });
    format!(
        "{} is in {}{whose}; it belongs in {}",
        cable.end(),
        format_port(found),
        cable.place()
    )
}

fn ambiguous(cable: &Cable, found: &[&Neighbour]) -> String {
    let places: Vec<String> = found.iter().map(|found| format_port(found)).collect();
    format!(
        "{} hears {}: something passes on what only neighbours should hear; it belongs in {}",
        cable.end(),
        places.join(" and "),
        cable.place()
    )
}

/// Formats a switch and port by their announced names.
fn format_port(found: &Neighbour) -> String {
    let port = found.port_description.as_ref().unwrap_or(&found.port);
    let switch = found.system_name.as_deref().unwrap_or(&found.chassis);
    format!("{switch} {port}")
}

/// Returns the problems of a plan, as the index of the cable and a sentence.
pub fn lint(plan: &[Cable]) -> Vec<(usize, String)> {
    let mut problems = Vec::new();
    let mut ends: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut places: BTreeMap<(String, String), usize> = BTreeMap::new();
    for (at, cable) in plan.iter().enumerate() {
        let words = [&cable.node, &cable.nic, &cable.switch, &cable.port];
        if words.iter().any(|word| {
            word.trim().is_empty() || word.len() > NAME_MAX || word.chars().any(char::is_control)
        }) {
            problems
                .push((at, format!("node, nic, switch and port are 1 to {NAME_MAX} bytes without control characters")));
        }
        if let Some(first) = ends.insert((&cable.node, &cable.nic), at) {
            problems.push((
                at,
                format!("{} has a cable already, number {}", cable.end(), first + 1),
            ));
        }
        let place = (
            cable.switch.to_ascii_lowercase(),
            cable.port.to_ascii_lowercase(),
        );
        if let Some(first) = places.insert(place, at) {
            problems.push((
                at,
                format!(
                    "{} has a cable already, number {}",
                    cable.place(),
                    first + 1
                ),
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cable(node: usize) -> Cable {
        Cable {
            node: format!("n{node}"),
            nic: "eno1".into(),
            switch: "leaf1".into(),
            port: format!("Eth1/{node}"),
        }
    }

    fn heard(port: usize) -> Vec<Neighbour> {
        vec![Neighbour {
            nic: "eno1".into(),
            chassis: "00:11:22:33:44:55".into(),
            port: format!("eth1/{port}"),
            system_name: Some("LEAF1.example.net".into()),
            port_description: None,
        }]
    }

    #[test]
    fn two_switches_at_one_end_are_told_and_neither_is_believed() {
        let other = Neighbour {
            chassis: "c2".into(),
            system_name: None,
            ..heard(1).remove(0)
        };
        let both = [("n1".to_owned(), [heard(1), vec![other]].concat())].into();
        let found = findings(&[cable(1)], &both);
        assert_eq!(found[0].state, CableState::Ambiguous);
        assert_eq!(
            sentences(&found),
            [
                "n1 eno1 hears LEAF1.example.net eth1/1 and c2 eth1/1: something passes on what only neighbours should hear; it belongs in leaf1 Eth1/1"
            ]
        );
    }

    /// The list index is the node, and the number is its port; 0 means no cable.
    fn rack(ports: &[usize]) -> (Vec<Cable>, BTreeMap<String, Vec<Neighbour>>) {
        let plan = (1..=ports.len()).map(cable).collect();
        let found = ports.iter().enumerate().map(|(at, port)| {
            let neighbours = if *port == 0 { Vec::new() } else { heard(*port) };
            (format!("n{}", at + 1), neighbours)
        });
        (plan, found.collect())
    }

    fn states(ports: &[usize]) -> Vec<CableState> {
        let (plan, heard) = rack(ports);
        findings(&plan, &heard)
            .iter()
            .map(|finding| finding.state)
            .collect()
    }

    #[test]
    fn two_in_each_others_ports_are_swapped() {
        use CableState::{Elsewhere, Right, Silent, Swapped};
        assert_eq!(states(&[1, 2, 3]), [Right, Right, Right]);
        assert_eq!(states(&[1, 3, 2]), [Right, Swapped, Swapped]);
        assert_eq!(states(&[2, 3, 1]), [Elsewhere, Elsewhere, Elsewhere]);
        assert_eq!(states(&[2, 0, 9]), [Elsewhere, Silent, Elsewhere]);
        let (plan, heard) = rack(&[2, 1]);
        let found = findings(&plan, &heard);
        let sentence = "n1 eno1 and n2 eno1 are swapped: n1 eno1 belongs in leaf1 Eth1/1, n2 eno1 in leaf1 Eth1/2";
        assert!(
            found.iter().all(|finding| finding.told == sentence),
            "{found:?}"
        );
        assert_eq!(sentences(&found), [sentence]);
    }

    #[test]
    fn where_a_cable_is_and_whose_port_that_is() {
        let (plan, mut heard) = rack(&[2, 0]);
        let told =
            |heard: &BTreeMap<String, Vec<Neighbour>>| findings(&plan, heard)[0].told.clone();
        let tail = "it belongs in leaf1 Eth1/1";
        assert_eq!(
            told(&heard),
            format!("n1 eno1 is in LEAF1.example.net eth1/2, the port of n2 eno1; {tail}")
        );
        heard.insert("n1".into(), self::heard(40));
        assert_eq!(
            told(&heard),
            format!("n1 eno1 is in LEAF1.example.net eth1/40; {tail}")
        );
        heard.remove("n1");
        assert_eq!(findings(&plan, &heard)[0].state, CableState::Unseen);
    }

    #[test]
    fn a_switch_is_known_by_either_name_or_its_chassis() {
        let mut plan = vec![cable(1)];
        for (switch, right) in [
            ("leaf1", true),
            ("leaf1.example.net", true),
            ("00:11:22:33:44:55", true),
            ("leaf", false),
            ("", false),
        ] {
            plan[0].switch = switch.into();
            let found = findings(&plan, &[("n1".to_owned(), heard(1))].into());
            assert_eq!(found[0].state == CableState::Right, right, "{switch:?}");
        }
        // An announced switch without a name must not match a cable declared without a switch name.
        plan[0].switch = String::new();
        let nameless = vec![Neighbour {
            system_name: None,
            ..heard(1).remove(0)
        }];
        assert_eq!(lint(&plan).len(), 1);
        assert_ne!(
            findings(&plan, &[("n1".to_owned(), nameless)].into())[0].state,
            CableState::Right
        );
    }

    #[test]
    fn a_port_is_known_by_its_id_or_its_name() {
        let neighbour = Neighbour {
            port: "02:00:5e:00:53:03".into(),
            port_description: Some("Eth1/1".into()),
            ..heard(9).remove(0)
        };
        let found = findings(&[cable(1)], &[("n1".to_owned(), vec![neighbour])].into());
        assert_eq!(found[0].state, CableState::Right);
    }

    #[test]
    fn a_plan_gives_each_end_one_cable() {
        assert!(lint(&[cable(1), cable(2)]).is_empty());
        let other = Cable {
            port: "eth1/1".into(),
            ..cable(2)
        };
        assert_eq!(
            lint(&[cable(1), other]),
            [(1, "leaf1 eth1/1 has a cable already, number 1".to_owned())]
        );
        assert_eq!(
            lint(&[
                cable(1),
                Cable {
                    port: "9".into(),
                    ..cable(1)
                }
            ])[0]
                .0,
            1
        );
        assert_eq!(
            lint(&[Cable {
                nic: "\u{1b}[2J".into(),
                ..cable(1)
            }])
            .len(),
            1
        );
        assert_eq!(
            lint(&[Cable {
                port: "p".repeat(NAME_MAX + 1),
                ..cable(1)
            }])
            .len(),
            1
        );
    }

    proptest! {
        /// For any mix of cables, correct cables are `Right`, and each pair of exchanged cables is
        /// `Swapped`.
        #[test]
        fn no_right_cable_is_called_wrong(ports in Just((1..=9usize).collect::<Vec<_>>()).prop_shuffle()) {
            let states = states(&ports);
            for (at, state) in states.iter().enumerate() {
                let port = ports[at];
                let wanted = match () {
                    () if port == at + 1 => CableState::Right,
                    () if ports[port - 1] == at + 1 => CableState::Swapped,
                    () => CableState::Elsewhere,
                };
                prop_assert_eq!(*state, wanted, "{:?}", &ports);
            }
        }
    }
}
