//! Metrics reported by the tools of GPU vendors. If a tool does not show a metric on some card, no
//! sample exists, and a gate asking for the metric has no answer.

use super::{Disks, Metric, Network, Parser, TEXT, each, metric, tool};

/// Entity: the PCI address as written in sysfs (`0000:1b:00.0`).
const GPU: &str = "GPU";
/// Entity: the tool's own GPU number, `GPU 0`. These tools print no PCI address.
const INDEX: &str = "GPU number";

/// nvidia-smi metrics of each GPU, available in all three output formats. A *flag* is 0 or 1.
const NVIDIA_SMI: &[Metric] = &[
    metric("gpu.count", "GPUs"),
    metric("gpu.driver", TEXT),
    metric("gpu.cuda", TEXT),
    each(GPU, "gpu.name", TEXT),
    each(GPU, "gpu.vbios", TEXT),
    each(GPU, "gpu.inforom", TEXT),
    each(GPU, "gpu.gsp_firmware", TEXT),
    each(GPU, "gpu.memory_total", "MiB"),
    each(GPU, "gpu.memory_used", "MiB"),
    each(GPU, "gpu.processes", "processes"),
    each(GPU, "gpu.utilization", "%"),
    // `Enabled` or `Disabled`; `Default`, `Exclusive_Process` or `Prohibited`.
    each(GPU, "gpu.persistence_mode", TEXT),
    each(GPU, "gpu.mig_mode", TEXT),
    each(GPU, "gpu.ecc_mode", TEXT),
    each(GPU, "gpu.ecc_mode_pending", TEXT),
    each(GPU, "gpu.compute_mode", TEXT),
    // Volatile: counted since the driver was loaded. Aggregate: counted since the card was made.
    each(GPU, "gpu.ecc_corrected_volatile", "errors"),
    // Parts of the corrected volatile count above.
    each(GPU, "gpu.ecc_corrected_sram", "errors"),
    each(GPU, "gpu.ecc_corrected_dram", "errors"),
    each(GPU, "gpu.ecc_uncorrected_volatile", "errors"),
    each(GPU, "gpu.ecc_corrected_aggregate", "errors"),
    each(GPU, "gpu.ecc_uncorrected_aggregate", "errors"),
    each(GPU, "gpu.ecc_sram_threshold_exceeded", "flags"),
    each(GPU, "gpu.remapped_rows_corrected", "rows"),
    each(GPU, "gpu.remapped_rows_uncorrected", "rows"),
    each(GPU, "gpu.remapped_rows_pending", "flags"),
    each(GPU, "gpu.remapped_rows_failed", "flags"),
    // Banks grouped by the number of spare rows left: all spare rows, …, none.
    each(GPU, "gpu.remapped_rows_bank_max", "banks"),
    each(GPU, "gpu.remapped_rows_bank_high", "banks"),
    each(GPU, "gpu.remapped_rows_bank_partial", "banks"),
    each(GPU, "gpu.remapped_rows_bank_low", "banks"),
    each(GPU, "gpu.remapped_rows_bank_none", "banks"),
    each(GPU, "gpu.channel_repair_pending", "flags"),
    each(GPU, "gpu.tpc_repair_pending", "flags"),
    each(GPU, "gpu.memory_unrepairable", "flags"),
    each(GPU, "gpu.reset_required", "flags"),
    // `None`, or the action recommended by the driver.
    each(GPU, "gpu.recovery_action", TEXT),
    // The PCIe generation of an idle link is lower by design.
    each(GPU, "gpu.pcie_gen", "generation"),
    each(GPU, "gpu.pcie_gen_max", "generation"),
    each(GPU, "gpu.pcie_width", "lanes"),
    each(GPU, "gpu.pcie_width_max", "lanes"),
    each(GPU, "gpu.pcie_width_lost", "lanes"),
    each(GPU, "gpu.pcie_replays", "replays"),
    each(GPU, "gpu.temperature", "°C"),
    // Degrees left before the GPU slows down; 0 at the limit and above.
    each(GPU, "gpu.temperature_margin", "°C"),
    each(GPU, "gpu.memory_temperature", "°C"),
    each(GPU, "gpu.power_draw", "W"),
    each(GPU, "gpu.power_limit", "W"),
    each(GPU, "gpu.power_limit_default", "W"),
    each(GPU, "gpu.power_limit_max", "W"),
    // Whether the GPU is slowed down right now, by reason.
    each(GPU, "gpu.throttle_hw_slowdown", "flags"),
    each(GPU, "gpu.throttle_hw_thermal", "flags"),
    each(GPU, "gpu.throttle_hw_power_brake", "flags"),
    each(GPU, "gpu.throttle_sw_thermal", "flags"),
    each(GPU, "gpu.throttle_sw_power_cap", "flags"),
    // Total time of each slowdown since the driver was loaded.
    each(GPU, "gpu.throttle_hw_thermal_time", "µs"),
    each(GPU, "gpu.throttle_hw_power_brake_time", "µs"),
    each(GPU, "gpu.throttle_sw_thermal_time", "µs"),
    each(GPU, "gpu.throttle_sw_power_cap_time", "µs"),
    each(GPU, "gpu.clock_sm", "MHz"),
    each(GPU, "gpu.clock_sm_max", "MHz"),
    each(GPU, "gpu.clock_memory", "MHz"),
    each(GPU, "gpu.clock_memory_max", "MHz"),
    // `Completed` and `Success` after the fabric manager has configured the GPU.
    each(GPU, "gpu.fabric_state", TEXT),
    each(GPU, "gpu.fabric_status", TEXT),
    // The GPU's NVLink domain and the clique within the domain. All zeros and 0 on standalone
    // boards and on trays outside any domain.
    each(GPU, "gpu.fabric_clique", TEXT),
    each(GPU, "gpu.fabric_cluster", TEXT),
    // For a fabric larger than the board: `Healthy` and `Full`. The flags report a lost route to
    // another GPU, or a route under recovery after a timeout.
    each(GPU, "gpu.fabric_health", TEXT),
    each(GPU, "gpu.fabric_bandwidth", TEXT),
    each(GPU, "gpu.fabric_route_unhealthy", "flags"),
    each(GPU, "gpu.fabric_access_recovery", "flags"),
    // Some values were unreadable because the GPU is lost or waits for a reset.
    each(GPU, "gpu.unreachable", "flags"),
];

