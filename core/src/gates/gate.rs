//! A gate as it is written: data, without a shell, with limits in units. What is not said here has the meaning that admits less.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::mode::Mode;
use crate::profiles::HardwareProfile;

/// An ordered set of gates, in stages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Suite {
    pub name: String,
    pub version: String,
    pub gates: Vec<Gate>,
}

impl Suite {
    /// With the gate that found a fault, where it is of another suite of the node's pool: what it found is to be gone before the node serves again.
    #[must_use]
    pub fn with_finder(mut self, finder: Option<Gate>) -> Self {
        self.gates.extend(
            finder.filter(|finder| {
                !finder.shadow && self.gates.iter().all(|gate| gate.id != finder.id)
            }),
        );
        self
    }

    /// Seconds that its gates may take, one after the other; those named alone, where any are.
    pub fn longest_s(&self, only: &[String]) -> u64 {
        let asked = |gate: &&Gate| only.is_empty() || only.contains(&gate.id);
        self.gates.iter().filter(asked).map(Gate::longest_s).sum()
    }
}

/// Order in which gates run; a stage starts when the one before it has no gate that blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    Inventory,
    Software,
    Gpu,
    Node,
    Pair,
    Group,
    Soak,
}

impl Stage {
    /// As written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Inventory => "inventory",
            Self::Software => "software",
            Self::Gpu => "gpu",
            Self::Node => "node",
            Self::Pair => "pair",
            Self::Group => "group",
            Self::Soak => "soak",
        }
    }
}

/// One check with criteria.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Gate {
    pub id: String,
    pub title: String,
    /// Checks of the catalogue (`muster gate explain`) that it covers: `A1` to `E5`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<String>,
    pub stage: Stage,
    /// What is run, without a shell; `${word}` is replaced by a known variable. Empty for gates that muster-node answers itself.
    #[serde(default)]
    pub argv: Vec<String>,
    /// Variables added to muster-node's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Run once for each of these, with `${each}` in argv; results carry the disk's serial, or the directory.
    #[serde(default)]
    pub each: Option<Each>,
    /// The file below `${scratch}` that holds the answer, for tools that do not keep stdout clean.
    #[serde(default)]
    pub output: Option<String>,
    /// Further files below `${scratch}` that are kept as evidence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keep: Vec<String>,
    /// Kills the whole process group.
    pub timeout_s: u64,
    /// Run twice, so many seconds apart: what is held against the limits is by how much each count grew meanwhile. For counters that run since
    /// nobody knows when; at most an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_s: Option<u64>,
    /// Seconds after a boot in which what misses may only not be up yet: it is measured again until it holds, and counts as it is when they are over.
    /// For links that train, fabrics that form, units that start; at most 900.
    #[serde(default, skip_serializing_if = "is_none_of_it")]
    pub settle_s: u64,
    /// Looked at again and again while the tools of other gates load the machine, instead of once by itself: the worst look counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub during: Option<During>,
    /// A parser's name: `fio`, `iperf3`, `stressapptest`…
    pub parser: String,
    /// Disks, GPUs, links… that each criterion must see, where its metric is measured for each: a number, any `profile:NAME`, `facts:disks`,
    /// `facts:nvme_disks`, `facts:sata_disks`, `facts:gpus` or `stack:mounts`; one when absent. `>=` before it: there may be more, and each is held against the limits.
    #[serde(default)]
    pub count: Option<String>,
    pub criteria: Vec<Criterion>,
    /// What a failure means, in words for the person who opens the node's page.
    pub finding: String,
    #[serde(default)]
    pub on_timeout: OnTimeout,
    /// What must hold before it is run; it is skipped, with the reason, where it does not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<Need>,
    /// What it does to the machine beside measuring. Gates of one stage that do nothing beside it, and run the same, share one run of their tool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<SideEffect>,
    /// Architectures it is for (`amd64`, `arm64`); all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arch: Vec<String>,
    /// How often it is run again after an `error`, at once; at most 3. A `fail` is never run again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retries: u32,
    /// Whether it must be measured. Where not, it may be `skipped` on a node that has nothing to measure or no threshold for it; what is
    /// measured and misses, and what ends in an error, blocks all the same.
    #[serde(default = "required")]
    pub required: bool,
    /// Run and reported, and never in the way: for a gate that is new, or whose threshold nobody has pinned.
    #[serde(default, skip_serializing_if = "is_false")]
    pub shadow: bool,
    /// Run after the reboot that `survives a reboot` asks for, as well as before it.
    #[serde(default)]
    pub after_reboot: bool,
    /// What runs on a second node meanwhile, for gates that measure what lies between two: `${peer_address}` and `${pair_port}` in argv lead to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<Peer>,
}

