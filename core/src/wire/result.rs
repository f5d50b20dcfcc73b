//! How a job ended, and the result of a successful job.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::facts::Facts;
use crate::firmware::BmcInventory;
use crate::gates::GateResult;
use crate::redact::redact;
use crate::stacks::ConvergeReport;
use crate::values::Digest;
use crate::wire::node::{Failure, ImageWritten, WipedDisk};
use crate::wire::pair::PairWay;

/// The outcome of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case", deny_unknown_fields)]
pub enum Outcome {
    Succeeded {
        result: JobResult,
    },
    Failed {
        failure: Failure,
    },
    /// The job was cancelled by the server and stopped.
    Cancelled,
}

impl Outcome {
    /// Returns the outcome without text that looks like a secret: the reason of a failure, the
    /// texts of gates, the values of a converge, and the changes of firmware.
    pub fn redacted(self) -> Self {
        match self {
            Self::Succeeded { result } => Self::Succeeded {
                result: result.redacted(),
            },
            Self::Failed { failure } => Self::Failed {
                failure: Failure {
                    message: redact(&failure.message),
                    ..failure
                },
            },
            Self::Cancelled => Self::Cancelled,
        }
    }
}

/// The result of a successful job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum JobResult {
    Live {
        host_key: String,
        boot_id: String,
        address: Ipv4Addr,
        bmc_certificate: Option<Digest>,
        /// Firmware and BIOS as the BMC reports them during the boot; absent where the agent did
        /// not read them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        inventory: Option<Box<BmcInventory>>,
    },
    Facts {
        facts: Box<Facts>,
    },
    PoweredOff,
    PoweredOn,
    /// The BMC accepts the new password, checked in a separate session.
    BmcRotated,
    ImageWritten(ImageWritten),
    /// The installed OS answers with the recorded host key.
    Booted {
        boot_id: String,
    },
    Converged(ConvergeReport),
    Gated {
        results: Vec<GateResult>,
        fingerprint: Digest,
    },
    /// Both directions. The first entry has the first end as client.
    Paired {
        ways: Vec<PairWay>,
    },
    Admitted {
        view: String,
    },
    Drained,
    Removed,
    Wiped {
        disks: Vec<WipedDisk>,
    },
    /// The machine accepts our certificate and shows this host key.
    Adopted {
        host_key: String,
        boot_id: String,
    },
    /// Firmware and BIOS as the BMC reports them at the end.
    Firmware {
        inventory: Box<BmcInventory>,
        /// The changes made, as sentences; empty when the BMC needed no change.
        changed: Vec<String>,
    },
}

impl JobResult {
    fn redacted(self) -> Self {
        let redact_all = |results: Vec<GateResult>| {
            results
                .into_iter()
                .map(GateResult::redacted)
                .collect::<Vec<_>>()
        };
        match self {
            Self::Gated {
                results,
                fingerprint,
            } => Self::Gated {
                results: redact_all(results),
                fingerprint,
            },
            Self::Paired { ways } => Self::Paired {
                ways: ways
                    .into_iter()
                    .map(|way| PairWay {
                        results: redact_all(way.results),
                        ..way
                    })
                    .collect(),
            },
            Self::Converged(report) => Self::Converged(report.redacted()),
            Self::Firmware { inventory, changed } => Self::Firmware {
                inventory,
                changed: changed.iter().map(|change| redact(change)).collect(),
            },
            other @ (Self::Live { .. }
            | Self::Facts { .. }
            | Self::PoweredOff
            | Self::PoweredOn
            | Self::BmcRotated
            | Self::ImageWritten(_)
            | Self::Booted { .. }
            | Self::Admitted { .. }
            | Self::Drained
            | Self::Removed
            | Self::Wiped { .. }
            | Self::Adopted { .. }) => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The result is stored, and shown to readers without the right to raw text.
    #[test]
    fn the_values_of_a_converge_have_no_secrets() {
        let item = |before: &str| json!({ "item": "file /etc/munge.conf", "outcome": "changed", "before": before, "after": null });
        let lock = format!("sha256:{}", "0".repeat(64));
        let outcome = |before: &str| -> Outcome {
            let report = json!({ "kind": "converged", "lock": lock, "items": [item(before)], "reboot_for": [] });
            let outcome = json!({ "outcome": "succeeded", "result": report });
            serde_json::from_value(outcome).unwrap()
        };
        assert_eq!(outcome("mode 0600").redacted(), outcome("mode 0600"));
        let kept = outcome("password=[removed] mode 0600");
        assert_eq!(outcome("password=calvin mode 0600").redacted(), kept);
    }
}
