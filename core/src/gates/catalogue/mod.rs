//! The catalogue of every muster-node parser and metric, with units. A gate may use only listed
//! metrics in the listed unit, because comparing Gb/s with GB/s is an error.

mod driver; // Software of NVIDIA's driver
mod fabric; // RDMA networks
mod gpu; // NVIDIA and AMD GPUs
mod host; // Disks, memory, processors, kernel log

use super::reach::{Disks, Network};

/// A parser, named as in gates.
#[derive(Clone, Copy, Debug)]
pub struct Parser {
    pub name: &'static str,
    /// Whether muster-node measures by itself; such a gate has no argv.
    pub builtin: bool,
    /// The parser was written from documentation and has not yet read a recording of the real tool.
    /// Gates with an experimental parser cannot be required.
    pub experimental: bool,
    /// The input: the command, and the known versions.
    pub reads: &'static str,
    /// The programs that a gate with the parser may start, by the bare name. Empty for measurements
    /// by muster-node.
    pub programs: &'static [&'static str],
    /// The programs that may start one of `programs`.
    pub launchers: &'static [&'static str],
    /// The network of the tool, where the gate names no other.
    pub network: Network,
    /// The disks of the tool, where the gate does not write.
    pub disks: Disks,
    pub metrics: &'static [Metric],
}

/// A metric measured by a parser.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    pub name: &'static str,
    pub unit: &'static str,
    /// The kind of entity measured, each with its own name; empty for a single value per node.
    pub per: &'static str,
}

impl Parser {
    /// Returns the parser with the given name.
    pub fn find(name: &str) -> Option<&'static Self> {
        Self::all().find(|parser| parser.name == name)
    }

    /// Returns all parsers. The accepted tool versions are listed in each parser's source file in
    /// muster-node.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        [
            host::PARSERS,
            driver::PARSERS,
            gpu::PARSERS,
            fabric::PARSERS,
        ]
        .into_iter()
        .flatten()
    }

    /// Whether the parser reads values of GPUs, so that a node without a GPU has no values.
    pub fn reads_gpus(&self) -> bool {
        gpu::PARSERS.iter().any(|parser| parser.name == self.name)
    }

    const fn experimental(mut self) -> Self {
        self.experimental = true;
        self
    }

    const fn run_by(mut self, programs: &'static [&'static str]) -> Self {
        self.programs = programs;
        self
    }

    const fn launched_by(mut self, launchers: &'static [&'static str]) -> Self {
        self.launchers = launchers;
        self
    }

    const fn on_network(mut self, network: Network) -> Self {
        self.network = network;
        self
    }

    const fn with_disks(mut self, disks: Disks) -> Self {
        self.disks = disks;
        self
    }

    /// Returns the unit of a metric of the parser.
    pub fn unit(&self, metric: &str) -> Option<&'static str> {
        self.metrics
            .iter()
            .find(|candidate| candidate.name == metric)
            .map(|metric| metric.unit)
    }
}

/// The unit of values that are words, not numbers.
pub const TEXT: &str = "text";

/// Builds a parser of a tool's output.
const fn tool(name: &'static str, reads: &'static str, metrics: &'static [Metric]) -> Parser {
    Parser {
        name,
        builtin: false,
        experimental: false,
        reads,
        programs: &[],
        launchers: &[],
        network: Network::Off,
        disks: Disks::Hidden,
        metrics,
    }
}

/// Builds a parser for a measurement done by muster-node.
const fn builtin(name: &'static str, reads: &'static str, metrics: &'static [Metric]) -> Parser {
    Parser {
        name,
        builtin: true,
        experimental: false,
        reads,
        programs: &[],
        launchers: &[],
        network: Network::Off,
        disks: Disks::Hidden,
        metrics,
    }
}

/// Builds a metric with a single value per node.
const fn metric(name: &'static str, unit: &'static str) -> Metric {
    Metric {
        name,
        unit,
        per: "",
    }
}

/// Builds a metric with a value for each disk, GPU, port…
const fn each(per: &'static str, name: &'static str, unit: &'static str) -> Metric {
    Metric { name, unit, per }
}

#[cfg(test)]
mod document; // docs/parsers.md
