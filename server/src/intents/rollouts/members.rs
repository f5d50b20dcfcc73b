//! Members of the pool of a rollout and of the failure domains, with the budgets.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use muster_api::pools::DEFAULT_MAX_UNAVAILABLE;
use muster_core::ids::{NodeId, ObjectId};
use muster_core::rollout::{Budget, DomainAxis, Member, build_budget};
use sqlx::PgConnection;

use crate::db;
use crate::db::disruption::MemberRow;
use crate::db::rollout_facts::NodeRow;
use crate::db::rollout_places::Places;
use crate::error::Error;

/// The members of the pool and of the failure domains. Axes are named `site/axis`, because two sites
/// may use the same name.
pub(super) struct Members {
    /// The nodes of the rollout, in the order of the rows.
    pub(super) own: Vec<Member>,
    /// Nodes of the pool without a row in the rollout, and nodes of other pools.
    pub(super) others: Vec<Member>,
    pub(super) budget: Budget,
}

impl Members {
    /// Loads the members of a pool. `unlisted` are those without a row.
    ///
    /// # Errors
    /// When the database fails.
    pub(super) async fn load(
        conn: &mut PgConnection,
        pool: ObjectId,
        rows: &[NodeRow],
        unlisted: &[MemberRow],
        places: &Places,
    ) -> Result<Self, Error> {
        let of_rows = rows.iter().map(|row| row.site);
        let sites: BTreeSet<ObjectId> =
            of_rows.chain(unlisted.iter().map(|row| row.site)).collect();
        let mut axes: BTreeMap<ObjectId, Vec<DomainAxis>> = BTreeMap::new();
        let mut max_unavailable = DEFAULT_MAX_UNAVAILABLE;
        for site in sites {
            let Some(budgets) = db::disruption::find_budgets(conn, pool, site).await? else {
                continue;
            };
            max_unavailable = budgets.max_unavailable;
            axes.insert(site, name_axes(places.name(site), budgets.axes));
        }
        let axes_of = |site| axes.get(&site).map_or(&[][..], Vec::as_slice);
        let of_row = |row: &NodeRow| row.member(places, axes_of(row.site));
        let own: Vec<Member> = rows.iter().map(of_row).collect();
        let of_unlisted = |row: &MemberRow| row.member(row.site, axes_of(row.site));
        let mut others: Vec<Member> = unlisted.iter().map(of_unlisted).collect();
        let domains = own.iter().chain(&others).flat_map(|member| &member.domains);
        // Many nodes have the same domains.
        let domains: HashSet<&String> = domains.collect();
        let domains: BTreeSet<String> = domains.into_iter().cloned().collect();
        for (site, here) in axes.iter().filter(|_| !domains.is_empty()) {
            let foreign = db::disruption::list_neighbours(conn, pool, *site, here, &domains);
            let foreign = foreign.await?;
            others.extend(foreign.iter().map(|row| row.member(*site, here)));
        }
        let axes: Vec<DomainAxis> = axes.into_values().flatten().collect();
        Ok(Self {
            budget: build_budget(max_unavailable, &axes, own.iter().chain(&others)),
            own,
            others,
        })
    }
}

/// Names the axes of a site `site/axis`. The labels stay.
fn name_axes(site: &str, axes: Vec<DomainAxis>) -> Vec<DomainAxis> {
    let name = |axis: DomainAxis| DomainAxis {
        label: Some(axis.label().to_owned()),
        name: format!("{site}/{}", axis.name),
        ..axis
    };
    axes.into_iter().map(name).collect()
}

/// Lists the nodes of the pool without a row in the rollout: claimed after the plan, or after the
/// end of the rollout.
///
/// # Errors
/// When the database fails.
pub(super) async fn list_unlisted(
    conn: &mut PgConnection,
    pool: ObjectId,
    rows: &[NodeRow],
) -> Result<Vec<MemberRow>, Error> {
    if db::disruption::count_members(conn, pool).await? == rows.len() {
        return Ok(Vec::new());
    }
    let listed: BTreeSet<NodeId> = rows.iter().map(|row| row.node).collect();
    let mut members = db::disruption::list_members(conn, pool, None, &[], &BTreeSet::new()).await?;
    members.retain(|row| !listed.contains(&row.node));
    Ok(members)
}
