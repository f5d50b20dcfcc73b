//! Reports the host key to the agent, with this boot's one-time nonce.

use std::time::Duration;

use muster_core::wire::node::{Failure, FailureCode, LiveReport};
use ureq::Agent;

use crate::failure::{fatal, retryable};

/// Builds a client for short requests to the boot listener: no redirects, no proxies, a single
/// deadline for the whole request.
pub fn agent(timeout: Duration) -> Agent {
    Agent::config_builder()
        .timeout_global(Some(timeout))
        .max_redirects(0)
        .proxy(None)
        .http_status_as_error(true)
        .build()
        .into()
}

/// Sends the report once.
///
/// # Errors
/// `already_reported`, final, when the nonce was used before; `report_failed` otherwise.
pub fn send(url: &str, report: &LiveReport) -> Result<(), Failure> {
    let body = serde_json::to_vec(report)
        .map_err(|error| fatal(FailureCode::ReportFailed, error.to_string()))?;
    let target = format!("{url}/report");
    let sent = agent(Duration::from_secs(15))
        .post(&target)
        .header("content-type", "application/json")
        .send(&body[..]);
    match sent {
        Ok(_) => Ok(()),
        Err(ureq::Error::StatusCode(409)) => Err(fatal(
            FailureCode::AlreadyReported,
            "ANOTHER MACHINE REPORTED WITH THIS BOOT'S NONCE: the agent does not trust this boot; look for an intruder on the provisioning network",
        )),
        // 404 is not final: a restarted agent knows the nonce again after receiving its job again.
        Err(ureq::Error::StatusCode(status @ (400 | 401 | 403 | 410 | 422))) => Err(fatal(
            FailureCode::ReportFailed,
            format!("{target} refused the report with status {status}"),
        )),
        Err(error) => Err(retryable(
            FailureCode::ReportFailed,
            format!("{target}: {error}"),
        )),
    }
}