/// `dcgmi diag -j`: a result is a single test on a single entity (a GPU, or the node).
const DCGM: &[Metric] = &[
    metric("dcgm.tests", "tests"),
    metric("dcgm.passed", "results"),
    metric("dcgm.failed", "results"),
    metric("dcgm.warned", "results"),
    // Warnings attached to results, including warnings of passed tests.
    metric("dcgm.warnings", "warnings"),
    metric("dcgm.skipped", "results"),
    metric("dcgm.not_run", "results"),
    metric("dcgm.gpus", "GPUs"),
    metric("dcgm.gpus_failed", "GPUs"),
    // `pass`, `fail`, `warn`, `skip` or `not run`: the worst result of the test.
    each("test", "dcgm.status", TEXT),
    // GPUs on which the test ran and passed. No sample exists if the worst result of the test is
    // `skip` or `not run`, because a skipped test proves nothing about the GPUs.
    each("test", "dcgm.gpus_passed", "GPUs"),
];

/// Bandwidths are those of a GPU's slowest pair.
const NVBANDWIDTH: &[Metric] = &[
    metric("nvbandwidth.tests", "tests"),
    metric("nvbandwidth.passed", "tests"),
    metric("nvbandwidth.failed", "tests"),
    metric("nvbandwidth.waived", "tests"),
    each(INDEX, "nvbandwidth.host_to_device", "GB/s"),
    each(INDEX, "nvbandwidth.device_to_host", "GB/s"),
    each(INDEX, "nvbandwidth.host_to_device_bidirectional", "GB/s"),
    each(INDEX, "nvbandwidth.device_to_host_bidirectional", "GB/s"),
    each(INDEX, "nvbandwidth.device_to_device_read", "GB/s"),
    each(INDEX, "nvbandwidth.device_to_device_write", "GB/s"),
    each(INDEX, "nvbandwidth.device_local_copy", "GB/s"),
    each(INDEX, "nvbandwidth.host_device_latency", "ns"),
    each(INDEX, "nvbandwidth.device_to_device_latency", "ns"),
];

