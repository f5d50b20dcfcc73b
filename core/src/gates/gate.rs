//! Gate definition as written in a suite: plain data, without a shell, with limits in units. An
//! omitted field takes the stricter default.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::mode::Mode;
use crate::profiles::HardwareProfile;
use crate::words;

/// An ordered set of gates, grouped in stages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Suite {
    pub name: String,
    pub version: String,
    pub gates: Vec<Gate>,
}

impl Suite {
    /// Adds the gate that found a fault, if the gate belongs to another suite of the node's pool.
    /// The fault must be gone before the node serves again.
    #[must_use]
    pub fn with_finder(mut self, finder: Option<Gate>) -> Self {
        self.gates.extend(
            finder.filter(|finder| {
                !finder.shadow && self.gates.iter().all(|gate| gate.id != finder.id)
            }),
        );
        self
    }

    /// Returns the maximum time in seconds for all gates run in sequence. If `only` is not empty,
    /// the sum covers the listed gates.
    pub fn longest_s(&self, only: &[String]) -> u64 {
        let asked = |gate: &&Gate| only.is_empty() || only.contains(&gate.id);
        self.gates.iter().filter(asked).map(Gate::longest_s).sum()
    }
}

words! {
    /// Order in which gates run. A stage starts after every gate of the earlier stages ended without
    /// blocking.
    #[derive(PartialOrd, Ord)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    Stage, "stage" {
        Inventory = "inventory",
        Software = "software",
        Gpu = "gpu",
        Node = "node",
        Pair = "pair",
        Group = "group",
        Soak = "soak",
    }
}

/// A check with criteria.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Gate {
    pub id: String,
    pub title: String,
    /// Checks of the catalogue (`muster gate explain`) covered by the gate: `A1` to `E5`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<String>,
    pub stage: Stage,
    /// The command, started without a shell: a program of the parser by the bare name, or
    /// `/usr/libexec/muster/gates/NAME`. `${word}` is replaced by a known variable. Empty for gates
    /// measured by muster-node itself.
    #[serde(default)]
    pub argv: Vec<String>,
    /// Environment variables added to muster-node's own environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Runs the command once per entity, with `${each}` in argv. Results carry the disk's serial
    /// number or the directory.
    #[serde(default)]
    pub each: Option<Each>,
    /// File below `${scratch}` with the result, for tools with other text on stdout.
    #[serde(default)]
    pub output: Option<String>,
    /// Further files below `${scratch}` kept as evidence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keep: Vec<String>,
    /// Timeout in seconds. On timeout, muster-node kills the whole process group.
    pub timeout_s: u64,
    /// Seconds between two runs of the command; the growth of each count is compared with the
    /// limits. Meant for counters with an unknown start time; at most one hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_s: Option<u64>,
    /// Seconds after a boot for components to settle: links that train, fabrics that form, units
    /// that start. A missed limit or an error is measured again until the gate passes or the time
    /// is over. At most 900.
    #[serde(default, skip_serializing_if = "is_none_of_it")]
    pub settle_s: u64,
    /// Samples the gate repeatedly while the tools of other gates load the machine, instead of once
    /// alone. The worst sample counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub during: Option<During>,
    /// A parser's name: `fio`, `iperf3`, `stressapptest`…
    pub parser: String,
    /// Number of disks, GPUs, links… required for each criterion with a metric per entity: a
    /// number, any `profile:NAME`, `facts:disks`, `facts:nvme_disks`, `facts:sata_disks`,
    /// `facts:gpus` or `stack:mounts`; 1 if absent. With the prefix `>=` the node may have more
    /// entities, and each is compared with the limits.
    #[serde(default)]
    pub count: Option<String>,
    pub criteria: Vec<Criterion>,
    /// The meaning of a failure, written for the reader of the node's page.
    pub finding: String,
    #[serde(default)]
    pub on_timeout: OnTimeout,
    /// Conditions required before the command runs. If a condition is false, the gate is skipped
    /// with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<Need>,
    /// Side effects on the machine besides measuring. Gates of the same stage without side effects
    /// and with the same command share a single run of the tool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<SideEffect>,
    /// CPU architectures supported by the gate (`amd64`, `arm64`); empty means all.
    /// Nodes with `arm64` cannot boot yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arch: Vec<String>,
    /// Number of immediate retries after an `error`; at most 3. A `fail` is never retried.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retries: u32,
    /// Whether the gate must be measured. An optional gate may be `skipped` on a node without an
    /// entity or threshold for the metric. A missed limit or an error blocks in both cases.
    #[serde(default = "required")]
    pub required: bool,
    /// Shadow gate: run and reported, but never blocking. Meant for new gates and for thresholds
    /// without a confirmed value.
    #[serde(default, skip_serializing_if = "is_false")]
    pub shadow: bool,
    /// Runs after the reboot of the check `survives a reboot`, as well as before the reboot.
    #[serde(default)]
    pub after_reboot: bool,
    /// Listener on a second node, for gates that measure the path between two nodes. argv reaches
    /// the listener through `${peer_address}` and `${pair_port}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<Peer>,
}

