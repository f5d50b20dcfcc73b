//! Gates: what is measured, against which threshold, and the verdict. Fails closed: there is no default verdict, and none from an exit code alone.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

mod assess; // Samples against criteria: the verdict
mod catalogue; // Parsers, their metrics and units
mod fingerprint; // The hardware a result belongs to
mod lint; // Refuses suites that could pass without measuring
pub mod xid; // What errors of NVIDIA's drivers ask for

pub use assess::{Assessment, Reference, Sample, assess};
pub use catalogue::{Metric, Parser, TEXT};
pub use fingerprint::fingerprint;
pub use lint::{VARIABLES, lint};

/// An ordered set of gates, in stages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Suite {
    pub name: String,
    pub version: String,
    pub gates: Vec<Gate>,
}

/// Order in which gates run; a stage starts when the one before it has no required gate that is not `pass`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    Inventory,
    Software,
    Gpu,
    Node,
    Pair,
    Group,
    Soak,
}

/// One check with criteria.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Gate {
    pub id: String,
    pub title: String,
    pub stage: Stage,
    /// What is run, without a shell; `${word}` is replaced by a known variable. Empty for gates that muster-node answers itself.
    #[serde(default)]
    pub argv: Vec<String>,
    /// Run once for each of these, with `${each}` in argv; results carry the disk's serial.
    #[serde(default)]
    pub each: Option<Each>,
    /// The file below `${scratch}` that holds the answer, for tools that do not keep stdout clean.
    #[serde(default)]
    pub output: Option<String>,
    /// Kills the whole process group.
    pub timeout_s: u64,
    /// A parser's name: `fio`, `iperf3`, `stressapptest`…
    pub parser: String,
    /// Entities that each criterion must see: a number, any `profile:NAME`, `facts:disks`, `facts:nvme_disks` or `facts:gpus`; one when absent.
    #[serde(default)]
    pub count: Option<String>,
    pub criteria: Vec<Criterion>,
    /// What a failure means, in words for the person who opens the node's page.
    pub finding: String,
    #[serde(default)]
    pub on_timeout: OnTimeout,
    /// Required gates block admission unless they pass.
    #[serde(default = "required")]
    pub required: bool,
    /// Run after the reboot that `survives a reboot` asks for, as well as before it.
    #[serde(default)]
    pub after_reboot: bool,
}

fn required() -> bool {
    true
}

/// What a gate is run for, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Each {
    Disks,
    NvmeDisks,
}

/// What a tool that does not come back says about the hardware.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    #[default]
    Error,
    /// The hang itself is the fault.
    Fail,
}

/// One metric against one limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Criterion {
    pub metric: String,
    pub op: Op,
    /// The limit itself, or `profile:NAME` for a threshold of the hardware profile.
    pub limit: Limit,
    pub unit: String,
}

/// How a measured value is compared with the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Op {
    #[serde(rename = "==")]
    Equal,
    #[serde(rename = "!=")]
    NotEqual,
    #[serde(rename = ">=")]
    AtLeast,
    #[serde(rename = "<=")]
    AtMost,
}

impl std::fmt::Display for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::AtLeast => ">=",
            Self::AtMost => "<=",
        })
    }
}

/// A limit: a number, a text, or a reference into the profile (`profile:…`), the stack (`stack:…`) or the plan's variables (`variable:…`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum Limit {
    Number(f64),
    Text(String),
}

/// A measured value.
pub type Value = Limit;

/// How a gate ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Pass,
    /// A measured value missed its threshold.
    Fail,
    /// The tool crashed, timed out, spoke an unknown version, or said nothing.
    Error,
    Skipped,
}

impl Verdict {
    /// As stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Error => "error",
            Self::Skipped => "skipped",
        }
    }
}

/// One gate's outcome on one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct GateResult {
    pub gate: String,
    pub title: String,
    pub stage: Stage,
    pub required: bool,
    pub verdict: Verdict,
    /// One sentence: what was found, against what.
    pub reason: String,
    pub measured: Vec<Measured>,
    pub started_at: Timestamp,
    pub duration_ms: u64,
    pub evidence: Evidence,
}

/// One value held against its limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Measured {
    pub metric: String,
    /// The disk, GPU or link it belongs to; empty for the node itself.
    pub entity: String,
    pub value: Value,
    pub op: Op,
    pub limit: Limit,
    pub unit: String,
    pub verdict: Verdict,
}

/// What a person needs to believe the verdict, bounded in size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    pub argv: Vec<String>,
    pub exit: Option<i32>,
    /// Tails, at most 64 KiB each.
    pub stdout: String,
    pub stderr: String,
    pub versions: BTreeMap<String, String>,
}

/// What a whole run of a suite says about admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuiteVerdict {
    /// Every required gate passed.
    Pass,
    /// At least one required gate failed.
    Fail,
    /// None failed, but at least one required gate has no answer that counts.
    Unknown,
}

/// Judges a run: every required gate of the suite among `wanted` must be present and `pass`.
pub fn judge(suite: &Suite, wanted: &[String], results: &[GateResult]) -> SuiteVerdict {
    let counted = |gate: &&Gate| gate.required && (wanted.is_empty() || wanted.contains(&gate.id));
    let verdicts = suite
        .gates
        .iter()
        .filter(counted)
        .map(|gate| results.iter().find(|result| result.gate == gate.id).map(|result| result.verdict));
    verdicts.fold(SuiteVerdict::Pass, |sofar, verdict| match (sofar, verdict) {
        (SuiteVerdict::Fail, _) | (_, Some(Verdict::Fail)) => SuiteVerdict::Fail,
        (SuiteVerdict::Unknown, _) | (_, Some(Verdict::Error | Verdict::Skipped) | None) => SuiteVerdict::Unknown,
        (SuiteVerdict::Pass, Some(Verdict::Pass)) => SuiteVerdict::Pass,
    })
}

#[cfg(test)]
mod tests;
