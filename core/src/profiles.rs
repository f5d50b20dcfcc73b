//! Hardware profiles: what a model must have, and the rule that picks its root disk. Facts are held against a profile; they never become it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::facts::{Disk, DiskTransport, Facts};
use crate::gates::Mode;

/// What a model must have. Every number is a minimum unless it says otherwise.
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
    /// MiB the kernel must have (`MemTotal`); firmware and kernel keep a part of what is installed.
    pub memory_mib: u64,
    /// MiB told to the scheduler: what jobs may use; at most `memory_mib`.
    pub schedulable_memory_mib: u64,
    #[serde(default)]
    pub gpus: Option<GpuExpectation>,
    /// NICs with link, at least.
    #[serde(default = "one")]
    pub nics: u32,
    #[serde(default)]
    pub disks: Vec<DiskExpectation>,
    pub root_disk: RootDiskRule,
    /// What the machine may draw, in watts; ordered against the rack's budget at power-on.
    pub power_max_w: u32,
    /// Seconds each moving phase may last before it is stuck, by the state's name; a default applies otherwise.
    #[serde(default)]
    pub deadlines_s: BTreeMap<String, u64>,
    /// Thresholds that gates name: `network.iperf3_gbps`…
    #[serde(default)]
    pub thresholds: BTreeMap<String, Threshold>,
    /// Words that gates name: `gpu.name`, `gpu.vbios`…
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub words: BTreeMap<String, Word>,
    /// What the hardware can do at all, by names that thresholds refer to: no threshold may lie beyond.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ceilings: BTreeMap<String, Ceiling>,
    /// Gates whose verdict counts otherwise on this model than their suite says, by id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gates: BTreeMap<String, GatePolicy>,
}

fn default_arch() -> String {
    "amd64".into()
}

fn one() -> u32 {
    1
}

/// GPUs of a model: exactly this many.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct GpuExpectation {
    pub count: u32,
    pub model: String,
}

/// Disks of a kind: at least this many, at least this large.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DiskExpectation {
    pub transport: DiskTransport,
    pub count: u32,
    pub min_gib: u64,
}

/// A limit with its unit and where it comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Threshold {
    pub value: f64,
    pub unit: String,
    /// Which number of the measurement it is for: `last row in place, 16 GiB`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statistic: Option<String>,
    /// Under what it was measured: driver, message sizes, clocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<String>,
    /// `seed` (from a document), `measured` (on nodes like this one), or `pinned` (by a person).
    #[serde(default)]
    pub provenance: String,
    /// Which document, which nodes, or who pinned it and why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// The profile's ceiling that it must not exceed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<String>,
}

/// A word that a gate compares with: a name, a firmware version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Word {
    pub value: String,
    /// `seed`, `measured` or `pinned`, as of a threshold.
    #[serde(default)]
    pub provenance: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
}

/// What a part can do at all: a bus, a memory, a port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Ceiling {
    pub value: f64,
    pub unit: String,
    /// The specification it follows from.
    pub source: String,
}

/// What a gate's verdict counts for on a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct GatePolicy {
    pub mode: Mode,
    /// Why it is not what the suite says, for whoever reads the verdict.
    pub because: String,
}

/// Which disk gets the operating system. All given conditions must hold, and exactly one disk may be left.
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

/// Why no single root disk was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RootDiskError {
    #[error("no disk fits the profile's root-disk rule; the node has: {0}")]
    None(String),
    #[error("{0} disks fit the profile's root-disk rule, which must leave one: {1}")]
    Ambiguous(usize, String),
    #[error("the disk that fits has no serial, so it cannot be named safely: {0}")]
    NoSerial(String),
}

/// One way in which a node misses its profile.
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
    /// Holds facts against the profile; an empty answer means they fit.
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

    /// The serial of the one disk that gets the operating system.
    ///
    /// # Errors
    /// [`RootDiskError`] when the rule leaves no disk, or more than one, or one without a serial: guessing would erase the wrong disk.
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