/// Sampling times of a gate for faults visible only under load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct During {
    /// Ids of the gates that load the machine; at least one must precede this gate in the suite. If
    /// none of the gates ran, there is no sample.
    pub gates: Vec<String>,
    /// Seconds between two samples, 1 to 60.
    pub every_s: u64,
}

/// The listening end of a pair gate. The listener starts first. Its process group is killed when
/// the other end finishes, at the latest after `ready_s` plus the gate's timeout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// The command, started without a shell like the gate's own; it listens on `${pair_port}`.
    pub argv: Vec<String>,
    /// Text printed by the listener when ready. If absent, the listener is ready when its TCP port
    /// is open, because many tools buffer their output to a pipe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub says: Option<String>,
    /// Maximum time in seconds until the listener is ready.
    pub ready_s: u64,
}

fn required() -> bool {
    true
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(value: &u32) -> bool {
    *value == 0
}

fn is_none_of_it(seconds: &u64) -> bool {
    *seconds == 0
}

impl Gate {
    /// Returns the maximum duration in seconds: every allowed run, the window, and the settle time.
    pub fn longest_s(&self) -> u64 {
        let once = self
            .window_s
            .map_or(self.timeout_s, |window| 2 * self.timeout_s + window);
        once * (u64::from(self.retries) + 1) + self.settle_s
    }

    /// Returns the mode on nodes of a hardware model: the profile's policy if present, else the
    /// gate's own fields.
    pub fn mode(&self, profile: Option<&HardwareProfile>) -> Mode {
        match profile.and_then(|profile| profile.gates.get(&self.id)) {
            Some(policy) => policy.mode,
            None if self.shadow => Mode::Shadow,
            None if self.required => Mode::Required,
            None => Mode::Optional,
        }
    }
}

/// The entities of a repeated gate, run in sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Each {
    Disks,
    NvmeDisks,
    SataDisks,
    /// Directories named by the stack's mount units.
    Mounts,
}

/// The verdict when a tool reaches its timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    #[default]
    Error,
    /// The hang itself is the hardware fault.
    Fail,
}

words! {
    /// A condition required before a gate runs.
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    Need, "need of a gate" {
        /// No user job runs on the node.
        Drained = "drained",
        /// No process holds a GPU open.
        GpusIdle = "gpus_idle",
    }
}

words! {
    /// A side effect of a gate on the machine.
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    SideEffect, "side effect" {
        CpuLoad = "cpu_load",
        MemoryLoad = "memory_load",
        GpuLoad = "gpu_load",
        /// More than a few packets.
        NetworkLoad = "network_load",
        /// Writes in the gate's own scratch directory, never on a raw device.
        WritesDisk = "writes_disk",
    }
}

/// A comparison of a metric with a limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Criterion {
    pub metric: String,
    /// Compares only the named entity, for example a message size or a test name. A missing entity
    /// is an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// Compares only the best N values; all N must exist and meet the limit. Example: the fastest
    /// eight ports of a node with slower ports beside its rails. A number or a reference, written
    /// like `count` and replacing `count` for this criterion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<String>,
    pub op: Op,
    /// The limit itself, or `profile:NAME` for a threshold of the hardware profile.
    pub limit: Limit,
    pub unit: String,
}

/// Operator for comparing a measured value with the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Op {
    #[serde(rename = "==")]
    Equal,
    #[serde(rename = "!=")]
    NotEqual,
    #[serde(rename = ">=")]
    AtLeast,
    #[serde(rename = "<=")]
    AtMost,
}

impl std::fmt::Display for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::AtLeast => ">=",
            Self::AtMost => "<=",
        })
    }
}

/// A limit: a number, a text, or a reference into the profile (`profile:…`), the stack (`stack:…`)
/// or the plan's variables (`variable:…`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum Limit {
    Number(f64),
    Text(String),
}

/// A measured value.
pub type Value = Limit;
