//! GPU-hours lost by waiting: the idle time of unchanged nodes kept from new jobs by the rollout. A node
//! still running jobs while waiting loses no time.

use std::fmt;

use jiff::Timestamp;

use super::amount::count_nodes;
use super::fleet::{Change, Fleet, Jobs, Node, Service, Stage};
use crate::ids::NodeId;

/// The losses of a rollout by its present waits. Earlier waits of nodes changed since are excluded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Losses {
    /// Nodes that wait, or are drained and unchanged, in the order of the fleet.
    pub nodes: Vec<Loss>,
    /// The sum of the known losses, in GPU-seconds.
    pub gpu_seconds: u64,
    /// Nodes with an unknown loss, missing in the sum.
    pub unknown: u32,
}

/// The loss of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    pub node: NodeId,
    /// GPUs times seconds of idle time; `None` if the jobs, the start of the idle time or the number of
    /// GPUs are unknown.
    pub gpu_seconds: Option<u64>,
}

/// Counts the GPU-seconds that the present waits have cost until `now`.
pub fn count_losses(fleet: &Fleet, now: Timestamp) -> Losses {
    let waiting = fleet.nodes.iter().filter(|node| waits(node));
    let nodes: Vec<Loss> = waiting
        .map(|node| Loss {
            node: node.member.node,
            gpu_seconds: count_loss(node, now),
        })
        .collect();
    let known = nodes.iter().filter_map(|loss| loss.gpu_seconds);
    let unknown = nodes.iter().filter(|loss| loss.gpu_seconds.is_none());
    Losses {
        gpu_seconds: known.fold(0, u64::saturating_add),
        unknown: u32::try_from(unknown.count()).unwrap_or(u32::MAX),
        nodes,
    }
}

/// Returns whether the rollout keeps an unchanged node from taking jobs. A node out of
/// service for another reason loses no time to the rollout.
fn waits(node: &Node) -> bool {
    let is_out = match node.member.service {
        Service::Out | Service::Joining => true,
        Service::Serving | Service::Taken | Service::Unknown => false,
    };
    let waits = match &node.stage {
        Stage::Waiting => true,
        Stage::Changing(change) => match change {
            Change::Draining
            | Change::Drained
            | Change::DrainFailed { .. }
            | Change::DrainCancelled => true,
            Change::Working | Change::Arrived | Change::Wrong { .. } => false,
        },
        Stage::NotBegun
        | Stage::Validating(_)
        | Stage::Done { .. }
        | Stage::Skipped
        | Stage::Failed => false,
    };
    waits && !is_out && node.member.others_drain.is_none()
}

/// Returns the loss of a node. Time outside the maintenance windows is lost too: a waiting node gets
/// only jobs that end before the next opening.
fn count_loss(node: &Node, now: Timestamp) -> Option<u64> {
    match &node.jobs {
        _ if node.gpus == Some(0) => Some(0),
        Jobs::Unknown => None,
        Jobs::Known(jobs) if !jobs.is_empty() => Some(0),
        Jobs::Known(_) => {
            let idle = now.duration_since(node.idle_since?);
            let idle_s = idle.as_secs().max(0).unsigned_abs();
            Some(u64::from(node.gpus?).saturating_mul(idle_s))
        }
    }
}

impl fmt::Display for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = self.gpu_seconds / 360;
        write!(
            f,
            "{}.{} GPU-hours lost by waiting",
            tenths / 10,
            tenths % 10
        )?;
        match self.unknown {
            0 => Ok(()),
            unknown => write!(f, "; unknown for {}", count_nodes(unknown)),
        }
    }
}
