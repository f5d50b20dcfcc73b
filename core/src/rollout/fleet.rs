//! The facts of a rollout, as read at a tick. The planner decides on these values only.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::amount::{Amount, count_nodes};
use super::windows::{Opening, Period};
use crate::effects::Effect;
use crate::ids::{NodeId, ObjectId};
use crate::words;

/// The number of a revision within its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RevisionNumber(pub u32);

/// The facts of a rollout at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Fleet {
    /// The revision that the rollout brings to every node.
    pub target: RevisionNumber,
    /// The revision of the superseded rollout. Nodes that run or go to this revision come first.
    pub supersedes: Option<RevisionNumber>,
    pub control: Control,
    /// A person ended the canary and its soak early.
    pub promoted: bool,
    /// Nodes that the rollout changes, as planned at the start. Percentages of the policy refer to
    /// this number, so skipped and departed nodes move no limit.
    pub planned: u32,
    /// The rollout's start, or the last resume.
    pub since: Timestamp,
    pub window: Opening,
    /// The past periods outside of the present windows, ascending. Deadlines of waiting do not count
    /// these periods.
    pub closed: Vec<Period>,
    /// The end of the freeze in force.
    pub frozen_until: Option<Timestamp>,
    /// External signals that ask for a halt now, as sentences.
    pub signals: Vec<String>,
    /// A signal of the policy without a present answer. No further node is taken.
    pub silent: Option<Silent>,
    /// Nodes that failed in this run and left the rollout afterwards.
    pub failed_and_left: u32,
    pub budget: Budget,
    /// The declared links of sites.
    pub links: BTreeMap<ObjectId, Link>,
    /// Seconds from closed to done, for each node changed in this run.
    pub durations_s: Vec<u32>,
    /// The nodes of the rollout. The ledger reads their members too.
    pub nodes: Vec<Node>,
    /// Other nodes of the pool and of the domains, read by the ledger only.
    pub neighbours: Vec<Member>,
}

/// A signal without a present answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Silent {
    /// Name of a monitor. The next answer comes within minutes.
    Monitor(String),
    /// A gate whose values cannot be compared on enough changed nodes.
    Gate {
        /// Gate and metric: `gpu.nvbandwidth/nvbandwidth.host_to_device`.
        name: String,
        /// A changed node is compared at the next tick.
        is_pending: bool,
    },
}

/// The recorded state of the rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    Running,
    /// Sticky: only a person's resume ends a halt.
    Halted(HaltReason),
    /// A newer rollout has taken the place of the rollout.
    Superseded,
}

/// The reason of a halt. The code and the details are stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HaltReason {
    /// A person halted the rollout, with a reason.
    Person(String),
    /// More nodes failed than the budget tolerates.
    Failures { failed: u32, tolerated: u32 },
    /// A node of the canary failed.
    Canary { node: String },
    /// An external signal, as a sentence.
    Signal(String),
}

/// The link of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Name of the site.
    pub site: String,
    /// Declared throughput in Mbit/s.
    pub mbps: u32,
    /// Bytes for nodes that other rollouts and requests change.
    pub others: u64,
}

/// The budgets for nodes out of service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Nodes of the pool out at a time. A percentage refers to the counted members.
    pub max_unavailable: Amount,
    pub domains: Vec<Domain>,
}

/// A failure domain with a budget: a rack, a leaf, an NVLink domain, a power feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// The id, unique over all axes: `rack:r1`.
    pub id: String,
    /// The axis, as shown to people: `rack`.
    pub axis: String,
    /// Members out at a time. A percentage refers to the counted members.
    pub max_unavailable: Amount,
    /// The domain is a unit of change: a rollout closes all of its nodes in the domain in the same
    /// call, or none. The ledger counts the members in any case.
    pub whole: bool,
}

