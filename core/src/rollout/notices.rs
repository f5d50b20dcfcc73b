//! Notices to the holders of jobs before the change of a node, and the limit of their deferrals. A
//! deferral moves the change, so the notices are due again before the new time.

use std::collections::BTreeSet;
use std::fmt;

use jiff::{SignedDuration, Timestamp};

use super::fleet::{Control, Fleet, Jobs, Node, Stage};
use super::policy::{AfterDeadline, DrainPolicy, RolloutPolicy};
use super::windows::add;
use crate::effects::Effect;
use crate::ids::NodeId;

/// A notice to send now. The sender records the holder and the due time in the node's facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub node: NodeId,
    /// The user with jobs on the node.
    pub holder: String,
    pub text: String,
    /// The time from which the notice is due.
    pub due: Timestamp,
}

/// The start of a node's change, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Begin {
    at: Timestamp,
    /// The latest time of a deferral; `None` if the start cannot be deferred.
    latest: Option<Timestamp>,
    /// Jobs that still run at the start are requeued.
    requeues: bool,
}

/// Returns the notices due at `now`, in the order of the fleet. Of several due times that have passed
/// only the last counts, so a holder gets a single notice at a time. A halted or superseded rollout
/// sends no notices.
pub fn find_due_notices(policy: &RolloutPolicy, fleet: &Fleet, now: Timestamp) -> Vec<Notice> {
    if fleet.control != Control::Running {
        return Vec::new();
    }
    let notices = fleet.nodes.iter().filter_map(|node| {
        let begin = find_begin(policy, node)?;
        let due = find_due(policy, begin.at, now)?;
        Some(notify(node, begin, due))
    });
    notices.flatten().collect()
}

/// Returns the time until which a user's deferral holds.
///
/// # Errors
/// Returns the reason if deferrals are not allowed, no change is announced for the node, or the asked
/// time is later than the limit.
pub fn limit_deferral(
    policy: &RolloutPolicy,
    node: &Node,
    asked: Timestamp,
) -> Result<Timestamp, DeferralRefused> {
    if policy.max_deferral_s == 0 {
        return Err(DeferralRefused::NotAllowed);
    }
    let announced = node.announced_for.ok_or(DeferralRefused::NotAnnounced)?;
    let latest = add(announced, seconds(policy.max_deferral_s));
    match asked <= latest {
        true => Ok(asked),
        false => Err(DeferralRefused::TooLate { latest }),
    }
}

/// The reason against a deferral.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeferralRefused {
    /// The policy of the rollout allows no deferral.
    NotAllowed,
    /// No change is announced for the node.
    NotAnnounced,
    /// The asked time is after the limit.
    TooLate { latest: Timestamp },
}

/// Returns the start of the change of a node that has not begun or waits: the announced time with the
/// deferral, or the drain deadline after which the jobs are requeued.
fn find_begin(policy: &RolloutPolicy, node: &Node) -> Option<Begin> {
    let is_waiting = match node.stage {
        Stage::NotBegun => false,
        Stage::Waiting => true,
        Stage::Changing(_)
        | Stage::Validating(_)
        | Stage::Done { .. }
        | Stage::Skipped
        | Stage::Failed => return None,
    };
    if node.effect == Effect::None {
        return None;
    }
    if let DrainPolicy::Deadline {
        after_s,
        then: AfterDeadline::Requeue,
    } = policy.drain
        && is_waiting
    {
        return Some(Begin {
            at: add(node.since, seconds(after_s)),
            latest: None,
            requeues: true,
        });
    }
    let announced = node.announced_for?;
    let latest = add(announced, seconds(policy.max_deferral_s));
    let deferred = node.condition.deferred_until;
    Some(Begin {
        at: deferred.map_or(announced, |until| until.max(announced)),
        latest: Some(latest).filter(|latest| *latest > announced),
        requeues: false,
    })
}

/// Returns the last due time that has passed, before the start itself.
fn find_due(policy: &RolloutPolicy, begins: Timestamp, now: Timestamp) -> Option<Timestamp> {
    if begins <= now {
        return None;
    }
    let due = policy.notice_before_s.iter();
    due.map(|before| add(begins, -seconds(*before)))
        .filter(|due| *due <= now)
        .max()
}

/// Returns the notices to the holders of jobs on a node, sent notices excluded.
fn notify(node: &Node, begin: Begin, due: Timestamp) -> Vec<Notice> {
    let Jobs::Known(jobs) = &node.jobs else {
        return Vec::new();
    };
    let holders: BTreeSet<&String> = jobs.iter().map(|job| &job.holder).collect();
    let is_new = |holder: &&String| !node.notified.contains(&((*holder).clone(), due));
    let notice = |holder: &String| Notice {
        node: node.member.node,
        holder: holder.clone(),
        text: write_text(node, begin),
        due,
    };
    holders.into_iter().filter(is_new).map(notice).collect()
}

fn write_text(node: &Node, begin: Begin) -> String {
    let Begin {
        at,
        latest,
        requeues,
    } = begin;
    let jobs = match requeues {
        true => "Jobs that still run then are requeued.",
        false => "Running jobs may end first.",
    };
    let defer = latest.map(|latest| format!(" A deferral is possible until {latest}."));
    format!(
        "Node {} gets a change with the effect {} at {at} or later. {jobs}{}",
        node.name,
        node.effect,
        defer.unwrap_or_default()
    )
}

fn seconds(count: u32) -> SignedDuration {
    SignedDuration::from_secs(i64::from(count))
}

impl DeferralRefused {
    /// Returns the code for programs.
    pub fn code(self) -> &'static str {
        match self {
            Self::NotAllowed => "deferral_not_allowed",
            Self::NotAnnounced => "change_not_announced",
            Self::TooLate { .. } => "deferral_too_late",
        }
    }
}

impl fmt::Display for DeferralRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAllowed => f.write_str("the rollout allows no deferral: set max_deferral_s"),
            Self::NotAnnounced => {
                f.write_str("no change is announced for the node: defer after the notice")
            }
            Self::TooLate { latest } => write!(f, "defer until {latest} at the latest"),
        }
    }
}
