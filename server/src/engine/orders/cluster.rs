//! Members of a cluster for the scheduler: from the hardware profile, never from facts. The orders
//! admit, drain and remove a member.

use std::collections::HashMap;

use anyhow::Context;
use muster_core::clusters::{ClusterSpec, DrainReason, DrainedBy, Member};
use muster_core::lifecycle::state::State;
use muster_core::profiles::HardwareProfile;
use muster_core::stacks::StackSpec;
use muster_core::wire::job::JobSpec;
use muster_core::wire::members::ClusterMembers;
use sqlx::PgConnection;

use super::logins;
use super::sources::Sources;
use crate::db;
use crate::error::Error;

/// Returns a cluster's members, without members in removal. The transaction locks the lists, so two
/// lists are never made at the same time.
///
/// # Errors
///
/// When the database fails.
pub async fn members(conn: &mut PgConnection, cluster: &str) -> Result<ClusterMembers, Error> {
    let (revision, rows) = db::specs::list_members(conn, cluster).await?;
    let profiles: HashMap<_, HardwareProfile> =
        db::specs::list_specs(conn, rows.iter().map(|row| row.profile)).await?;
    let stacks: HashMap<_, StackSpec> =
        db::revisions::list_stacks(conn, rows.iter().filter_map(|row| row.revision)).await?;
    let feature = |stack: &StackSpec| {
        Some(format!(
            "stack_{}",
            &stack.lock.as_ref()?.digest().hex()[..12]
        ))
    };
    let features: HashMap<_, Vec<String>> = stacks
        .iter()
        .map(|(id, stack)| (*id, feature(stack).into_iter().collect()))
        .collect();
    let spine = find_spine(conn, cluster).await?;
    let nodes = rows.into_iter().filter_map(|row| {
        let features = row
            .revision
            .and_then(|revision| features.get(&revision))
            .cloned()
            .unwrap_or_default();
        let profile = profiles.get(&row.profile)?;
        let address = row.address.into();
        Some(Member {
            spine: spine.clone(),
            ..Member::new(&row.name, address, profile, row.rack, features)
        })
    });
    Ok(ClusterMembers {
        revision,
        nodes: nodes.collect(),
    })
}

/// Returns the switch that connects the racks of the cluster's site.
async fn find_spine(conn: &mut PgConnection, cluster: &str) -> Result<Option<String>, Error> {
    let Some(row) = db::objects::find(conn, "cluster", cluster).await? else {
        return Ok(None);
    };
    let cluster: ClusterSpec = serde_json::from_value(row.spec).map_err(Error::internal)?;
    // Other members of a site stored by an earlier version may be unreadable.
    let site = db::objects::find(conn, "site", cluster.site()).await?;
    let spine = site
        .as_ref()
        .and_then(|row| row.spec["spine_switch"].as_str());
    Ok(spine.map(str::to_owned))
}

pub(super) async fn order_admit(
    conn: &mut PgConnection,
    s: &Sources<'_>,
) -> anyhow::Result<JobSpec> {
    let revision = db::specs::next_revision(conn).await?;
    Ok(JobSpec::Admit {
        cluster: declared(s)?,
        revision,
        name: s.node.name.clone(),
        login: logins::installed(conn, s).await?,
        lifts: find_lifted_drain(conn, s).await?,
    })
}

/// The drain of a node that leaves service.
pub(super) async fn order_drain(
    conn: &mut PgConnection,
    s: &Sources<'_>,
) -> anyhow::Result<JobSpec> {
    let requeue = match s.row.operation {
        Some(operation) => db::operations::requeues(conn, operation).await?,
        None => false,
    };
    Ok(JobSpec::Drain {
        cluster: declared(s)?,
        name: s.node.name.clone(),
        reason: DrainReason::Leaving,
        requeue,
    })
}

/// The drain of a node for a sweep. The node returns to its jobs.
pub(super) fn order_hold(s: &Sources<'_>) -> anyhow::Result<JobSpec> {
    Ok(JobSpec::Drain {
        cluster: declared(s)?,
        name: s.node.name.clone(),
        reason: DrainReason::Measurement,
        requeue: false,
    })
}

pub(super) async fn order_remove(
    conn: &mut PgConnection,
    s: &Sources<'_>,
) -> anyhow::Result<JobSpec> {
    let revision = db::specs::next_revision(conn).await?;
    Ok(JobSpec::Remove {
        cluster: declared(s)?,
        revision,
        name: s.node.name.clone(),
    })
}

/// Returns the reason of the drain to lift. `None` lifts every drain, for a node with passed gates.
/// A drain by the node's health check stays. In service, an orphaned drain of Muster is lifted by its
/// own reason.
async fn find_lifted_drain(
    conn: &mut PgConnection,
    s: &Sources<'_>,
) -> anyhow::Result<Option<DrainReason>> {
    Ok(match s.node.state {
        State::InService => {
            let reason = db::scheduler::find_reason(conn, s.node.id).await?;
            match DrainedBy::read(reason.as_deref()) {
                DrainedBy::Muster(reason) => Some(reason),
                DrainedBy::HealthCheck(_)
                | DrainedBy::Scheduler
                | DrainedBy::Others
                | DrainedBy::Unknown => Some(DrainReason::Measurement),
            }
        }
        // A failed node is admitted after a failed drain only.
        State::Draining | State::Failed => Some(DrainReason::Leaving),
        State::Admitting
        | State::Discovered
        | State::Inspecting
        | State::Available
        | State::Imaging
        | State::Installing
        | State::Validating
        | State::Repairing
        | State::Quarantined
        | State::Wiping
        | State::Maintenance
        | State::Retired => None,
    })
}

fn declared(s: &Sources<'_>) -> anyhow::Result<ClusterSpec> {
    s.node.cluster.clone().context("the pool names no cluster")
}