/// Bus bandwidths of the in-place operation.
const NCCL: &[Metric] = &[
    metric("nccl.ranks", "ranks"),
    metric("nccl.sizes", "sizes"),
    // Average over all sizes, in place and out of place, as printed by the tool.
    metric("nccl.bus_bandwidth_avg", "GB/s"),
    metric("nccl.bus_bandwidth_max", "GB/s"),
    // Bus bandwidth of the largest message.
    metric("nccl.bus_bandwidth_last", "GB/s"),
    metric("nccl.largest", "bytes"),
    metric("nccl.wrong", "values"),
    metric("nccl.out_of_bounds", "values"),
];

const GPU_BURN: &[Metric] = &[
    metric("burn.gpus", "GPUs"),
    metric("burn.faulty", "GPUs"),
    // Speed difference between the slowest and the fastest GPU, in percent.
    metric("burn.spread", "%"),
    each(INDEX, "burn.errors", "errors"),
    each(INDEX, "burn.speed", "Gflop/s"),
    each(INDEX, "burn.temperature", "°C"),
];

const NVLINK: &[Metric] = &[
    metric("nvlink.gpus", "GPUs"),
    each(INDEX, "nvlink.links", "links"),
    each(INDEX, "nvlink.links_active", "links"),
    each(INDEX, "nvlink.links_inactive", "links"),
    // Speed of the slowest active link, in one direction.
    each(INDEX, "nvlink.link_speed", "GB/s"),
];

/// Paths between the GPUs and NICs of a board.
const TOPOLOGY: &[Metric] = &[
    metric("topo.gpus", "GPUs"),
    metric("topo.nics", "NICs"),
    // Other GPUs reached over NVLink, and the lowest number of links to any of them.
    each(INDEX, "topo.gpus_by_nvlink", "GPUs"),
    each(INDEX, "topo.nvlinks", "links"),
    // NICs behind the GPU's own PCIe switches.
    each(INDEX, "topo.nics_near", "NICs"),
];

/// Speeds over the whole run except the first seconds.
const GPU_FRYER: &[Metric] = &[
    metric("fryer.gpus", "GPUs"),
    // 1 if the tool reports unhealthy GPUs.
    metric("fryer.unhealthy", "flags"),
    metric("fryer.spread", "%"),
    each(INDEX, "fryer.speed", "Gflop/s"),
    each(INDEX, "fryer.speed_lowest", "Gflop/s"),
    each(INDEX, "fryer.temperature", "°C"),
    each(INDEX, "fryer.throttled", "flags"),
];

/// The speed is the median of the values printed each second.
const PROFTESTER: &[Metric] = &[
    metric("proftester.gpus", "GPUs"),
    each(INDEX, "proftester.reports", "lines"),
    each(INDEX, "proftester.speed", "Gflop/s"),
];

/// rocm-smi prints PCI addresses; amd-smi prints only numbers, `GPU 0`.
const AMD: &[Metric] = &[
    metric("gpu.count", "GPUs"),
    each(GPU, "gpu.name", TEXT),
    each(GPU, "gpu.vbios", TEXT),
    each(GPU, "gpu.memory_total", "MiB"),
    each(GPU, "gpu.memory_used", "MiB"),
    each(GPU, "gpu.utilization", "%"),
    each(GPU, "gpu.ecc_corrected_volatile", "errors"),
    each(GPU, "gpu.ecc_uncorrected_volatile", "errors"),
    each(GPU, "gpu.pcie_width", "lanes"),
    each(GPU, "gpu.pcie_speed", "GT/s"),
    each(GPU, "gpu.pcie_replays", "replays"),
    // Junction temperature: the hottest point of the chip.
    each(GPU, "gpu.temperature", "°C"),
    each(GPU, "gpu.memory_temperature", "°C"),
    each(GPU, "gpu.power_draw", "W"),
    each(GPU, "gpu.power_limit", "W"),
];

