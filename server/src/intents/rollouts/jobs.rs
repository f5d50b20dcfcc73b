//! The jobs on the nodes of a pool, for the planner.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use muster_api::rollouts::ReservationFailure;
use muster_core::ids::{NodeId, ObjectId};
use muster_core::lifecycle::state::State;
use muster_core::rollout::{Job, Jobs};
use sqlx::PgConnection;

use crate::db::rollout_facts::NodeRow;
use crate::db::scheduler_jobs::{self, KeptJob, LookRow};
use crate::error::Error;

/// Jobs seen longer ago are unknown. An agent looks every minute.
pub(crate) const FRESH: SignedDuration = SignedDuration::from_mins(3);

/// The jobs on the nodes of a pool.
#[derive(Debug)]
pub(super) enum PoolJobs {
    /// The pool has no scheduler, so the nodes have no jobs.
    NoScheduler,
    /// The agent of the cluster reports no jobs, or did so too long ago.
    Unknown,
    Seen {
        at: Timestamp,
        /// The nodes with jobs.
        nodes: HashMap<NodeId, Vec<Job>>,
    },
}

/// Loads the jobs on the nodes of a pool, and why the reservations of waiting nodes fail.
///
/// # Errors
/// When the database fails.
pub(super) async fn load(
    conn: &mut PgConnection,
    pool: ObjectId,
    now: Timestamp,
) -> Result<(PoolJobs, Option<ReservationFailure>), Error> {
    let Some(look) = scheduler_jobs::find_look(conn, pool).await? else {
        return Ok((PoolJobs::NoScheduler, None));
    };
    let (cluster, seen) = (look.cluster, look.seen_at.map(|seen| seen.to_jiff()));
    let failure = find_failure(look);
    let Some(at) = seen.filter(|seen| now.duration_since(*seen) <= FRESH) else {
        return Ok((PoolJobs::Unknown, failure));
    };
    let nodes = scheduler_jobs::list(conn, cluster).await?;
    let nodes = nodes
        .into_iter()
        .map(|node| (node.node, node.jobs.into_iter().map(describe).collect()));
    let nodes = nodes.collect();
    Ok((PoolJobs::Seen { at, nodes }, failure))
}

fn find_failure(look: LookRow) -> Option<ReservationFailure> {
    Some(ReservationFailure {
        since: look.failing_since?.to_jiff(),
        code: look.failure_code?,
        sentence: look.failure?,
    })
}

fn describe(job: KeptJob) -> Job {
    Job {
        ends: job.ends,
        id: job.id,
        holder: job.user,
        requeues: job.requeues,
    }
}

impl PoolJobs {
    /// Takes out the jobs of a node. The look must be newer than the node's entry into service.
    pub(super) fn take(&mut self, row: &NodeRow) -> Jobs {
        match self {
            Self::NoScheduler => Jobs::Known(Vec::new()),
            Self::Unknown => Jobs::Unknown,
            Self::Seen { at, .. } if row.state == State::InService && *at < row.entered_at => {
                Jobs::Unknown
            }
            Self::Seen { nodes, .. } => Jobs::Known(nodes.remove(&row.node).unwrap_or_default()),
        }
    }
}
