//! Device nodes of GPUs before a tool in a sandbox. Outside of a sandbox, programs of NVIDIA's
//! driver make the nodes at their start; the sandbox lacks the right.

use muster_core::gates::{Gate, Parser};

use super::Bench;
use crate::converge::make_gpu_nodes;

/// The nodes that every program of CUDA opens.
const NODES: [&str; 2] = ["/dev/nvidiactl", "/dev/nvidia-uvm"];

/// Makes the nodes where the driver is loaded and a node is missing. A failure is logged: the tool
/// then gives the reason.
pub(super) fn make_missing_nodes(gate: &Gate, bench: &Bench<'_>) {
    let reads_gpus = Parser::find(&gate.parser).is_some_and(Parser::reads_gpus);
    let machine = &bench.machine;
    let is_needed = reads_gpus && bench.guard.is_some();
    if is_needed && NODES.iter().any(|node| !machine.path(node).exists()) {
        make_gpu_nodes(machine, bench.cx);
    }
}
