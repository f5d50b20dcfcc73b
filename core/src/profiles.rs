//! Hardware profiles: the requirements of a model, and the rule for its root disk. Facts are
//! compared with a profile and never change the profile.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::facts::{Disk, DiskTransport, Facts};
use crate::gates::Mode;

/// The requirements of a hardware model. Every number is a minimum unless documented otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HardwareProfile {
    pub model: String,
    #[serde(default = "default_arch")]
    pub arch: String,
    pub sockets: u32,
    pub cores_per_socket: u32,
    #[serde(default = "one")]
    pub threads_per_core: u32,
    /// Memory the kernel must have (`MemTotal`), in MiB; firmware and kernel reserve part of the
    /// installed memory.
    pub memory_mib: u64,
    /// Memory in MiB announced to the scheduler for jobs; at most `memory_mib`.
    pub schedulable_memory_mib: u64,
    #[serde(default)]
    pub gpus: Option<GpuExpectation>,
    /// Minimum number of NICs with link.
    #[serde(default = "one")]
    pub nics: u32,
    #[serde(default)]
    pub disks: Vec<DiskExpectation>,
    pub root_disk: RootDiskRule,
    /// Maximum power draw of the machine, in watts; reserved from the rack's budget at power-on.
    pub power_max_w: u32,
    /// Maximum seconds in each moving state before the node is stuck, by the state's name. A
    /// default applies to missing states.
    #[serde(default)]
    pub deadlines_s: BTreeMap<String, u64>,
    /// Thresholds referenced by gates: `network.iperf3_gbps`…
    #[serde(default)]
    pub thresholds: BTreeMap<String, Threshold>,
    /// Words referenced by gates: `gpu.name`, `gpu.vbios`…
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub words: BTreeMap<String, Word>,
    /// Physical limits of the hardware, by the name used in thresholds. No threshold may exceed its
    /// limit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ceilings: BTreeMap<String, Ceiling>,
    /// Gates with a mode different from the suite's on this model, by gate id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gates: BTreeMap<String, GatePolicy>,
}

fn default_arch() -> String {
    "amd64".into()
}

fn one() -> u32 {
    1
}

/// GPUs of a model, with an exact count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct GpuExpectation {
    pub count: u32,
    pub model: String,
}

/// Disks of a transport: the minimum count and the minimum size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DiskExpectation {
    pub transport: DiskTransport,
    pub count: u32,
    pub min_gib: u64,
}

/// A limit with its unit and source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Threshold {
    pub value: f64,
    pub unit: String,
    /// The statistic compared with the threshold: `last row in place, 16 GiB`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statistic: Option<String>,
    /// Conditions of the measurement: driver, message sizes, clocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<String>,
    /// `seed` (from a document), `measured` (on nodes of the same model), or `pinned` (by a
    /// person).
    #[serde(default)]
    pub provenance: String,
    /// The document, the measured nodes, or the person with the reason for the pin.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// Name of the profile's ceiling for this threshold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<String>,
}

/// A word compared by a gate: a name, a firmware version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Word {
    pub value: String,
    /// `seed`, `measured` or `pinned`, with the same meaning as in a threshold.
    #[serde(default)]
    pub provenance: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
}

/// The physical limit of a part: a bus, a memory, a port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Ceiling {
    pub value: f64,
    pub unit: String,
    /// The specification of the limit.
    pub source: String,
}

/// The mode of a gate on a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct GatePolicy {
    pub mode: Mode,
    /// The reason for differing from the suite, shown to readers of the verdict.
    pub because: String,
}

/// The rule for choosing the operating system disk. All given conditions must hold, and exactly one
/// disk may match.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RootDiskRule {
    #[serde(default)]
    pub transport: Option<DiskTransport>,
    #[serde(default)]
    pub min_gib: Option<u64>,
    #[serde(default)]
    pub max_gib: Option<u64>,
    #[serde(default)]
    pub model: Option<String>,
    #[serde(default)]
    pub serial_prefix: Option<String>,
}

/// The reason why no single root disk was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RootDiskError {
    #[error("no disk fits the profile's root-disk rule; the node has: {0}")]
    None(String),
    #[error("{0} disks fit the profile's root-disk rule, which must leave one: {1}")]
    Ambiguous(usize, String),
    #[error("the disk that fits has no serial, so it cannot be named safely: {0}")]
    NoSerial(String),
}

/// A difference between a node and its profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Miss {
    pub what: String,
    pub wanted: String,
    pub found: String,
}

impl std::fmt::Display for Miss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}: wanted {}, found {}",
            self.what, self.wanted, self.found
        )
    }
}