/// A node as the ledger reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub node: NodeId,
    /// A node of another pool counts in its domains only.
    pub in_pool: bool,
    /// The ids of the node's domains. An id without a declared budget sets no limit.
    pub domains: BTreeSet<String>,
    pub service: Service,
    /// The owner of a drain that is not ours. The node counts as out.
    pub others_drain: Option<String>,
    /// A person has written the node off: while out, the node is not counted until this time.
    pub written_off_until: Option<Timestamp>,
}

words! {
    /// The service of a claim.
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    Service, "service" {
        /// In service.
        Serving = "serving",
        /// A voluntary act of Muster has taken the serving node out, and the act is under way.
        Taken = "taken",
        /// Was in service, and is out for any other reason.
        Out = "out",
        /// On the first way into service.
        Joining = "joining",
        /// Contact is lost. Counts as out.
        Unknown = "unknown",
    }
}

/// A node of the rollout.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub member: Member,
    /// The name shown to people, also used by a canary.
    pub name: String,
    pub site: ObjectId,
    pub rack: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub stage: Stage,
    /// The time of the last change of the mark.
    pub since: Timestamp,
    /// The revision that the node runs; `None` if unknown.
    pub runs: Option<RevisionNumber>,
    /// The revision that the node is going to, assigned by any rollout.
    pub going_to: Option<RevisionNumber>,
    /// The computed effect of bringing the node to the target.
    pub effect: Effect,
    /// Bytes of packages and image that the node receives for the change.
    pub transfer_bytes: u64,
    pub jobs: Jobs,
    /// Results of earlier wrong attempts of this run, the present attempt excluded.
    pub wrong: Vec<String>,
    /// The node was marked failed earlier in this run. A retry keeps the flag.
    pub failed_before: bool,
    /// A person agreed to requeue the node's jobs.
    pub requeue_agreed: bool,
    /// GPUs by the hardware profile; `None` without a profile.
    pub gpus: Option<u32>,
    /// The later of the last job's end and the start of our drain or wait. `None` while jobs run, and
    /// if unknown.
    pub idle_since: Option<Timestamp>,
    /// The time announced to the users of the node for the change. The node is not closed earlier.
    pub announced_for: Option<Timestamp>,
    /// Notices sent, as holder of the jobs and time at which the notice was due.
    pub notified: BTreeSet<(String, Timestamp)>,
    pub condition: Condition,
}

/// Facts that keep the rollout from starting on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// The claim is on hold.
    pub held: bool,
    pub protected: bool,
    /// Installed by others: the rollout writes no disk.
    pub adopted: bool,
    /// Another operation that has the node: a recovery, maintenance, an earlier rollout.
    pub busy: Option<String>,
    /// The rollout leaves the node alone until this time: a user's deferral, or the pause after a
    /// failed drain.
    pub deferred_until: Option<Timestamp>,
    /// The reason why the node's facts could not be read.
    pub unreadable: Option<String>,
}

/// The position of a node in the rollout, with the observed progress of the running act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    NotBegun,
    /// The node serves until its last job is near the end.
    Waiting,
    Changing(Change),
    Validating(Validation),
    /// `changed` is false if the node needed no change.
    Done {
        changed: bool,
    },
    Skipped,
    Failed,
}

/// The progress of a change. Before `Working` the node is unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Our drain is set; jobs still run.
    Draining,
    /// Our drain is set, and the last job has ended.
    Drained,
    DrainFailed {
        why: String,
    },
    /// A person or another program ended our drain.
    DrainCancelled,
    Working,
    /// The node runs the target, observed after its last boot.
    Arrived,
    /// The change has ended, and the node does not run the target.
    Wrong {
        result: String,
    },
}

/// The progress of a validation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Validation {
    Gating,
    /// A gate has no result yet, or its result was lost.
    ResultMissing,
    GateFailed {
        finding: String,
    },
    /// Every gate passed; the scheduler does not use the node yet.
    Passed,
    /// The scheduler has the order to use the node again.
    Readmitting,
}

