//! The network links of sites. A changing node receives packages, and with a reinstall also the image,
//! over the link of the node's site.

use std::collections::BTreeMap;
use std::fmt;

use super::fleet::{Change, Fleet, Link, Node, Stage};
use crate::ids::ObjectId;

/// Time in which a link supplies all changing nodes, in seconds.
const SUPPLY_S: u64 = 600;

/// A link that supplies changing nodes, without room for further nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FullLink {
    /// Name of the site.
    pub site: String,
    /// Bytes for the changing nodes.
    pub in_use: u64,
    /// Bytes for the further nodes.
    pub needed: u64,
    /// Bytes that the link carries in the supply time.
    pub max: u64,
}

impl fmt::Display for FullLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [in_use, needed, max] = [self.in_use, self.needed, self.max].map(show_gigabytes);
        let minutes = SUPPLY_S / 60;
        write!(
            f,
            "the link of site {} carries {in_use} GB for changing nodes; {needed} GB more would take longer than {minutes} minutes (at most {max} GB)",
            self.site
        )
    }
}

/// The use of a link.
#[derive(Clone, Debug)]
struct Load<'a> {
    site: &'a str,
    /// Bytes for the changing nodes of the rollout.
    own: u64,
    /// Bytes for other nodes.
    others: u64,
    max: u64,
}

/// The links of a planning call, by site. A site without a declared link has no limit.
#[derive(Clone, Debug)]
pub(super) struct Links<'a>(BTreeMap<ObjectId, Load<'a>>);

impl<'a> Links<'a> {
    /// Opens the links with the bytes of the changing nodes.
    pub(super) fn open(fleet: &'a Fleet) -> Self {
        let load = |(site, link): (&ObjectId, &'a Link)| {
            let load = Load {
                site: &link.site,
                own: 0,
                others: link.others,
                max: u64::from(link.mbps) * (1_000_000 / 8) * SUPPLY_S,
            };
            (*site, load)
        };
        let mut links = Self(fleet.links.iter().map(load).collect());
        if !links.0.is_empty() {
            let receiving: Vec<&Node> = fleet.nodes.iter().filter(|node| receives(node)).collect();
            links.take(&receiving);
        }
        links
    }

    /// Checks whether the links can supply all of the nodes beside the changing nodes. Without a changing
    /// node of the rollout, nodes of any size may begin, so the rollout never stops for ever.
    ///
    /// # Errors
    /// Returns the first link without room.
    pub(super) fn check(&self, nodes: &[&Node]) -> Result<(), FullLink> {
        for (site, load) in &self.0 {
            let here = nodes.iter().filter(|node| node.site == *site);
            let bytes = here.map(|node| node.transfer_bytes);
            let needed = bytes.fold(0, u64::saturating_add);
            let in_use = load.own.saturating_add(load.others);
            if needed > 0 && load.own > 0 && in_use.saturating_add(needed) > load.max {
                return Err(FullLink {
                    site: load.site.to_owned(),
                    in_use,
                    needed,
                    max: load.max,
                });
            }
        }
        Ok(())
    }

    /// Adds the bytes of nodes.
    pub(super) fn take(&mut self, nodes: &[&Node]) {
        for node in nodes {
            if let Some(load) = self.0.get_mut(&node.site) {
                load.own = load.own.saturating_add(node.transfer_bytes);
            }
        }
    }
}

/// Returns whether a node may still receive packages or an image.
fn receives(node: &Node) -> bool {
    match &node.stage {
        // A wrong change is tried again.
        Stage::Changing(
            Change::Draining | Change::Drained | Change::Working | Change::Wrong { .. },
        ) => true,
        Stage::Changing(Change::DrainFailed { .. } | Change::DrainCancelled | Change::Arrived)
        | Stage::NotBegun
        | Stage::Waiting
        | Stage::Validating(_)
        | Stage::Done { .. }
        | Stage::Skipped
        | Stage::Failed => false,
    }
}

/// Returns a number of bytes in GB, with one decimal.
fn show_gigabytes(bytes: u64) -> String {
    let tenths = bytes.div_ceil(100_000_000);
    format!("{}.{}", tenths / 10, tenths % 10)
}
