//! Parsers of tool outputs, a file for each. Parsers are strict: an unknown version, a wrong root
//! or an exit status contradicting the output is an error. A single value of unknown form is an
//! error for the gates that ask for the value, see [`Unread`]. A gate never passes after an error.
//! Each parser is written from recordings of the real tool; see `fixtures/`.

mod amd; // AMD's tools
mod clock; // The node's clock against the agent's clock
mod df; // Usage of file systems
mod dkms; // Kernel modules built on the node
mod driver; // Software of NVIDIA's driver
mod facts; // Inventory against the profile
mod fio; // Disk throughput and verification
mod firmware; // Firmware and BIOS against the stack
mod iperf3; // Network throughput
mod ipmi_states; // Meanings of the words of discrete sensors
mod kernel; // Release, command line, taint
mod kernel_log; // Faults reported by drivers
mod lshw; // Devices of the machine
mod mounts; // File systems of the stack
mod nvidia; // NVIDIA's tools
mod nvme; // `nvme smart-log`
mod packages; // dpkg's record against the lock
mod pcie; // Link width and speed
mod raid; // Disk arrays
mod rdma; // Tools of RDMA networks
mod scan; // Numbers and words
mod sensors; // Sensors of the BMC
mod services; // Units of the stack
mod smartctl; // Disk health
mod stress_ng; // Processor load with verification
mod stressapptest; // Memory under load

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;

use muster_core::gates::xid::XidOverrides;
use muster_core::gates::{Gate, Limit, Sample};
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::Bench;
use crate::tool::{OUTPUT_MAX, Superseded};

/// Maximum length of a parsed output, in bytes. Most tools print far less.
const ANSWER_MAX: usize = 1 << 20;

/// Words of failure in an output.
const FAILURES: [&str; 3] = ["error", "fail", "couldn't"];
/// Written before the reason of an uncaught exception.
const EXCEPTION: &str = "what():";

/// The output of a tool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer<'a> {
    pub(super) exit: i32,
    /// stdout, or the output file named by the gate.
    pub(super) text: &'a str,
    /// stderr. If the output is a file, also stdout.
    pub(super) messages: &'a str,
    /// Serial of the disk under test.
    pub(super) serial: Option<&'a str>,
}

impl Answer<'_> {
    /// Returns the reason of a failed tool: a line of the messages, or of the output where the
    /// messages are empty. The first line with a word of failure is preferred to the first line.
    /// nvidia-smi writes its reasons to stdout.
    fn reason(&self) -> String {
        let has_messages = !scan::word(self.messages).is_empty();
        let text = if has_messages {
            self.messages
        } else {
            self.text
        };
        // A program in C++ ends with the reason on the second of two lines.
        if let Some(exception) = text
            .lines()
            .find_map(|line| line.trim().strip_prefix(EXCEPTION))
        {
            return scan::word(exception);
        }
        // The opening of a JSON document is no reason.
        let is_reason = |line: &String| !["", "{", "["].contains(&line.as_str());
        let lines = || text.lines().map(scan::word).filter(is_reason);
        let is_failure = |line: &String| {
            let line = line.to_ascii_lowercase();
            FAILURES.iter().any(|word| line.contains(word))
        };
        let failure = lines().find(is_failure);
        failure.or_else(|| lines().next()).unwrap_or_default()
    }
}

/// A value of an answer in a form that the parser does not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unread {
    pub metric: &'static str,
    pub reason: String,
}

/// The result of a parser.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Reading {
    pub(super) samples: Vec<Sample>,
    /// Values without a sample, because their form is unknown. Such a value is an error for a gate
    /// with a criterion about the metric, and a note for every other gate.
    pub(super) unread: Vec<Unread>,
    /// Faults that the tool itself found, in the tool's own words. The gate fails, also without a
    /// sample.
    pub(super) faults: Vec<String>,
    /// Disks or mounts without an answer, and tests without work. The gate never passes.
    pub(super) gaps: Vec<String>,
    /// Details for the operator when the gate does not pass.
    pub(super) notes: Vec<String>,
    pub(super) versions: BTreeMap<String, String>,
}

impl Reading {
    /// A reading without a value, where the tool ended with a fault of the hardware or the driver.
    fn of_faults(faults: Vec<String>) -> Self {
        Self {
            faults,
            ..Self::default()
        }
    }

    /// Adds the reading of a disk or mount.
    pub(super) fn join(&mut self, other: Self, entity: &str) {
        let Self {
            samples,
            unread,
            faults,
            gaps,
            notes,
            versions,
        } = other;
        let named = |word: String| format!("{entity}: {word}");
        self.samples.extend(samples);
        self.unread.extend(unread);
        self.faults.extend(faults.into_iter().map(named));
        self.gaps.extend(gaps.into_iter().map(named));
        self.notes.extend(notes);
        self.versions.extend(versions);
    }

