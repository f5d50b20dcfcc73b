//! Jobs on the nodes of a scheduler, kept for rollouts. A report is untrusted: texts are cut, and only
//! members of the agent's own clusters have jobs. The reply lists the nodes waiting for a change.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use axum::extract::State;
use jiff::Timestamp;
use muster_core::ids::{NodeId, RolloutId};
use muster_core::wire::scheduler::{ClusterJob, ClusterWaits, JobsReply, JobsReport, Wait};
use sqlx::PgConnection;

use super::told::Told;
use super::{Agent, Standing};
use crate::app::App;
use crate::db;
use crate::db::scheduler::ClusterRow;
use crate::db::scheduler_jobs::{KEPT, KeptJob, NodeJobs};
use crate::error::Error;
use crate::http::extract::Json;
use crate::intents::rollouts::jobs::FRESH;
use crate::intents::rollouts::windows::Windows;

/// The longest stored id, user and state, in characters.
const TEXT_CHARS: usize = 60;

pub(super) async fn report(
    State(app): State<App>,
    agent: Agent,
    Told(report): Told<JobsReport>,
) -> Result<Json<JobsReply>, Error> {
    let mut tx = app.pool.begin().await?;
    let mut reply = JobsReply::default();
    match agent.fence_alone(&mut tx, report.epoch, &app).await? {
        Standing::Acts => {
            let now = app.clock.now();
            for cluster in db::scheduler::list_clusters(&mut tx, &agent.site_name).await? {
                let look = report.looks.iter().find(|look| look.cluster == cluster.id);
                if let Some(look) = look {
                    keep_jobs(&mut tx, &cluster, &look.jobs, now).await?;
                    reply
                        .clusters
                        .push(list_waits(&mut tx, &cluster, now).await?);
                }
            }
        }
        // An agent without a valid lease may report an old view of its cluster.
        Standing::Unheard | Standing::StandsBy => {}
    }
    tx.commit().await?;
    Ok(Json(reply))
}

/// Lists the waiting nodes of a cluster, by the longest job allowed to start. While the maintenance
/// windows of a rollout are closed, its nodes are not listed and run every job.
async fn list_waits(
    conn: &mut PgConnection,
    cluster: &ClusterRow,
    now: Timestamp,
) -> Result<ClusterWaits, Error> {
    let rows = db::rollout_waits::list_waiting(conn, &cluster.name).await?;
    let mut open: BTreeMap<RolloutId, bool> = BTreeMap::new();
    for row in &rows {
        if let Entry::Vacant(unknown) = open.entry(row.rollout) {
            let windows = Windows::load(conn, row.rollout).await?;
            unknown.insert(windows.is_open_at(now));
        }
    }
    let mut waits: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for row in rows.into_iter().filter(|row| open[&row.rollout]) {
        let lead_s = u32::try_from(row.lead_s).unwrap_or_default();
        waits.entry(lead_s).or_default().push(row.name);
    }
    // A rollout without a lead closes a node after the end of its jobs: no job may start.
    let waits = waits.into_iter().map(|(lead_s, nodes)| Wait {
        lead_s: lead_s.max(1),
        nodes,
    });
    Ok(ClusterWaits {
        cluster: cluster.id,
        waits: waits.collect(),
    })
}

async fn keep_jobs(
    conn: &mut PgConnection,
    cluster: &ClusterRow,
    jobs: &[ClusterJob],
    now: Timestamp,
) -> Result<(), Error> {
    let members = db::scheduler::list_members(conn, &cluster.name).await?;
    let members: BTreeMap<&str, NodeId> = members
        .iter()
        .map(|member| (member.name.as_str(), member.id))
        .collect();
    let mut by_node: BTreeMap<NodeId, Vec<&ClusterJob>> = BTreeMap::new();
    for job in jobs {
        for node in &job.nodes {
            if let Some(id) = members.get(node.as_str()) {
                by_node.entry(*id).or_default().push(job);
            }
        }
    }
    let nodes: Vec<NodeJobs> = by_node
        .into_iter()
        .map(|(node, jobs)| keep_last(node, jobs))
        .collect();
    let before = db::scheduler_jobs::replace(conn, cluster.id, &nodes, now).await?;
    let watched = before.is_some_and(|before| now.duration_since(before) <= FRESH);
    db::rollout_waits::follow_jobs(conn, cluster.id, watched, now).await
}

/// Keeps the jobs that end last. A job without an end is the last. Of the jobs that the scheduler does
/// not requeue, the last is kept in any case.
fn keep_last(node: NodeId, mut jobs: Vec<&ClusterJob>) -> NodeJobs {
    jobs.sort_by_key(|job| std::cmp::Reverse((job.ends.is_none(), job.ends, &job.id)));
    let running = i32::try_from(jobs.len()).unwrap_or(i32::MAX);
    if let Some(stays) = jobs.iter().position(|job| !job.requeues)
        && stays >= KEPT
    {
        jobs.swap(KEPT - 1, stays);
    }
    NodeJobs {
        node,
        running,
        jobs: jobs.into_iter().take(KEPT).map(shorten).collect(),
    }
}

fn shorten(job: &ClusterJob) -> KeptJob {
    let short = |text: &str| {
        let plain = text.chars().filter(|c| !c.is_control());
        plain.take(TEXT_CHARS).collect::<String>()
    };
    KeptJob {
        ends: job.ends,
        id: short(&job.id),
        user: short(&job.user),
        state: short(&job.state),
        requeues: job.requeues,
    }
}
