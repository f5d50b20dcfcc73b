//! The bytes that nodes receive for a change, and the links of the sites.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::effects::Effect;
use muster_core::ids::{ObjectId, RolloutId};
use muster_core::revisions::Revision;
use muster_core::rollout::{Link, Node};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::db;
use crate::db::rollout_facts::NodeRow;
use crate::db::rollout_places::Places;
use crate::error::Error;

/// The bytes of a node by its former revision.
#[derive(Clone, Debug)]
pub(super) struct Transfers {
    /// Number of the target.
    target: i32,
    /// Without a reinstall, by the number of the former revision.
    by_former: BTreeMap<i32, u64>,
    /// Without a reinstall, from an unknown revision: all packages.
    packages: u64,
    /// With a reinstall.
    reinstall: u64,
}

impl Transfers {
    /// Computes the bytes from each of the former revisions.
    pub(super) fn new(number: i32, target: &Revision, former: &BTreeMap<i32, Revision>) -> Self {
        let bytes = |former: &Revision| target.count_bytes(Some(former), Effect::InPlace);
        let by_former = former.iter().map(|(number, one)| (*number, bytes(one)));
        Self {
            target: number,
            by_former: by_former.collect(),
            packages: target.count_bytes(None, Effect::InPlace),
            reinstall: target.count_bytes(None, Effect::Reinstall),
        }
    }

    /// Returns the bytes of a node with an effect. An unknown effect counts as a change of packages.
    pub(super) fn count(&self, row: &NodeRow, effect: Option<Effect>) -> u64 {
        match effect {
            Some(Effect::None) => 0,
            Some(Effect::Reinstall | Effect::Wipe) => self.reinstall,
            Some(Effect::InPlace | Effect::Reboot) | None => {
                let mut former = row.running.into_iter().chain(row.former);
                let former = former.find(|number| *number != self.target);
                let known = former.and_then(|number| self.by_former.get(&number));
                known.copied().unwrap_or(self.packages)
            }
        }
    }
}

/// Loads the links of the nodes' sites. Other nodes that are imaged or installed at a site count as if
/// they received the target of the rollout.
pub(super) async fn load_links(
    conn: &mut PgConnection,
    rollout: RolloutId,
    nodes: &[Node],
    places: &Places,
    transfers: &Transfers,
) -> Result<BTreeMap<ObjectId, Link>, Error> {
    let sites: BTreeSet<ObjectId> = nodes.iter().map(|node| node.site).collect();
    let link = |site: &ObjectId| {
        let link = Link {
            site: places.name(*site).to_owned(),
            mbps: places.link_mbps(*site)?,
            others: 0,
        };
        Some((*site, link))
    };
    let mut links: BTreeMap<ObjectId, Link> = sites.iter().filter_map(link).collect();
    if links.is_empty() {
        return Ok(links);
    }
    let ids: Vec<Uuid> = links.keys().map(|site| site.0).collect();
    for row in db::rollout_places::count_receivers(conn, rollout, &ids).await? {
        if let Some(link) = links.get_mut(&row.site) {
            let bytes = |nodes: i64, each: u64| {
                let nodes = u64::try_from(nodes).unwrap_or_default();
                nodes.saturating_mul(each)
            };
            let imaged = bytes(row.imaged, transfers.reinstall);
            link.others = imaged.saturating_add(bytes(row.installed, transfers.packages));
        }
    }
    Ok(links)
}
