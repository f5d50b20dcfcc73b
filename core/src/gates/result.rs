//! The result of a gate on a node: the verdict, the measured values, and the evidence an operator
//! needs to trust the verdict.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::gate::{Limit, Op, Stage, Suite, Value};
use crate::redact::redact;
use crate::values::Digest;
use crate::words;

words! {
    /// The verdict of a gate.
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    Verdict, "verdict" {
        Pass = "pass",
        /// A measured value missed its threshold.
        Fail = "fail",
        /// The tool crashed, timed out, printed an unknown version, or gave no output.
        Error = "error",
        /// The gate did not run, or had nothing to measure. The reason explains why.
        Skipped = "skipped",
    }
}

/// The result of a gate on a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct GateResult {
    pub gate: String,
    pub title: String,
    pub stage: Stage,
    /// Whether any verdict other than `pass` blocked admission.
    pub required: bool,
    /// Whether the verdict had no effect on admission (shadow gate).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shadow: bool,
    pub verdict: Verdict,
    /// One sentence comparing the measured value with the limit.
    pub reason: String,
    /// The meaning of a failure, quoted from the suite for the repair technician; empty unless the
    /// gate failed. Filled from the suite by the reader. The server fills its own stored copy and
    /// ignores any finding sent by a node.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub finding: String,
    pub measured: Vec<Measured>,
    pub started_at: Timestamp,
    pub duration_ms: u64,
    /// The reasons for each repeated run, oldest first: errors before this verdict, and limits
    /// missed while the machine was settling.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former: Vec<String>,
    /// The waiver counted instead of a pass. Only the server writes this field; the verdict stays
    /// unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waived: Option<Waived>,
    pub evidence: Evidence,
}

impl GateResult {
    /// Returns the result without text similar to a secret. The verdict and the measured values
    /// stay.
    pub fn redacted(self) -> Self {
        Self {
            title: redact(&self.title),
            finding: redact(&self.finding),
            reason: redact(&self.reason),
            former: self.former.iter().map(|reason| redact(reason)).collect(),
            evidence: self.evidence.redacted(),
            ..self
        }
    }

    /// Returns the result without the raw text of the evidence.
    pub fn without_text(self) -> Self {
        Self {
            evidence: self.evidence.without_text(),
            ..self
        }
    }

    /// Adds the suite's finding to a failed gate. Errors and skipped gates get no finding, because
    /// neither proves a hardware fault.
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

/// A waiver, copied at the time of use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Waived {
    pub waiver: Uuid,
    pub requested_by: String,
    pub agreed_by: String,
    pub reason: String,
    /// Expiry time; afterwards the waiver no longer counts.
    pub until: Timestamp,
}

/// A measured value with its limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Measured {
    pub metric: String,
    /// The disk, GPU or link measured; empty for the node itself.
    pub entity: String,
    pub value: Value,
    pub op: Op,
    pub limit: Limit,
    pub unit: String,
    pub verdict: Verdict,
}

/// The evidence for a verdict, bounded in size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    pub argv: Vec<String>,
    pub exit: Option<i32>,
    /// Tail of the output, at most 64 KiB.
    pub stdout: String,
    pub stderr: String,
    pub versions: BTreeMap<String, String>,
    /// Tails of the files kept by the gate, by file name, at most 64 KiB each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// Kernel log from shortly before the gate until its end; the tail, at most 16 KiB.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kernel_log: String,
    /// Digest over all other fields, computed by muster-node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

impl Evidence {
    /// Returns the evidence without raw text, for readers without the right to raw text. The exit
    /// code and the versions of tools stay.
    pub fn without_text(self) -> Self {
        Self {
            exit: self.exit,
            versions: self.versions,
            ..Self::default()
        }
    }

    /// Returns the evidence without text similar to a secret. Whole evidence gets a digest of the
    /// remaining text.
    pub fn redacted(self) -> Self {
        let was_whole = self.is_whole();
        let kept = Self {
            argv: self.argv.iter().map(|word| redact(word)).collect(),
            stdout: redact(&self.stdout),
            stderr: redact(&self.stderr),
            files: self
                .files
                .iter()
                .map(|(name, text)| (name.clone(), redact(text)))
                .collect(),
            kernel_log: redact(&self.kernel_log),
            ..self
        };
        match was_whole {
            true => kept.sealed(),
            false => kept,
        }
    }

    /// Adds the digest, so that any later change is detectable.
    pub fn sealed(self) -> Self {
        let digest = Some(self.sum());
        Self { digest, ..self }
    }

    /// Returns whether the evidence still matches its digest. Evidence without a digest was never
    /// sealed.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result() -> GateResult {
        let evidence = Evidence {
            argv: vec!["login".to_owned(), "--password=calvin".to_owned()],
            exit: Some(0),
            stdout: "8 GPUs\ntoken: abc\n".to_owned(),
            stderr: "-----BEGIN PRIVATE KEY-----\nMC4CAQAw\n-----END PRIVATE KEY-----\n".to_owned(),
            versions: [("cat".to_owned(), "9.1".to_owned())].into(),
            files: [("a.log".to_owned(), "http://root:calvin@n1/".to_owned())].into(),
            kernel_log: "Command line: muster.nonce=0011 quiet".to_owned(),
            digest: None,
        };
        let bare = json!({
            "gate": "node.profile", "title": "Profile token=abc", "finding": "nonce=00", "stage": "node", "required": true, "verdict": "fail", "reason": "password=calvin",
            "measured": [], "started_at": "2026-01-05T08:00:00Z", "duration_ms": 1, "former": ["token=abc"], "evidence": evidence.sealed(),
        });
        serde_json::from_value(bare).unwrap()
    }

    #[test]
    fn a_result_is_stored_without_secrets_and_with_its_verdict() {
        let kept = result().redacted();
        assert!(kept.evidence.is_whole(), "the digest is of the stored text");
        assert_eq!(kept.verdict, Verdict::Fail);
        assert_eq!(
            (kept.reason.as_str(), kept.former[0].as_str()),
            ("password=[removed]", "token=[removed]")
        );
        assert_eq!(
            (kept.title.as_str(), kept.finding.as_str()),
            ("Profile token=[removed]", "nonce=[removed]")
        );
        let evidence = kept.evidence;
        assert_eq!(evidence.argv, ["login", "--password=[removed]"]);
        assert_eq!(evidence.stdout, "8 GPUs\ntoken: [removed]\n");
        assert_eq!(evidence.stderr, "[removed]\n[removed]\n[removed]\n");
        assert_eq!(evidence.files["a.log"], "http://root:[removed]@n1/");
        assert_eq!(
            evidence.kernel_log,
            "Command line: muster.nonce=[removed] quiet"
        );
    }

    #[test]
    fn changed_evidence_stays_recognizable() {
        let mut changed = result();
        changed.evidence.stdout.push('x');
        assert!(!changed.redacted().evidence.is_whole());
    }

    #[test]
    fn a_result_without_text_keeps_versions_and_exit_code() {
        let bare = result().without_text().evidence;
        let exit_and_version = (bare.exit, bare.versions["cat"].as_str());
        assert_eq!(exit_and_version, (Some(0), "9.1"));
        let text = serde_json::to_string(&bare).unwrap();
        for hidden in ["GPUs", "PRIVATE", "calvin", "nonce", "login"] {
            assert!(!text.contains(hidden), "{text}");
        }
    }
}
