//! Runs gates and judges what they measured.

use std::process::ExitCode;

use muster_core::gates::GateResult;
use muster_core::values::Digest;
use muster_core::wire::node::{Failure, GatePlan};

use crate::job::JobContext;

/// placeholder
///
/// # Errors
/// Always, for now.
pub fn run(_plan: &GatePlan, _cx: &mut JobContext) -> Result<(Vec<GateResult>, Digest), Failure> {
    Err(crate::failure::fatal("unsupported", "gates are not built in"))
}

/// `muster-node gate …`; placeholder
pub fn command(_arguments: &[String]) -> ExitCode {
    ExitCode::from(2)
}
