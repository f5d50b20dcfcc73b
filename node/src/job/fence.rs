//! The highest assignment epoch that this node worked for, stored durably. Plans of an older
//! claim's agent are refused.

use muster_core::ids::JobId;
use muster_core::wire::node::{Failure, Plan, RunReply};
use serde::{Deserialize, Serialize};

use super::spool::Spool;
use crate::{files, paths};

const PATH: &str = "/var/lib/muster/fence.json";

/// The newest admitted plan. Attempts count within a job, so only epochs compare between jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Fence {
    epoch: i64,
    job: JobId,
    attempt: i32,
}

/// Admits a plan and stores the fence, or returns the newer epoch and attempt as `RunReply::Stale`.
///
/// # Errors
/// `io`; `malformed` when the fence file cannot be parsed: an unreadable fence admits no plan.
pub fn pass(plan: &Plan, spool: &Spool) -> Result<Option<RunReply>, Failure> {
    let path = paths::at(PATH);
    let fence: Option<Fence> = files::read_json(&path, 4096)?;
    if let Some(fence) = fence.filter(|fence| fence.epoch > plan.epoch) {
        return Ok(Some(RunReply::Stale {
            epoch: fence.epoch,
            attempt: fence.attempt,
        }));
    }
    if let Some(attempt) = spool.attempt().filter(|&attempt| attempt > plan.attempt) {
        return Ok(Some(RunReply::Stale {
            epoch: plan.epoch,
            attempt,
        }));
    }
    let next = Fence {
        epoch: plan.epoch,
        job: plan.job,
        attempt: plan.attempt,
    };
    if fence != Some(next) {
        files::write_json(&path, 0o600, &next)?;
    }
    Ok(None)
}