    /// Adds a number of the node, or of the single disk under test.
    fn add(&mut self, metric: &'static str, value: impl Into<f64>) {
        self.add_of(metric, "", value);
    }

    /// Adds a number of an entity.
    fn add_of(&mut self, metric: &'static str, entity: &str, value: impl Into<f64>) {
        self.samples.push(Sample {
            metric,
            entity: entity.into(),
            value: Limit::Number(value.into()),
        });
    }

    /// Adds a count. Lists on a node are short enough for exact counts in a double.
    fn count(&mut self, metric: &'static str, count: usize) {
        self.add(metric, u32::try_from(count).unwrap_or(u32::MAX));
    }

    /// Adds a count of an entity.
    fn count_of(&mut self, metric: &'static str, entity: &str, count: usize) {
        self.add_of(metric, entity, u32::try_from(count).unwrap_or(u32::MAX));
    }

    /// Adds a value whose form is unknown.
    fn leave(&mut self, metric: &'static str, reason: String) {
        self.unread.push(Unread { metric, reason });
    }

    /// Adds a word of an entity, or of the node.
    fn add_word(&mut self, metric: &'static str, entity: &str, word: &str) {
        self.samples.push(Sample {
            metric,
            entity: entity.into(),
            value: Limit::Text(scan::word(word)),
        });
    }

    /// Moves impossible measurements to the unread values: blank sentinels, negative values and NaN.
    fn plausible(mut self) -> Self {
        let is_odd = |sample: &Sample| match sample.value {
            Limit::Number(number) => !(0.0..scan::LARGEST).contains(&number),
            Limit::Text(_) => false,
        };
        let (odd, samples): (Vec<Sample>, Vec<Sample>) = self.samples.into_iter().partition(is_odd);
        self.samples = samples;
        for Sample {
            metric,
            entity,
            value,
        } in odd
        {
            let Limit::Number(number) = value else {
                continue;
            };
            let reason = match entity.as_str() {
                "" => format!("{number} is no measurement"),
                entity => format!("{entity}: {number} is no measurement"),
            };
            self.unread.push(Unread { metric, reason });
        }
        self
    }

    /// Returns an added number.
    pub(super) fn number(&self, metric: &str, entity: &str) -> Option<f64> {
        let sample = self
            .samples
            .iter()
            .find(|sample| sample.metric == metric && sample.entity == entity)?;
        match sample.value {
            Limit::Number(number) => Some(number),
            Limit::Text(_) => None,
        }
    }

    fn version(&mut self, program: &str, version: &str) {
        self.versions
            .insert(program.into(), version.chars().take(100).collect());
    }
}

/// Parses a tool's output with the shipped Xid tables.
pub(super) fn parse(parser: &str, answer: &Answer<'_>) -> Result<Reading, String> {
    parse_by(parser, answer, None)
}

/// Parses a tool's output. A site's own rows of the Xid tables come before the shipped rows.
pub(super) fn parse_by(
    parser: &str,
    answer: &Answer<'_>,
    xid: Option<&XidOverrides>,
) -> Result<Reading, String> {
    let reading = match parser {
        "amd-smi" => amd::amd_smi::parse(answer),
        "dcgm-diag" => nvidia::dcgm::parse_v4(answer),
        "dcgm-diag-v3" => nvidia::dcgm::parse_v3(answer),
        "dcgmproftester" => nvidia::proftester::parse(answer),
        "df" => df::parse(answer),
        "fio" => fio::parse(answer),
        "gpu-burn" => nvidia::gpu_burn::parse(answer),
        "gpu-fryer" => nvidia::gpu_fryer::parse(answer),
        "ibstat" => rdma::ibstat::parse(answer),
        "iperf3" => iperf3::parse(answer),
        "ipmitool-sdr" => sensors::parse(answer),
        "kernel-log" => kernel_log::parse(answer, xid),
        "lshw" => lshw::parse(answer),
        "mdadm-detail" => raid::mdadm::parse(answer),
        "mdstat" => raid::mdstat::parse(answer),
        "nccl-tests" => nvidia::nccl::parse(answer),
        "nccl-tests-json" => nvidia::nccl_json::parse(answer),
        "nvbandwidth" => nvidia::nvbandwidth::parse(answer),
        "nvidia-smi-csv" => nvidia::smi_csv::parse(answer),
        "nvidia-smi-nvlink" => nvidia::nvlink::parse(answer),
        "nvidia-smi-text" => nvidia::smi_text::parse(answer),
        "nvidia-smi-topo" => nvidia::topo::parse(answer),
        "nvidia-smi-xml" => nvidia::smi_xml::parse(answer),
        "nvme-smart-log" => nvme::parse(answer),
        "perfquery" => rdma::perfquery::parse(answer),
        "perftest" => rdma::perftest::parse(answer),
        "perftest-json" => rdma::perftest_json::parse(answer),
        "rocm-smi" => amd::rocm_smi::parse(answer),
        "smartctl" => smartctl::parse(answer),
        "stress-ng" => stress_ng::parse(answer),
        "stressapptest" => stressapptest::parse(answer),
        other => Err(format!("no parser {other:?} reads a tool's answer")),
    }
    .or_else(|why| nvidia::cuda::read_fault(parser, answer).ok_or(why))?;
    Ok(reading.plausible())
}

