//! Units: nodes of the rollout that are changed together, because a failure domain is declared whole.
//! Whole domains with a common node form a single unit.

use std::collections::BTreeMap;

use super::fleet::{Change, Fleet, Node, Stage};
use crate::ids::NodeId;

/// The units of a rollout. A domain with a single node of the rollout is no unit.
#[derive(Clone, Debug, Default)]
pub(super) struct Units<'a> {
    units: Vec<Unit<'a>>,
    /// Positions in `units`.
    of_node: BTreeMap<NodeId, usize>,
}

/// A unit: at least two nodes of the rollout.
#[derive(Clone, Debug)]
pub(super) struct Unit<'a> {
    /// The ids of the whole domains, joined by a plus sign.
    pub id: String,
    /// In the order of the fleet.
    pub nodes: Vec<&'a Node>,
}

impl<'a> Units<'a> {
    /// Finds the units of the nodes in a fleet.
    pub(super) fn find(fleet: &'a Fleet) -> Self {
        let declared = fleet.budget.domains.iter().filter(|domain| domain.whole);
        let mut of_domain: BTreeMap<&str, usize> = declared
            .enumerate()
            .map(|(position, domain)| (domain.id.as_str(), position))
            .collect();
        for node in &fleet.nodes {
            let domains = node.member.domains.iter();
            let own = domains.filter_map(|id| of_domain.get(id.as_str()).copied());
            let own: Vec<usize> = own.collect();
            if let Some(&first) = own.first()
                && own.iter().any(|group| *group != first)
            {
                let joined = |group: &&mut usize| own.contains(group);
                of_domain
                    .values_mut()
                    .filter(joined)
                    .for_each(|group| *group = first);
            }
        }
        let mut groups: BTreeMap<usize, Unit<'a>> = BTreeMap::new();
        for node in &fleet.nodes {
            let mut domains = node.member.domains.iter();
            let Some(group) = domains.find_map(|id| of_domain.get(id.as_str())) else {
                continue;
            };
            let ids = || of_domain.iter().filter(|(_, other)| *other == group);
            let unit = groups.entry(*group).or_insert_with(|| Unit {
                id: ids().map(|(id, _)| *id).collect::<Vec<_>>().join("+"),
                nodes: Vec::new(),
            });
            unit.nodes.push(node);
        }
        Self::index(groups.into_values())
    }

    fn index(groups: impl Iterator<Item = Unit<'a>>) -> Self {
        let units: Vec<Unit<'a>> = groups.filter(|unit| unit.nodes.len() > 1).collect();
        let of_node = units.iter().enumerate().flat_map(|(position, unit)| {
            let ids = unit.nodes.iter().map(|node| node.member.node);
            ids.map(move |id| (id, position))
        });
        Self {
            of_node: of_node.collect(),
            units,
        }
    }

    /// Returns the unit of a node.
    pub(super) fn of(&self, node: &Node) -> Option<&Unit<'a>> {
        let position = self.of_node.get(&node.member.node)?;
        self.units.get(*position)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Unit<'a>> {
        self.units.iter()
    }

    /// Returns the number of nodes in the largest unit; 0 without units.
    pub(super) fn largest(&self) -> u32 {
        let sizes = self.units.iter().map(|unit| unit.nodes.len());
        u32::try_from(sizes.max().unwrap_or_default()).unwrap_or(u32::MAX)
    }
}

impl Unit<'_> {
    /// Returns the number of nodes with a property.
    pub(super) fn count(&self, has: impl Fn(&Node) -> bool) -> u32 {
        let count = self.nodes.iter().filter(|node| has(node)).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Returns whether the rollout has admitted the unit: a node waits, or is closed and unchanged.
    pub(super) fn is_admitted(&self) -> bool {
        let is_admitted = |node: &&Node| node.stage == Stage::Waiting || is_closing(node);
        self.nodes.iter().any(is_admitted)
    }
}

/// Returns whether a drain of ours is set on the node, and no change is ordered yet.
pub(super) fn is_closing(node: &Node) -> bool {
    matches!(
        node.stage,
        Stage::Changing(Change::Draining | Change::Drained)
    )
}