/// The programs of nccl-tests. rccl-tests has the same names.
const NCCL_PROGRAMS: &[&str] = &[
    "all_gather_perf",
    "all_reduce_perf",
    "alltoall_perf",
    "broadcast_perf",
    "gather_perf",
    "hypercube_perf",
    "reduce_perf",
    "reduce_scatter_perf",
    "scatter_perf",
    "sendrecv_perf",
];

pub(super) const PARSERS: &[Parser] = &[
    tool(
        "nvidia-smi-xml",
        "`nvidia-smi -q -x`, nvsmi_device_v12 and v13",
        NVIDIA_SMI,
    )
    .run_by(&["nvidia-smi"]),
    tool(
        "nvidia-smi-csv",
        "`nvidia-smi --query-gpu=… --format=csv`, with header and units",
        NVIDIA_SMI,
    )
    .run_by(&["nvidia-smi"]),
    tool("nvidia-smi-text", "`nvidia-smi -q`", NVIDIA_SMI).run_by(&["nvidia-smi"]),
    tool("nvidia-smi-nvlink", "`nvidia-smi nvlink -s`", NVLINK).run_by(&["nvidia-smi"]),
    tool("nvidia-smi-topo", "`nvidia-smi topo -m`", TOPOLOGY).run_by(&["nvidia-smi"]),
    // dcgmi hands the work to nv-hostengine on the node's own loopback.
    tool("dcgm-diag", "`dcgmi diag -r LEVEL -j`, DCGM 4", DCGM)
        .run_by(&["dcgmi"])
        .on_network(Network::Host),
    tool("dcgm-diag-v3", "`dcgmi diag -r LEVEL -j`, DCGM 3", DCGM)
        .run_by(&["dcgmi"])
        .on_network(Network::Host)
        .experimental(),
    tool("nvbandwidth", "`nvbandwidth -j`", NVBANDWIDTH).run_by(&["nvbandwidth"]),
    // NCCL_SOCKET_IFNAME in /etc/nccl.conf names an interface of the node, also for a single node;
    // mpirun starts the program on other nodes.
    tool(
        "nccl-tests",
        "`all_reduce_perf` and the other nccl-tests, as printed",
        NCCL,
    )
    .run_by(NCCL_PROGRAMS)
    .launched_by(&["mpirun"])
    .on_network(Network::Host),
    tool(
        "nccl-tests-json",
        "the same tools, the file written by `-J`",
        NCCL,
    )
    .run_by(NCCL_PROGRAMS)
    .launched_by(&["mpirun"])
    .on_network(Network::Host)
    .experimental(),
    tool("gpu-burn", "`gpu_burn SECONDS`", GPU_BURN).run_by(&["gpu_burn"]),
    tool("gpu-fryer", "`gpu-fryer SECONDS`", GPU_FRYER).run_by(&["gpu-fryer"]),
    tool(
        "dcgmproftester",
        "`dcgmproftester12 --no-dcgm-validation -t 1004 -d SECONDS`",
        PROFTESTER,
    )
    .run_by(&["dcgmproftester11", "dcgmproftester12", "dcgmproftester13"])
    .on_network(Network::Loopback)
    // Counters of the GPU for profiling need the rights of a command to a device.
    .with_disks(Disks::Query)
    .experimental(),
    tool("rocm-smi", "`rocm-smi -a --showmeminfo vram --json`", AMD).run_by(&["rocm-smi"]),
    tool("amd-smi", "`amd-smi metric --json`", AMD)
        .run_by(&["amd-smi"])
        .experimental(),
];