words! {
    /// The mark of a node. Every node has exactly one.
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    Mark, "rollout mark" {
        NotBegun = "not_begun",
        Waiting = "waiting",
        Changing = "changing",
        Validating = "validating",
        Done = "done",
        Skipped = "skipped",
        Failed = "failed",
    }
}

/// The jobs on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Jobs {
    Known(Vec<Job>),
    /// The scheduler did not answer.
    Unknown,
}

/// A running job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Job {
    /// The latest end; `None` for a job without a time limit.
    pub ends: Option<Timestamp>,
    pub id: String,
    /// The user; empty for a reader who may not know the user.
    pub holder: String,
    /// The scheduler requeues the job on request. False if unknown.
    pub requeues: bool,
}

impl Stage {
    /// Returns the mark of the stage.
    pub fn mark(&self) -> Mark {
        match self {
            Self::NotBegun => Mark::NotBegun,
            Self::Waiting => Mark::Waiting,
            Self::Changing(_) => Mark::Changing,
            Self::Validating(_) => Mark::Validating,
            Self::Done { .. } => Mark::Done,
            Self::Skipped => Mark::Skipped,
            Self::Failed => Mark::Failed,
        }
    }

    /// Returns whether the rollout has begun with the node and counts the node to a wave.
    pub(super) fn has_begun(&self) -> bool {
        match self {
            Self::Waiting | Self::Changing(_) | Self::Validating(_) | Self::Failed => true,
            Self::Done { changed } => *changed,
            Self::NotBegun | Self::Skipped => false,
        }
    }
}

impl Mark {
    /// Returns whether the node has ended in the rollout. Only a recorded act of a person leaves a
    /// terminal mark.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Done | Self::Skipped | Self::Failed => true,
            Self::NotBegun | Self::Waiting | Self::Changing | Self::Validating => false,
        }
    }
}

impl Jobs {
    /// Returns the job that ends last; a job without an end is the last.
    pub(super) fn last(&self) -> Option<&Job> {
        match self {
            Self::Known(jobs) => jobs
                .iter()
                .max_by_key(|job| (job.ends.is_none(), job.ends, &job.id)),
            Self::Unknown => None,
        }
    }
}

impl Fleet {
    /// Returns the number of nodes that the rollout has changed or may still change.
    pub(super) fn size(&self) -> u32 {
        self.count(|node| match node.stage {
            Stage::Done { changed } => changed,
            Stage::Skipped => false,
            Stage::NotBegun
            | Stage::Waiting
            | Stage::Changing(_)
            | Stage::Validating(_)
            | Stage::Failed => true,
        })
    }

    /// Returns the number of nodes with a property.
    pub(super) fn count(&self, has: impl Fn(&Node) -> bool) -> u32 {
        let count = self.nodes.iter().filter(|node| has(node)).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Returns the fleet without the users of jobs, for readers who may not see every node.
    pub fn without_holders(&self) -> Self {
        let mut fleet = self.clone();
        for node in &mut fleet.nodes {
            if let Jobs::Known(jobs) = &mut node.jobs {
                jobs.iter_mut().for_each(|job| job.holder.clear());
            }
        }
        fleet
    }

    /// Returns the members that the ledger counts.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        let own = self.nodes.iter().map(|node| &node.member);
        own.chain(&self.neighbours)
    }
}

impl HaltReason {
    /// Returns the code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Person(_) => "person",
            Self::Failures { .. } => "failure_budget",
            Self::Canary { .. } => "canary_failed",
            Self::Signal(_) => "signal",
        }
    }
}

impl fmt::Display for HaltReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Person(why) => write!(f, "halted by a person: {why}"),
            Self::Failures { failed, tolerated } => write!(
                f,
                "failed over the whole run: {}; tolerated: {tolerated}",
                count_nodes(*failed)
            ),
            Self::Canary { node } => write!(f, "the canary {node} failed"),
            Self::Signal(sentence) => f.write_str(sentence),
        }
    }
}

impl fmt::Display for RevisionNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}
