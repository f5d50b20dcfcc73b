//! Failure domains: groups of nodes that fail together. A site declares axes, and each value on an
//! axis is a domain with a budget of its own.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde::{Deserialize, Serialize};

use super::amount::Amount;
use super::fleet::{Budget, Domain, Member};
use crate::words;

/// Most axes of a site.
pub const MOST_AXES: usize = 8;
/// The longest name of an axis or label, in bytes.
const LONGEST: usize = 63;

/// An axis of failure domains: racks, leaf switches, NVLink domains, power feeds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DomainAxis {
    /// Name of the axis, shown to people: `leaf`. Lower-case letters, digits and `-`.
    pub name: String,
    pub source: DomainSource,
    /// Key of the label, for the sources `rack_label` and `node_label`. Default: the name of the
    /// axis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Nodes of a domain that may be out of service at a time, over all pools: a number, or a
    /// percentage of the domain's nodes (`"25%"`, rounded down, at least 1).
    pub max_unavailable: Amount,
    /// A rollout changes all nodes of a domain together: the nodes leave service at the same time, and
    /// no change starts before the last node is drained. For an NVLink domain.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changed_together: bool,
}

words! {
    /// The source of a node's value on an axis. A node without a value is in no domain of the axis.
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    DomainSource, "source of failure domains" {
        /// The node's rack.
        Rack = "rack",
        /// A label of the node's rack.
        RackLabel = "rack_label",
        /// A label of the node.
        NodeLabel = "node_label",
    }
}

/// The values of a node that decide on its domains.
#[derive(Clone, Copy, Debug)]
pub struct NodePlace<'a> {
    /// Name of the node's rack.
    pub rack: Option<&'a str>,
    pub rack_labels: Option<&'a BTreeMap<String, String>>,
    pub labels: &'a BTreeMap<String, String>,
}

impl DomainAxis {
    /// Returns the key of the label.
    pub fn label(&self) -> &str {
        self.label.as_deref().unwrap_or(&self.name)
    }

    /// Returns the node's domain on the axis, as `axis:value`.
    pub fn find_domain(&self, place: NodePlace<'_>) -> Option<String> {
        let value = match self.source {
            DomainSource::Rack => place.rack?,
            DomainSource::RackLabel => place.rack_labels?.get(self.label())?,
            DomainSource::NodeLabel => place.labels.get(self.label())?,
        };
        Some(format!("{}:{value}", self.name))
    }
}

/// Returns the domains of a node on every axis.
pub fn list_domains(axes: &[DomainAxis], place: NodePlace<'_>) -> BTreeSet<String> {
    axes.iter()
        .filter_map(|axis| axis.find_domain(place))
        .collect()
}

/// Returns the budget of a pool together with the budget of every domain with a member.
pub fn build_budget<'a>(
    max_unavailable: Amount,
    axes: &[DomainAxis],
    members: impl IntoIterator<Item = &'a Member>,
) -> Budget {
    let members = members.into_iter();
    // Many members have the same domains.
    let ids: HashSet<&String> = members.flat_map(|member| &member.domains).collect();
    let ids: BTreeSet<&String> = ids.into_iter().collect();
    let domains = ids.into_iter().filter_map(|id| {
        let (name, _) = id.split_once(':')?;
        let axis = axes.iter().find(|axis| axis.name == name)?;
        Some(Domain {
            id: id.clone(),
            axis: axis.name.clone(),
            max_unavailable: axis.max_unavailable,
            whole: axis.changed_together,
        })
    });
    Budget {
        max_unavailable,
        domains: domains.collect(),
    }
}

/// Lists the wrong members of a site's axes: a JSON pointer below the list, and the reason.
pub fn check_axes(axes: &[DomainAxis]) -> Vec<(String, String)> {
    let mut faults = Vec::new();
    if axes.len() > MOST_AXES {
        faults.push((String::new(), format!("At most {MOST_AXES} axes.")));
    }
    for (index, axis) in axes.iter().enumerate().take(MOST_AXES) {
        if !is_name(&axis.name) {
            let why = format!("1 to {LONGEST} lower-case letters, digits and -.");
            faults.push((format!("/{index}/name"), why));
        }
        if axes[..index].iter().any(|other| other.name == axis.name) {
            faults.push((format!("/{index}/name"), "Used by another axis.".to_owned()));
        }
        match (axis.source, &axis.label) {
            (DomainSource::Rack, Some(_)) => {
                let why = "The source rack takes no label.".to_owned();
                faults.push((format!("/{index}/label"), why));
            }
            (_, Some(label)) if label.is_empty() || label.len() > LONGEST => {
                faults.push((format!("/{index}/label"), format!("1 to {LONGEST} bytes.")));
            }
            (_, _) => {}
        }
    }
    faults
}

fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=LONGEST).contains(&name.len()) && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(name: &str, source: DomainSource, label: Option<&str>) -> DomainAxis {
        DomainAxis {
            name: name.to_owned(),
            source,
            label: label.map(str::to_owned),
            max_unavailable: Amount::Count(1),
            changed_together: false,
        }
    }

    #[test]
    fn each_source_gives_a_domain_or_none() {
        let rack = BTreeMap::from([("feed".to_owned(), "a".to_owned())]);
        let own = BTreeMap::from([("leaf".to_owned(), "l7".to_owned())]);
        let place = NodePlace {
            rack: Some("r1"),
            rack_labels: Some(&rack),
            labels: &own,
        };
        let axes = [
            axis("rack", DomainSource::Rack, None),
            axis("power", DomainSource::RackLabel, Some("feed")),
            axis("leaf", DomainSource::NodeLabel, None),
            axis("nvlink", DomainSource::NodeLabel, None),
        ];
        let found = list_domains(&axes, place);
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            ["leaf:l7", "power:a", "rack:r1"]
        );
        let nowhere = NodePlace {
            rack: None,
            rack_labels: None,
            labels: &BTreeMap::new(),
        };
        assert!(list_domains(&axes, nowhere).is_empty());
    }

    #[test]
    fn wrong_axes_are_named() {
        assert_eq!(check_axes(&[axis("rack", DomainSource::Rack, None)]), []);
        let table = [
            (vec![axis("Rack", DomainSource::Rack, None)], "/0/name"),
            (vec![axis("", DomainSource::Rack, None)], "/0/name"),
            (vec![axis("r", DomainSource::Rack, Some("x"))], "/0/label"),
            (
                vec![axis("r", DomainSource::NodeLabel, Some(""))],
                "/0/label",
            ),
            (
                vec![
                    axis("r", DomainSource::Rack, None),
                    axis("r", DomainSource::NodeLabel, None),
                ],
                "/1/name",
            ),
            (
                (0..9)
                    .map(|number| axis(&format!("a{number}"), DomainSource::Rack, None))
                    .collect(),
                "",
            ),
        ];
        for (axes, pointer) in table {
            let found = check_axes(&axes);
            assert_eq!(found.len(), 1, "{axes:?}: {found:?}");
            assert_eq!(found[0].0, pointer, "{axes:?}");
        }
    }
}