/// The same as [`parse`], where every value must have a known form.
#[cfg(test)]
pub(super) fn parse_whole(parser: &str, answer: &Answer<'_>) -> Result<Reading, String> {
    let reading = parse(parser, answer)?;
    match reading.unread.first() {
        Some(Unread { metric, reason }) => Err(format!("{metric}: {reason}")),
        None => Ok(reading),
    }
}

/// Returns the maximum length of a parser's input, in bytes. With `log_buf_len=8M`, dmesg prints 8
/// MiB plus a time before each line.
pub(super) fn answer_max(parser: &str) -> usize {
    if parser == "kernel-log" {
        OUTPUT_MAX
    } else {
        ANSWER_MAX
    }
}

/// Returns the output as text. nvidia-smi copies process names of arbitrary bytes into its XML. The
/// parser of the XML removes the names, and rejects other bytes outside UTF-8.
pub(super) fn text<'a>(parser: &str, answer: &'a [u8]) -> Result<Cow<'a, str>, String> {
    match String::from_utf8_lossy(answer) {
        Cow::Owned(_) if parser != "nvidia-smi-xml" => Err("it is not UTF-8".into()),
        text => Ok(text),
    }
}

/// Returns the test for superseded parts of a tool's output. An hour of progress lines is longer
/// than the maximum output of a parser.
pub(super) fn superseded(parser: &str) -> Option<Superseded> {
    (parser == "gpu-burn").then_some(nvidia::gpu_burn::is_superseded)
}

/// Returns the reason to skip a gate on the node: a built-in measurement does not apply, or the tool
/// must not start.
pub(super) fn absent(gate: &Gate, bench: &Bench<'_>) -> Option<String> {
    match gate.parser.as_str() {
        "cdi" => driver::cdi::absent(bench),
        "containers" => driver::containers::absent(bench),
        "dkms" => dkms::absent(bench),
        "firmware" => firmware::unheard(bench),
        "gpu-burn" => nvidia::gpu_burn::absent(gate, bench),
        "mounts" => mounts::absent(bench),
        _ => None,
    }
}

/// Runs a built-in measurement, without a tool.
pub(super) fn measure(gate: &Gate, bench: &Bench<'_>) -> Result<Reading, String> {
    match gate.parser.as_str() {
        "cdi" => driver::cdi::measure(bench),
        "clock" => clock::measure(bench),
        "containers" => driver::containers::measure(bench),
        "dkms" => dkms::measure(bench),
        "driver-load" => driver::load::measure(bench),
        "driver-module" => driver::module::measure(bench),
        "driver-versions" => driver::versions::measure(bench),
        "facts" => Ok(facts::measure(bench)),
        "firmware" => firmware::measure(bench),
        "ib-counters" => rdma::counters::measure(bench),
        "ib-pkeys" => rdma::pkeys::measure(bench),
        "kernel" => kernel::measure(bench),
        "kernel-log-new" => kernel_log::measure(gate, bench),
        "libraries" => driver::libraries::measure(gate, bench),
        "mounts" => mounts::measure(bench),
        "nouveau" => driver::nouveau::measure(bench),
        "packages" => packages::measure(bench),
        "pcie" => Ok(pcie::measure(bench)),
        "services" => services::measure(bench),
        other => Err(format!("no measurement {other:?}")),
    }
}

/// Deserializes the members of an object and rejects duplicate names. Of two values, serde keeps
/// the last, and either value may be the correct value.
fn members<'de, V: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, V>, D::Error> {
    struct Once<V>(PhantomData<V>);

    impl<'de, V: Deserialize<'de>> Visitor<'de> for Once<V> {
        type Value = BTreeMap<String, V>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("members, each once")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
            let mut members = BTreeMap::new();
            while let Some((name, value)) = access.next_entry::<String, V>()? {
                if members.contains_key(&name) {
                    return Err(A::Error::custom(format!("{name:?} stands there twice")));
                }
                members.insert(name, value);
            }
            Ok(members)
        }
    }

    deserializer.deserialize_map(Once(PhantomData))
}

/// Deserializes a complete output. Text before or after the document is an error.
fn json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text)
        .map_err(|error| format!("its answer is not what this parser knows: {error}"))
}
