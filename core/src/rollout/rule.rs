//! The rule that keeps a node, or the whole rollout, from going on now: a code and numbers for
//! programs, and a sentence for people.

use std::fmt;

use jiff::Timestamp;

use super::amount::count_nodes;
use super::fleet::{HaltReason, Job, Mark};
use super::ledger::Refusal;
use super::links::FullLink;
use crate::effects::Effect;
use crate::words;

/// The rule in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    Halted(HaltReason),
    Superseded,
    Frozen {
        until: Timestamp,
    },
    WindowClosed {
        opens: Option<Timestamp>,
    },
    /// A monitor of the policy has no present answer.
    MonitorSilent {
        monitor: String,
    },
    /// The values of a gate of the policy cannot be compared on enough changed nodes.
    NotCompared {
        /// Gate and metric.
        name: String,
        /// A changed node is compared at the next tick.
        is_pending: bool,
    },
    /// The window closes before the node's last job ends.
    WindowEnds {
        closes: Timestamp,
    },
    /// The waves wait for `open` nodes of the canary.
    Canary {
        open: u32,
    },
    /// Every node of the canary was skipped, so the canary has no result.
    CanaryWithoutResult,
    Soak {
        until: Timestamp,
    },
    /// The wave waits for `open` nodes begun before. Wave 1 is the first wave after the canary.
    Wave {
        number: u32,
        open: u32,
    },
    /// Every slot of a phase is in use.
    Slots {
        phase: Phase,
        in_use: u32,
        max: u32,
    },
    Budget(Refusal),
    Link(FullLink),
    /// The node's last job.
    Job(Job),
    JobsUnknown,
    /// The drain deadline has passed, and a person decides.
    DrainDeadline,
    /// The jobs are to be requeued, and the scheduler cannot requeue this job. A person decides.
    CannotRequeue(Job),
    /// A gate has no result.
    ResultMissing,
    Held,
    Protected {
        effect: Effect,
    },
    Adopted,
    OthersDrain {
        owner: String,
    },
    Busy {
        operation: String,
    },
    Joining,
    Deferred {
        until: Timestamp,
    },
    Unreadable {
        why: String,
    },
    /// A node keeps the other nodes of its unit back.
    Unit {
        unit: String,
        node: String,
        why: Hindrance,
    },
    /// A limit has no room for the whole unit. The numbers of the limit exclude the unit.
    UnitLimit {
        unit: String,
        /// Nodes of the unit that need room.
        nodes: u32,
        limit: Box<Rule>,
    },
    /// The node's act goes on; named as the cause of a stall.
    Working {
        node: String,
        mark: Mark,
        since: Timestamp,
    },
}

/// The way in which a node keeps its unit back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hindrance {
    /// The node needs the change, and was skipped.
    Skipped,
    /// The node has failed and still serves unchanged.
    Failed,
    /// The node's drain failed or was cancelled before the change.
    DrainEnded,
    /// The node's jobs have not ended yet.
    Drains,
    /// A rule keeps the node.
    Rule(Box<Rule>),
}

words! {
    /// A phase with slots of its own.
    Phase, "phase of a rollout" {
        Waiting = "waiting",
        Changing = "changing",
        Validating = "validating",
    }
}

words! {
    /// The kind of event that a node waits for.
    WaitsFor, "awaited event" {
        Slot = "slot",
        Window = "window",
        Job = "job",
        Person = "person",
        /// The rollout's own progress: a canary, a wave, a gate, another operation.
        Progress = "progress",
    }
}

