//! Every parser that muster-node has, and every metric it can give, with its unit. A gate may only ask for what is listed here, in the unit
//! listed here: Gb/s and GB/s do not compare.

mod fabric; // RDMA networks
mod gpu; // NVIDIA, AMD
mod host; // Disks, memory, processors, the kernel's log

/// A parser by the name that gates use.
#[derive(Clone, Copy, Debug)]
pub struct Parser {
    pub name: &'static str,
    /// Whether muster-node measures by itself; such a gate has no argv.
    pub builtin: bool,
    /// Written from documentation: no recording of the real tool has been read with it yet. Gates that use it cannot be required.
    pub experimental: bool,
    /// What it reads: the call, and the versions that are known.
    pub reads: &'static str,
    pub metrics: &'static [Metric],
}

/// One thing a parser measures.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    pub name: &'static str,
    pub unit: &'static str,
    /// What it is measured for, each under a name of its own; empty when it is one value for the node.
    pub per: &'static str,
}

impl Parser {
    /// The parser of this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        Self::all().find(|parser| parser.name == name)
    }

    /// All of them. Tool versions that each one accepts stand in its file in muster-node.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        [host::PARSERS, gpu::PARSERS, fabric::PARSERS]
            .into_iter()
            .flatten()
    }

    const fn experimental(mut self) -> Self {
        self.experimental = true;
        self
    }

    /// The unit of one of its metrics.
    pub fn unit(&self, metric: &str) -> Option<&'static str> {
        self.metrics
            .iter()
            .find(|candidate| candidate.name == metric)
            .map(|metric| metric.unit)
    }
}

/// The unit of values that are words, not numbers.
pub const TEXT: &str = "text";

/// A parser of a tool's answer.
const fn tool(name: &'static str, reads: &'static str, metrics: &'static [Metric]) -> Parser {
    Parser {
        name,
        builtin: false,
        experimental: false,
        reads,
        metrics,
    }
}

/// A measurement of our own.
const fn builtin(name: &'static str, reads: &'static str, metrics: &'static [Metric]) -> Parser {
    Parser {
        name,
        builtin: true,
        experimental: false,
        reads,
        metrics,
    }
}

/// One value for the node.
const fn metric(name: &'static str, unit: &'static str) -> Metric {
    Metric {
        name,
        unit,
        per: "",
    }
}

/// One value for each disk, GPU, port…
const fn each(per: &'static str, name: &'static str, unit: &'static str) -> Metric {
    Metric { name, unit, per }
}

#[cfg(test)]
mod document; // docs/parsers.md
