//! Makes the installed OS what its plan says.

use muster_core::stacks::{ConvergePlan, ConvergeReport};
use muster_core::wire::node::Failure;

use crate::job::JobContext;

/// placeholder
///
/// # Errors
/// Always, for now.
pub fn run(_plan: &ConvergePlan, _cx: &mut JobContext) -> Result<ConvergeReport, Failure> {
    Err(crate::failure::fatal("unsupported", "converge is not built in"))
}
