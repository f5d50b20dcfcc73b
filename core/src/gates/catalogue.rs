//! Every parser that muster-node has, and every metric it can give, with its unit. A gate may only ask for what is listed here, in the unit
//! listed here: Gb/s and GB/s do not compare.

/// A parser by the name that gates use.
#[derive(Debug)]
pub struct Parser {
    pub name: &'static str,
    /// Whether muster-node measures by itself; such a gate has no argv.
    pub builtin: bool,
    pub metrics: &'static [Metric],
}

/// One thing a parser measures.
#[derive(Debug)]
pub struct Metric {
    pub name: &'static str,
    pub unit: &'static str,
}

impl Parser {
    /// The parser of this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        PARSERS.iter().find(|parser| parser.name == name)
    }

    /// The unit of one of its metrics.
    pub fn unit(&self, metric: &str) -> Option<&'static str> {
        self.metrics.iter().find(|candidate| candidate.name == metric).map(|metric| metric.unit)
    }
}

/// The unit of values that are words, not numbers.
pub const TEXT: &str = "text";

const fn metric(name: &'static str, unit: &'static str) -> Metric {
    Metric { name, unit }
}

/// All of them. Tool versions that each one accepts stand in its file in muster-node.
pub const PARSERS: &[Parser] = &[
    Parser {
        name: "facts",
        builtin: true,
        metrics: &[
            metric("profile.misses", "misses"),
            metric("cpu.sockets", "sockets"),
            metric("cpu.cores_per_socket", "cores"),
            metric("memory.total", "MiB"),
            metric("numa.nodes", "nodes"),
            metric("disks.found", "disks"),
            metric("nics.linked", "NICs"),
        ],
    },
    Parser {
        name: "packages",
        builtin: true,
        metrics: &[
            metric("packages.checked", "packages"),
            metric("packages.differing", "packages"),
            metric("packages.unfinished", "packages"),
            metric("packages.forbidden", "packages"),
        ],
    },
    Parser {
        name: "kernel",
        builtin: true,
        metrics: &[
            metric("kernel.release", TEXT),
            metric("kernel.unexpected", "kernels"),
            metric("kernel.arguments_missing", "arguments"),
            metric("kernel.taint", "flags"),
        ],
    },
    Parser {
        name: "services",
        builtin: true,
        metrics: &[metric("services.checked", "services"), metric("services.wrong", "services")],
    },
    Parser { name: "clock", builtin: true, metrics: &[metric("clock.offset", "ms")] },
    Parser {
        name: "pcie",
        builtin: true,
        metrics: &[metric("pcie.width", "lanes"), metric("pcie.width_lost", "lanes"), metric("pcie.speed", "GT/s")],
    },
    Parser {
        name: "fio",
        builtin: false,
        metrics: &[
            metric("fio.error", "errno"),
            metric("fio.written", "bytes"),
            metric("fio.unverified", "bytes"),
            metric("fio.write_bandwidth", "MB/s"),
            metric("fio.read_bandwidth", "MB/s"),
            metric("fio.write_iops", "IOPS"),
            metric("fio.read_iops", "IOPS"),
            metric("fio.write_p99", "ms"),
            metric("fio.read_p99", "ms"),
        ],
    },
    Parser {
        name: "stressapptest",
        builtin: false,
        metrics: &[
            metric("memory.incidents", "incidents"),
            metric("memory.errors", "errors"),
            metric("memory.copied", "MB"),
            metric("memory.bandwidth", "MB/s"),
        ],
    },
    Parser {
        name: "stress-ng",
        builtin: false,
        metrics: &[metric("stress.failures", "failures"), metric("stress.bogo_ops", "bogo ops/s")],
    },
    Parser {
        name: "iperf3",
        builtin: false,
        metrics: &[metric("network.received", "Gb/s"), metric("network.retransmits", "segments")],
    },
    Parser {
        name: "smartctl",
        builtin: false,
        metrics: &[
            metric("smart.failing", "flags"),
            metric("smart.critical_warning", "flags"),
            metric("smart.media_errors", "errors"),
            metric("smart.percentage_used", "%"),
            metric("smart.spare_missing", "%"),
            metric("smart.temperature", "°C"),
        ],
    },
    Parser {
        name: "nvme-smart-log",
        builtin: false,
        metrics: &[
            metric("smart.critical_warning", "flags"),
            metric("smart.media_errors", "errors"),
            metric("smart.percentage_used", "%"),
            metric("smart.spare_missing", "%"),
            metric("smart.temperature", "°C"),
        ],
    },
];
