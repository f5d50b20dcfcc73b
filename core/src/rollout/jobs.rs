//! Jobs on a node and the drain policy: whether the node's change could start now, as far as the jobs
//! decide.

use jiff::{SignedDuration, Timestamp};

use super::action::Because;
use super::fleet::{Job, Jobs, Node, Stage};
use super::policy::{AfterDeadline, DrainPolicy, RolloutPolicy};
use super::rule::Rule;
use super::windows::{Period, measure_outside};

/// The answer of the jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// The node may be closed. With `requeue` the scheduler ends the jobs.
    Close {
        requeue: bool,
        because: Because,
    },
    /// The drain deadline has passed, and the rollout leaves the node out.
    Skip,
    Hold(Rule),
}

/// The time, and the windows around it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hours<'a> {
    pub now: Timestamp,
    /// The end of the open window.
    pub closes: Option<Timestamp>,
    /// The past periods without an open window.
    pub closed: &'a [Period],
}

/// Decides whether the jobs let a node be closed.
pub(super) fn judge_jobs(policy: &RolloutPolicy, node: &Node, hours: Hours<'_>) -> Exit {
    let Hours { now, closes, .. } = hours;
    if node.jobs == Jobs::Unknown {
        return Exit::Hold(Rule::JobsUnknown);
    }
    let Some(last) = node.jobs.last() else {
        return Exit::Close {
            requeue: false,
            because: Because::SlotFree,
        };
    };
    let lead = SignedDuration::from_secs(i64::from(policy.drain_lead_s));
    match last.ends {
        Some(ends) if ends <= now + lead => match closes {
            Some(closes) if ends >= closes => Exit::Hold(Rule::WindowEnds { closes }),
            Some(_) | None => Exit::Close {
                requeue: false,
                because: Because::SlotFree,
            },
        },
        Some(_) | None if node.requeue_agreed => {
            requeue(node, &hours, now + lead, Because::RequeueAgreed)
        }
        Some(_) | None => match find_overdue(policy, node, hours) {
            None => Exit::Hold(Rule::Job(last.clone())),
            Some(AfterDeadline::Requeue) => {
                requeue(node, &hours, now + lead, Because::JobsRequeued)
            }
            Some(AfterDeadline::Skip) => Exit::Skip,
            Some(AfterDeadline::Ask) => Exit::Hold(Rule::DrainDeadline),
        },
    }
}

/// Closes a node whose jobs are requeued. A job that the scheduler cannot requeue keeps the node open:
/// the closed node would wait for the job. Such a job that ends before `near` is waited for. No
/// job is requeued in a window that closes before `near`: the drain could end after the window.
fn requeue(node: &Node, hours: &Hours<'_>, near: Timestamp, because: Because) -> Exit {
    let Jobs::Known(jobs) = &node.jobs else {
        return Exit::Hold(Rule::JobsUnknown);
    };
    if let Some(closes) = hours.closes.filter(|closes| *closes <= near) {
        return Exit::Hold(Rule::WindowEnds { closes });
    }
    let ends_late = |job: &Job| job.ends.is_none_or(|ends| ends > near);
    let kept = jobs.iter().filter(|job| !job.requeues);
    match kept.max_by_key(|job| ends_late(job)) {
        Some(job) if ends_late(job) => Exit::Hold(Rule::CannotRequeue(job.clone())),
        Some(job) => Exit::Hold(Rule::Job(job.clone())),
        None => Exit::Close {
            requeue: true,
            because,
        },
    }
}

/// Returns the act of the drain policy for a node that has waited beyond the deadline. Time outside the
/// windows does not count, because no node is taken then.
fn find_overdue(policy: &RolloutPolicy, node: &Node, hours: Hours<'_>) -> Option<AfterDeadline> {
    match policy.drain {
        DrainPolicy::Wait => None,
        DrainPolicy::Deadline { after_s, then } => {
            let deadline = SignedDuration::from_secs(i64::from(after_s));
            let waited = || measure_outside(hours.closed, node.since, hours.now);
            (node.stage == Stage::Waiting && waited() >= deadline).then_some(then)
        }
    }
}
