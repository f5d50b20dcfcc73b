//! What became of a gate on one node: the verdict, what was measured, and what a person needs to believe it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::gate::{Limit, Op, Stage, Suite, Value};
use crate::values::Digest;

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
    /// It was not run, or there was nothing to measure; the reason says why.
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
    /// Whether anything but `pass` was in the way of admission.
    pub required: bool,
    /// Whether nothing was.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shadow: bool,
    pub verdict: Verdict,
    /// One sentence: what was found, against what.
    pub reason: String,
    /// What that means, in the suite's words for whoever is to mend it; empty unless it failed. Written by whoever has the suite at hand, the server alone
    /// for what it keeps: what a node says here counts for nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub finding: String,
    pub measured: Vec<Measured>,
    pub started_at: Timestamp,
    pub duration_ms: u64,
    /// Why it was run again: the reasons of the errors before this verdict, and of what was missed while it was settling, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former: Vec<String>,
    /// The waiver that counts in its place. Written by the server alone; the verdict stays what it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waived: Option<Waived>,
    pub evidence: Evidence,
}

impl GateResult {
    /// With what its suite says of a gate that fails. An error, or nothing to measure, says nothing of the hardware.
    pub fn explained(self, suite: &Suite) -> Self {
        let gate = suite
            .gates
            .iter()
            .find(|gate| gate.id == self.gate && self.verdict == Verdict::Fail);
        Self {
            finding: gate.map(|gate| gate.finding.clone()).unwrap_or_default(),
            ..self
        }
    }
}

/// A waiver as it stood when it was used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Waived {
    pub waiver: Uuid,
    pub requested_by: String,
    pub agreed_by: String,
    pub reason: String,
    /// It counts no more from then on.
    pub until: Timestamp,
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
    /// Tails of the files that the gate names, by name, at most 64 KiB each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// What the kernel said from shortly before the gate until its end; the tail, at most 16 KiB.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kernel_log: String,
    /// Of all the others, as muster-node saw them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

impl Evidence {
    /// With its digest: whoever changes it afterwards is seen.
    pub fn sealed(self) -> Self {
        let digest = Some(self.sum());
        Self { digest, ..self }
    }

    /// Whether it is what was sealed. Evidence without a digest was never sealed.
    pub fn is_whole(&self) -> bool {
        self.digest == Some(self.sum())
    }

    fn sum(&self) -> Digest {
        let bare = Self {
            digest: None,
            ..self.clone()
        };
        Digest::of(&serde_json::to_vec(&bare).expect("evidence is only strings and numbers"))
    }
}
