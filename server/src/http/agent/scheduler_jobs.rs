//! Jobs on the nodes of a scheduler, kept for rollouts. A report is untrusted: texts are cut, and only
//! members of the agent's own clusters have jobs.

use std::collections::BTreeMap;

use axum::extract::State;
use http::StatusCode;
use jiff::Timestamp;
use muster_core::ids::NodeId;
use muster_core::wire::scheduler::{ClusterJob, JobsReport};
use sqlx::PgConnection;

use super::told::Told;
use super::{Agent, Standing};
use crate::app::App;
use crate::db;
use crate::db::scheduler::ClusterRow;
use crate::db::scheduler_jobs::{KEPT, KeptJob, NodeJobs};
use crate::error::Error;

/// The longest stored id, user and state, in characters.
const TEXT_CHARS: usize = 60;

pub(super) async fn report(
    State(app): State<App>,
    agent: Agent,
    Told(report): Told<JobsReport>,
) -> Result<StatusCode, Error> {
    let mut tx = app.pool.begin().await?;
    match agent.fence_alone(&mut tx, report.epoch, &app).await? {
        Standing::Acts => {
            let now = app.clock.now();
            for cluster in db::scheduler::list_clusters(&mut tx, &agent.site_name).await? {
                let look = report.looks.iter().find(|look| look.cluster == cluster.id);
                if let Some(look) = look {
                    keep_jobs(&mut tx, &cluster, &look.jobs, now).await?;
                }
            }
        }
        // An agent without a valid lease may report an old view of its cluster.
        Standing::Unheard | Standing::StandsBy => {}
    }
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
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
    db::scheduler_jobs::replace(conn, cluster.id, &nodes, now).await
}

/// Keeps the jobs that end last. A job without an end is the last.
fn keep_last(node: NodeId, mut jobs: Vec<&ClusterJob>) -> NodeJobs {
    jobs.sort_by_key(|job| std::cmp::Reverse((job.ends.is_none(), job.ends, &job.id)));
    NodeJobs {
        node,
        running: i32::try_from(jobs.len()).unwrap_or(i32::MAX),
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
    }
}