impl Rule {
    /// Returns the code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Halted(_) => "halted",
            Self::Superseded => "superseded",
            Self::Frozen { .. } => "frozen",
            Self::WindowClosed { .. } => "window_closed",
            Self::MonitorSilent { .. } => "monitor_silent",
            Self::NotCompared { .. } => "not_compared",
            Self::WindowEnds { .. } => "window_ends",
            Self::Canary { .. } => "canary",
            Self::CanaryWithoutResult => "canary_without_result",
            Self::Soak { .. } => "soak",
            Self::Wave { .. } => "wave",
            Self::Slots { phase, .. } => match phase {
                Phase::Waiting => "max_waiting",
                Phase::Changing => "max_changing",
                Phase::Validating => "max_validating",
            },
            Self::Budget(refusal) => refusal.code(),
            Self::Link(_) => "link",
            Self::Job(_) => "job",
            Self::JobsUnknown => "jobs_unknown",
            Self::DrainDeadline => "drain_deadline",
            Self::CannotRequeue(_) => "cannot_requeue",
            Self::ResultMissing => "result_missing",
            Self::Held => "held",
            Self::Protected { .. } => "protected",
            Self::Adopted => "adopted",
            Self::OthersDrain { .. } => "others_drain",
            Self::Busy { .. } => "busy",
            Self::Joining => "joining",
            Self::Deferred { .. } => "deferred",
            Self::Unreadable { .. } => "unreadable",
            Self::Unit { .. } => "unit",
            Self::UnitLimit { .. } => "unit_limit",
            Self::Working { .. } => "working",
        }
    }

    /// Returns the rule without the ids and users of jobs, for readers who may not see every node.
    pub fn without_holders(&self) -> Self {
        match self.clone() {
            Self::Job(job) => Self::Job(without_holder(&job)),
            Self::CannotRequeue(job) => Self::CannotRequeue(without_holder(&job)),
            Self::Unit {
                unit,
                node,
                why: Hindrance::Rule(rule),
            } => Self::Unit {
                unit,
                node,
                why: Hindrance::Rule(Box::new(rule.without_holders())),
            },
            Self::UnitLimit { unit, nodes, limit } => Self::UnitLimit {
                unit,
                nodes,
                limit: Box::new(limit.without_holders()),
            },
            rule => rule,
        }
    }

    /// Returns the kind of event that ends the wait.
    pub fn waits_for(&self) -> WaitsFor {
        match self {
            Self::Slots { .. } | Self::Budget(_) | Self::Link(_) => WaitsFor::Slot,
            Self::Frozen { .. } | Self::WindowClosed { .. } | Self::WindowEnds { .. } => {
                WaitsFor::Window
            }
            Self::Job(_) | Self::JobsUnknown => WaitsFor::Job,
            Self::Halted(_)
            | Self::NotCompared {
                is_pending: false, ..
            }
            | Self::CanaryWithoutResult
            | Self::DrainDeadline
            | Self::CannotRequeue(_)
            | Self::Held
            | Self::Protected { .. }
            | Self::Adopted
            | Self::OthersDrain { .. }
            | Self::Unreadable { .. } => WaitsFor::Person,
            Self::Superseded
            | Self::NotCompared {
                is_pending: true, ..
            }
            | Self::MonitorSilent { .. }
            | Self::Canary { .. }
            | Self::Soak { .. }
            | Self::Wave { .. }
            | Self::ResultMissing
            | Self::Busy { .. }
            | Self::Joining
            | Self::Deferred { .. }
            | Self::Working { .. } => WaitsFor::Progress,
            Self::Unit { why, .. } => match why {
                Hindrance::Skipped | Hindrance::Failed => WaitsFor::Person,
                Hindrance::DrainEnded | Hindrance::Drains => WaitsFor::Progress,
                Hindrance::Rule(rule) => rule.waits_for(),
            },
            Self::UnitLimit { limit, .. } => limit.waits_for(),
        }
    }

    /// Returns whether the wait ends at a time set by the policy or by the windows. Such a wait is
    /// no stall.
    pub(super) fn is_scheduled(&self) -> bool {
        match self.cause() {
            Self::WindowClosed { opens } => opens.is_some(),
            rule => matches!(
                rule,
                Self::Frozen { .. }
                    | Self::WindowEnds { .. }
                    | Self::Soak { .. }
                    | Self::Deferred { .. }
            ),
        }
    }

    /// Returns whether a person decides about the jobs of a node that has waited too long.
    pub fn asks_about_jobs(&self) -> bool {
        Self::is_question(self.code())
    }

    /// Returns whether the code is of a rule by which a person decides about the jobs of a node.
    pub fn is_question(code: &str) -> bool {
        ["drain_deadline", "cannot_requeue"].contains(&code)
    }

    /// Returns whether the rule limits the rollout, and more nodes than the node at hand.
    pub(super) fn is_of_rollout(&self) -> bool {
        if let Self::UnitLimit { limit, .. } = self {
            return limit.is_of_rollout();
        }
        matches!(
            self,
            Self::Halted(_)
                | Self::Superseded
                | Self::Frozen { .. }
                | Self::WindowClosed { .. }
                | Self::MonitorSilent { .. }
                | Self::NotCompared { .. }
                | Self::Canary { .. }
                | Self::CanaryWithoutResult
                | Self::Soak { .. }
                | Self::Wave { .. }
                | Self::Slots { .. }
                | Self::Budget(_)
                | Self::Link(_)
        )
    }

    /// Returns the rule behind the rule of a unit, or the rule itself.
    fn cause(&self) -> &Self {
        match self {
            Self::Unit {
                why: Hindrance::Rule(rule),
                ..
            }
            | Self::UnitLimit { limit: rule, .. } => rule.cause(),
            rule => rule,
        }
    }

    /// Returns the act of a person that ends the rule on a node of a unit; `None` if the rule ends
    /// without a person.
    fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Held => Some("release the hold"),
            Self::Protected { .. } => Some("lift the protection"),
            Self::Adopted => Some("allow the reinstall"),
            Self::OthersDrain { .. } => Some("let the owner end the drain"),
            Self::Unreadable { .. } => Some("repair the node"),
            Self::DrainDeadline => Some("requeue or end the jobs"),
            Self::CannotRequeue(_) => Some("end the jobs"),
            rule => match rule.waits_for() {
                WaitsFor::Person => Some("resolve the cause"),
                WaitsFor::Slot | WaitsFor::Window | WaitsFor::Job | WaitsFor::Progress => None,
            },
        }
    }
}

