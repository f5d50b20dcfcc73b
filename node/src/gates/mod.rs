//! Runs gates, and compares measurements with criteria. The room makes no decision about the node:
//! verdicts and evidence go to the server.

mod argv; // Words of a gate's arguments
mod call; // The call of a gate's tool and its answer
mod command; // `muster-node gate`, by hand
mod cursor; // The end of the last reading of the kernel's log
mod during; // Gates measured under the load of other gates
mod evidence; // The kept output and files of a gate
mod execute; // Runs one gate to its verdict
mod gpu_nodes; // Device nodes of GPUs before a tool in a sandbox
mod kernel_log; // Kernel messages during a gate
mod needs; // Requirements of a gate on the node
mod no_gpu; // Nodes without the GPUs of the profile
mod pair; // Gates between two nodes: the listening end and the asking end
mod parsers; // One file per tool or measurement
mod program; // The program of a gate's tool
mod read; // The result of a parser for a file
mod report; // The report on a terminal
mod scratch; // A folder for the tools' files
mod shared; // State shared by the gates of a run
mod targets; // The disks or mounts of a gate
#[cfg(test)]
pub(crate) mod tests;
mod verdict; // The verdict of a reading, and of a missing reading
mod window; // Growth between two runs of a tool

use muster_core::facts::Facts;
use muster_core::gates::{Gate, GateResult, blocks, fingerprint, lint_accepted};
use muster_core::values::Digest;
use muster_core::wire::node::{Failure, FailureCode, GatePlan};

pub use command::command;
pub use pair::command as pair_command;
pub use parsers::Unread;
pub use read::{Judged, Parsed, Question, Shown, judge, read, read_text};

pub(crate) use cursor::Kept;
pub(crate) use shared::Shared;

use crate::failure::fatal;
use crate::inventory;
use crate::job::JobContext;
use crate::machine::Machine;
use crate::tool::Guard;

/// The environment of the gates.
pub(crate) struct Bench<'a> {
    pub(crate) machine: Machine,
    pub(crate) plan: &'a GatePlan,
    pub(crate) facts: &'a Facts,
    pub(crate) cx: &'a JobContext,
    /// The limits of the gates' tools; `None` where no tool runs, and in tests.
    pub(crate) guard: Option<&'a Guard>,
    pub(crate) shared: &'a Shared,
}

/// The result of a run.
pub(crate) struct Ran {
    pub(crate) results: Vec<GateResult>,
    /// Fingerprint of the hardware.
    pub(crate) fingerprint: Digest,
    /// The places in the kernel's log, stored after the results are delivered. A run by hand stores
    /// no place.
    pub(crate) looks: Vec<Kept>,
}

/// Runs a plan's gates on this machine.
///
/// # Errors
/// `bad_suite` for a suite refused by the linter, `cancelled`. An impossible gate is a result, not
/// a failure.
pub(crate) fn run(plan: &GatePlan, cx: &JobContext) -> Result<Ran, Failure> {
    // First, so that muster-node has its own cgroup before a program starts.
    let guard = Guard::enter(|why| cx.log(why));
    let (facts, shared) = (inventory::collect(cx).facts, Shared::default());
    let results = run_on(&Bench {
        machine: Machine::host(),
        plan,
        facts: &facts,
        cx,
        guard: Some(&guard),
        shared: &shared,
    })?;
    Ok(Ran {
        results,
        fingerprint: fingerprint(&facts),
        looks: shared.looks(),
    })
}

/// Runs stage by stage: a failed stage blocks the later stages. Looks after a load run in any case:
/// they tell why a load failed, and a reboot erases what they read.
pub(crate) fn run_on(bench: &Bench<'_>) -> Result<Vec<GateResult>, Failure> {
    let Bench { plan, cx, .. } = bench;
    let gates = chosen(plan)?;
    let mut blocked: Option<&Gate> = None;
    let mut results = Vec::with_capacity(gates.len());
    for (done, gate) in gates.iter().enumerate() {
        if cx.cancelled() {
            return Err(fatal(
                FailureCode::Cancelled,
                "the job was cancelled between two gates",
            ));
        }
        cx.progress(
            &gate.title,
            Some(done as u64),
            Some(gates.len() as u64),
            Some("gates"),
        );
        let result = match &blocked {
            Some(by) if by.stage < gate.stage && !bench.shared.looks_after(gate) => {
                verdict::skip_gate(gate, by, bench)
            }
            _ => execute::execute(gate, bench)?,
        };
        cx.log(&format!(
            "{} {}: {}",
            result.gate,
            result.verdict.as_str(),
            result.reason
        ));
        let mode = gate.mode(Some(&plan.profile));
        if blocks(mode, result.verdict) && !plan.waived.contains(&gate.id) && blocked.is_none() {
            blocked = Some(*gate);
        }
        results.push(result);
    }
    Ok(results)
}

/// Returns the requested gates in the order of their stages.
pub(crate) fn chosen(plan: &GatePlan) -> Result<Vec<&Gate>, Failure> {
    let problems = lint_accepted(&plan.suite, |gate| plan.is_former(&gate.id));
    if !problems.is_empty() {
        return Err(fatal(
            FailureCode::BadSuite,
            problems[..problems.len().min(10)].join("; "),
        ));
    }
    if let Some(unknown) = plan
        .only
        .iter()
        .find(|id| plan.suite.gates.iter().all(|gate| gate.id != **id))
    {
        return Err(fatal(
            FailureCode::BadSuite,
            format!("the suite has no gate {unknown:?}"),
        ));
    }
    let mut gates: Vec<&Gate> = plan.suite.gates.iter().collect();
    gates.retain(|gate| plan.only.is_empty() || plan.only.contains(&gate.id));
    gates.sort_by_key(|gate| gate.stage);
    Ok(gates)
}