/// When a gate is looked at that shows something only under load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct During {
    /// Ids of gates that load the machine, one of which at least comes before it in its suite. Where none of them ran, nothing was seen.
    pub gates: Vec<String>,
    /// Seconds between two looks, 1 to 60.
    pub every_s: u64,
}

/// The end of a pair gate that listens. It is started first, and is killed with its group when the other end is through, at the latest after
/// `ready_s` and the gate's timeout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// Without a shell, as the gate's own; it listens on `${pair_port}`.
    pub argv: Vec<String>,
    /// What it prints once it listens. Where nothing is said here, it listens once its TCP port is open: tools keep back what they print to a pipe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub says: Option<String>,
    /// Seconds within which it must listen.
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
    /// Seconds that it may take by its own word: every run that it is allowed, its window, and the time to settle.
    pub fn longest_s(&self) -> u64 {
        let once = self
            .window_s
            .map_or(self.timeout_s, |window| 2 * self.timeout_s + window);
        once * (u64::from(self.retries) + 1) + self.settle_s
    }

    /// What its verdict counts for on nodes of a model: as the profile says, else as it says itself.
    pub fn mode(&self, profile: Option<&HardwareProfile>) -> Mode {
        match profile.and_then(|profile| profile.gates.get(&self.id)) {
            Some(policy) => policy.mode,
            None if self.shadow => Mode::Shadow,
            None if self.required => Mode::Required,
            None => Mode::Optional,
        }
    }
}

/// What a gate is run for, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Each {
    Disks,
    NvmeDisks,
    SataDisks,
    /// Directories that the stack's mount units name.
    Mounts,
}

/// What a tool that does not come back says about the hardware.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    #[default]
    Error,
    /// The hang itself is the fault.
    Fail,
}

/// What must hold before a gate is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// Nobody's job runs on the node.
    Drained,
    /// No process holds a GPU open.
    GpusIdle,
}

impl Need {
    /// As written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Drained => "drained",
            Self::GpusIdle => "gpus_idle",
        }
    }
}

/// What a gate does to the machine beside measuring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SideEffect {
    CpuLoad,
    MemoryLoad,
    GpuLoad,
    /// Beyond a few packets.
    NetworkLoad,
    /// In its own scratch folder, never on a device.
    WritesDisk,
}

impl SideEffect {
    /// As written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CpuLoad => "cpu_load",
            Self::MemoryLoad => "memory_load",
            Self::GpuLoad => "gpu_load",
            Self::NetworkLoad => "network_load",
            Self::WritesDisk => "writes_disk",
        }
    }
}

/// One metric against one limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Criterion {
    pub metric: String,
    /// Only what was measured for this one: a message size, a test's name. It must have been measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// Only the best so many of what was measured, all of which must be there and hold: the fastest eight ports, where a node has slower ones beside
    /// its rails. A number or a reference, as `count`, in whose place it stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<String>,
    pub op: Op,
    /// The limit itself, or `profile:NAME` for a threshold of the hardware profile.
    pub limit: Limit,
    pub unit: String,
}

/// How a measured value is compared with the limit.
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

/// A limit: a number, a text, or a reference into the profile (`profile:…`), the stack (`stack:…`) or the plan's variables (`variable:…`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum Limit {
    Number(f64),
    Text(String),
}

/// A measured value.
pub type Value = Limit;