/// Writes why a node keeps its unit back, and the act that ends the wait.
fn write_hindrance(
    f: &mut fmt::Formatter<'_>,
    unit: &str,
    node: &str,
    why: &Hindrance,
) -> fmt::Result {
    write!(f, "unit {unit} is changed together, and {node} ")?;
    match why {
        Hindrance::Skipped => write!(f, "was skipped: retry {node}, or skip the whole unit"),
        Hindrance::Failed => write!(f, "has failed: retry {node}, or skip the whole unit"),
        Hindrance::DrainEnded => f.write_str("is no longer drained"),
        Hindrance::Drains => f.write_str("still drains"),
        Hindrance::Rule(rule) => {
            write!(f, "cannot start: {rule}")?;
            match rule.remedy() {
                Some(remedy) => write!(f, "; {remedy}, or skip the whole unit"),
                None => Ok(()),
            }
        }
    }
}

/// Returns a job without the id and the user.
fn without_holder(job: &Job) -> Job {
    Job {
        id: String::new(),
        holder: String::new(),
        ..job.clone()
    }
}

/// Writes the last job of a node, with the user if known to the reader.
fn write_job(f: &mut fmt::Formatter<'_>, job: &Job) -> fmt::Result {
    match job.holder.as_str() {
        "" => f.write_str("the last job of a node")?,
        holder => write!(f, "job {} of {holder}", job.id)?,
    }
    match job.ends {
        Some(ends) => write!(f, " ends by {ends:.0}"),
        None => f.write_str(" has no end"),
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Halted(reason) => write!(f, "the rollout is halted: {reason}"),
            Self::Superseded => f.write_str("a newer rollout has taken over"),
            Self::Frozen { until } => write!(f, "changes are frozen until {until:.0}"),
            Self::WindowClosed { opens: Some(opens) } => {
                write!(f, "the maintenance window opens at {opens:.0}")
            }
            Self::WindowClosed { opens: None } => f.write_str("no maintenance window follows"),
            Self::MonitorSilent { monitor } => {
                write!(f, "the monitor {monitor} has no present answer")
            }
            Self::NotCompared {
                name,
                is_pending: true,
            } => write!(f, "changed nodes are compared soon: {name}"),
            Self::NotCompared {
                name,
                is_pending: false,
            } => write!(f, "too few changed nodes can be compared: {name}"),
            Self::WindowEnds { closes } => {
                write!(
                    f,
                    "the window closes at {closes:.0}, before the last job ends"
                )
            }
            Self::Canary { open } => write!(f, "the canary waits for {}", count_nodes(*open)),
            Self::CanaryWithoutResult => f.write_str("every node of the canary was skipped"),
            Self::Soak { until } => write!(f, "the canary soaks until {until:.0}"),
            Self::Wave { number, open } => {
                write!(f, "wave {number} waits for {}", count_nodes(*open))
            }
            Self::Slots { phase, in_use, max } => {
                write!(
                    f,
                    "every slot for {phase} nodes is in use: {in_use} of {max}"
                )
            }
            Self::Budget(refusal) => refusal.fmt(f),
            Self::Link(full) => full.fmt(f),
            Self::Job(job) => write_job(f, job),
            Self::JobsUnknown => f.write_str("the scheduler does not list the node's jobs"),
            Self::DrainDeadline => f.write_str(
                "the drain deadline has passed: a person requeues or ends the jobs, or skips the node",
            ),
            Self::CannotRequeue(job) => {
                match job.holder.as_str() {
                    "" => f.write_str("a job")?,
                    holder => write!(f, "job {} of {holder}", job.id)?,
                }
                f.write_str(" cannot be requeued: a person ends the job or skips the node")
            }
            Self::ResultMissing => f.write_str("a gate has no result"),
            Self::Held => f.write_str("the claim is on hold"),
            Self::Protected { effect } => write!(f, "the node is protected from a {effect}"),
            Self::Adopted => f.write_str("the node is adopted: a person decides on a reinstall"),
            Self::OthersDrain { owner } => write!(f, "drained by another owner: {owner}"),
            Self::Busy { operation } => write!(f, "another operation has the node: {operation}"),
            Self::Joining => f.write_str("the node is on the first way into service"),
            Self::Deferred { until } => write!(f, "deferred until {until:.0}"),
            Self::Unreadable { why } => write!(f, "the node cannot be read: {why}"),
            Self::Unit { unit, node, why } => write_hindrance(f, unit, node, why),
            Self::UnitLimit { unit, nodes, limit } => {
                write!(f, "unit {unit} needs {}: {limit}", count_nodes(*nodes))
            }
            Self::Working { node, mark, since } => write!(f, "{node} is {mark} since {since:.0}"),
        }
    }
}
