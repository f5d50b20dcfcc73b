//! Checks run by operators of GPU clusters, with the ids of Muster's survey: A inventory, B DCGM, C
//! single GPU under load, D inside the node, E between nodes. Shipped gates name the checks they
//! cover; each uncovered check gives the reason.

/// A check of the survey.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    pub id: &'static str,
    pub title: &'static str,
    /// The faults found by the check.
    pub catches: &'static str,
    /// The reason why no shipped gate covers the check; empty if a gate does.
    pub not_shipped: &'static str,
}

const fn check(id: &'static str, title: &'static str, catches: &'static str) -> Check {
    Check {
        id,
        title,
        catches,
        not_shipped: "",
    }
}

const fn missing(
    id: &'static str,
    title: &'static str,
    catches: &'static str,
    not_shipped: &'static str,
) -> Check {
    Check {
        id,
        title,
        catches,
        not_shipped,
    }
}

/// All checks of the survey, in order of id.
pub const CHECKS: &[Check] = &[
    check(
        "A1",
        "GPU count and identity",
        "a lost GPU, a swapped board, the wrong model",
    ),
    check(
        "A2",
        "Full state of each GPU",
        "wrong clocks, power limits and links",
    ),
    check(
        "A3",
        "ECC and row remapping",
        "worn memory: pending and failed remaps, uncorrected errors",
    ),
    check(
        "A4",
        "PCIe links",
        "cards and disks that trained down in width",
    ),
    check("A5", "NVLink state", "links that are down or slow"),
    check(
        "A6",
        "NVSwitch fabric",
        "a fabric manager that failed or has another version than the driver",
    ),
    check(
        "A7",
        "Topology",
        "GPUs without a path to other GPUs, NICs behind the wrong switch",
    ),
    check(
        "A8",
        "InfiniBand ports",
        "ports that are down, polling, slow or of the wrong kind",
    ),
    check(
        "A9",
        "InfiniBand counters",
        "links that flap or corrupt data",
    ),
    // PCIe ACS belongs to A10 but has no gate of its own, because no parser reads `lspci -vvv`. The
    // stack's unit that disables ACS is checked as a service.
    check(
        "A10",
        "Software",
        "packages, kernel, services and firmware that differ from the pinned versions",
    ),
    check(
        "A11",
        "Host inventory",
        "missing or smaller processors, memory, disks and NICs",
    ),
    check("A12", "Disk health", "disks that report failure or wear"),
    check(
        "A13",
        "Memory and machine-check errors",
        "DIMMs, processors and buses that report errors",
    ),
    check("A14", "Time", "clocks too wrong for munge and TLS"),
    check(
        "A15",
        "Mounts and RAID",
        "full file systems, degraded arrays",
    ),
    check(
        "A16",
        "BMC, power supplies, fans",
        "lost redundancy, sensors beyond their limits",
    ),
    check(
        "A17",
        "Kernel log",
        "Xid and SXid events, lost GPUs, bus errors, hung tasks, failing adapters",
    ),
    check(
        "B1",
        "DCGM diagnostics",
        "the faults found by NVIDIA's own tests, at levels 1 to 4",
    ),
    check(
        "C1",
        "Every GPU under load (gpu-burn)",
        "GPUs with wrong results, or slower than their neighbours",
    ),
    check(
        "C2",
        "Every GPU under load (gpu-fryer)",
        "as C1, for bf16 and fp8",
    ),
    check("C3", "DCGM's load generator", "as C1"),
    check(
        "C4",
        "Throttling",
        "GPUs slowed down by heat or by missing power",
    ),
    missing(
        "C5",
        "Silent data corruption",
        "GPUs whose results differ from their neighbours'",
        "no public tool with a recorded output; C1 compares each GPU's results with its own",
    ),
    check(
        "D1",
        "Bandwidth of every link (nvbandwidth)",
        "a slow PCIe link, a missing NVLink between any two GPUs",
    ),
    check(
        "D2",
        "all_reduce inside the node",
        "NVLink and NVSwitch faults that only show under load",
    ),
    check(
        "D3",
        "all_reduce without NVLink",
        "slow paths from GPU to NIC",
    ),
    check(
        "D4",
        "Disks under load",
        "disks that are slow or return other data than was written",
    ),
    check(
        "D5",
        "Processors and memory under load",
        "wrong results, bad memory, slow memory",
    ),
    check(
        "E1",
        "RDMA bandwidth of a pair",
        "a slow cable, port or adapter",
    ),
    check(
        "E2",
        "RDMA latency of a pair",
        "retransmissions, a wrong path through the fabric",
    ),
    check(
        "E3",
        "Pairs in rounds",
        "the fault of a bad pair: one end, or the path between them",
    ),
    missing(
        "E4",
        "The fabric as a whole",
        "links, error rates and topology across switches",
        "ibdiagnet needs a host of the fabric, and has no parser yet; E1 and A9 check a node's own links",
    ),
    missing(
        "E5",
        "all_reduce across nodes",
        "faults that only show between many nodes",
        "needs MPI on the nodes and remote process start, which no shipped stack has; nccl.two_nodes is a shadow until then",
    ),
];