impl HardwareProfile {
    /// Compares facts with the profile. An empty result means the node matches.
    pub fn misses(&self, facts: &Facts) -> Vec<Miss> {
        let mut misses = Vec::new();
        let mut at_least = |what: &str, wanted: u64, found: u64, unit: &str| {
            if found < wanted {
                misses.push(Miss {
                    what: what.into(),
                    wanted: format!("{wanted}{unit}"),
                    found: format!("{found}{unit}"),
                });
            }
        };
        let cores = facts
            .cpus
            .iter()
            .map(|cpu| u64::from(cpu.cores))
            .min()
            .unwrap_or(0);
        at_least(
            "CPU sockets",
            u64::from(self.sockets),
            facts.cpus.len() as u64,
            "",
        );
        at_least(
            "cores per socket",
            u64::from(self.cores_per_socket),
            cores,
            "",
        );
        at_least(
            "memory",
            self.memory_mib,
            facts.memory.total_bytes >> 20,
            " MiB",
        );
        let linked = facts.nics.iter().filter(|nic| nic.link_up).count() as u64;
        at_least("NICs with link", u64::from(self.nics), linked, "");
        for want in &self.disks {
            let fits = |disk: &&Disk| {
                disk.transport == want.transport && disk.size_bytes >> 30 >= want.min_gib
            };
            let what = format!("{:?} disks of {} GiB or more", want.transport, want.min_gib);
            at_least(
                &what,
                u64::from(want.count),
                facts.disks.iter().filter(fits).count() as u64,
                "",
            );
        }
        if let Some(gpus) = &self.gpus
            && facts.gpus.len() != gpus.count as usize
        {
            let found = format!("{}", facts.gpus.len());
            misses.push(Miss {
                what: format!("GPUs ({})", gpus.model),
                wanted: gpus.count.to_string(),
                found,
            });
        }
        misses
    }

    /// Returns the serial number of the operating system disk.
    ///
    /// # Errors
    /// Returns [`RootDiskError`] if the rule matches no disk, several disks, or a disk without a
    /// serial number. Guessing would erase the wrong disk.
    pub fn root_disk<'facts>(&self, facts: &'facts Facts) -> Result<&'facts str, RootDiskError> {
        let fitting: Vec<&Disk> = facts
            .disks
            .iter()
            .filter(|disk| self.root_disk.fits(disk))
            .collect();
        match fitting.as_slice() {
            [] => Err(RootDiskError::None(describe(
                &facts.disks.iter().collect::<Vec<_>>(),
            ))),
            [disk] => disk
                .serial
                .as_deref()
                .ok_or_else(|| RootDiskError::NoSerial(disk.name.clone())),
            several => Err(RootDiskError::Ambiguous(several.len(), describe(several))),
        }
    }
}

impl RootDiskRule {
    fn fits(&self, disk: &Disk) -> bool {
        let gib = disk.size_bytes >> 30;
        self.transport
            .is_none_or(|transport| disk.transport == transport)
            && self.min_gib.is_none_or(|min| gib >= min)
            && self.max_gib.is_none_or(|max| gib <= max)
            && self
                .model
                .as_ref()
                .is_none_or(|model| disk.model.as_ref() == Some(model))
            && self.serial_prefix.as_ref().is_none_or(|prefix| {
                disk.serial
                    .as_ref()
                    .is_some_and(|serial| serial.starts_with(prefix.as_str()))
            })
    }
}

fn describe(disks: &[&Disk]) -> String {
    let one = |disk: &&Disk| {
        format!(
            "{} ({:?}, {} GiB, serial {})",
            disk.name,
            disk.transport,
            disk.size_bytes >> 30,
            disk.serial.as_deref().unwrap_or("none")
        )
    };
    disks.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(rule: RootDiskRule) -> HardwareProfile {
        HardwareProfile {
            model: "virtual".into(),
            arch: "amd64".into(),
            sockets: 1,
            cores_per_socket: 1,
            threads_per_core: 1,
            memory_mib: 1800,
            schedulable_memory_mib: 1500,
            gpus: None,
            nics: 1,
            disks: vec![DiskExpectation {
                transport: DiskTransport::Nvme,
                count: 2,
                min_gib: 8,
            }],
            root_disk: rule,
            power_max_w: 300,
            deadlines_s: BTreeMap::new(),
            thresholds: BTreeMap::new(),
            words: BTreeMap::new(),
            ceilings: BTreeMap::new(),
            gates: BTreeMap::new(),
        }
    }

    fn disk(name: &str, transport: DiskTransport, gib: u64, serial: &str) -> Disk {
        Disk {
            name: name.into(),
            serial: Some(serial.into()),
            transport,
            size_bytes: gib << 30,
            ..Disk::default()
        }
    }

    fn facts() -> Facts {
        let disks = vec![
            disk("vda", DiskTransport::Virtio, 1, "DECOY"),
            disk("nvme0n1", DiskTransport::Nvme, 8, "ROOT1"),
            disk("nvme1n1", DiskTransport::Nvme, 8, "DATA1"),
        ];
        Facts {
            disks,
            ..Facts::default()
        }
    }

    #[test]
    fn ambiguity_is_an_error_never_a_guess() {
        let nvme = RootDiskRule {
            transport: Some(DiskTransport::Nvme),
            ..RootDiskRule::default()
        };
        assert!(matches!(
            profile(nvme.clone()).root_disk(&facts()),
            Err(RootDiskError::Ambiguous(2, _))
        ));
        let named = RootDiskRule {
            serial_prefix: Some("ROOT".into()),
            ..nvme
        };
        assert_eq!(profile(named).root_disk(&facts()), Ok("ROOT1"));
        let none = RootDiskRule {
            min_gib: Some(100),
            ..RootDiskRule::default()
        };
        assert!(matches!(
            profile(none).root_disk(&facts()),
            Err(RootDiskError::None(_))
        ));
    }

    #[test]
    fn every_miss_is_named() {
        let misses = profile(RootDiskRule::default()).misses(&facts());
        let what: Vec<&str> = misses.iter().map(|miss| miss.what.as_str()).collect();
        assert_eq!(
            what,
            [
                "CPU sockets",
                "cores per socket",
                "memory",
                "NICs with link"
            ]
        );
    }
}
