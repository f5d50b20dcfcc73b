//! Stacks: pins over an image, the lock that resolves them, and the plan that a node converges to.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::facts::Facts;
use crate::firmware::{Wanted, WantedFirmware};
use crate::values::Digest;

mod check; // What a plan may hold, before it reaches files and argv
pub mod diff; // What one stack has and another has not
pub mod language; // Whom it is for, firmware, container runtime
mod marker; // The marker of an installed disk
mod mounts; // File systems that a stack mounts
mod parts; // What is added to more than one stack
pub mod rules; // What goes with what, as data

pub use check::MANAGED;
use language::{BiosItem, ContainerRuntime, Expectations, FirmwareItem, KnownBad, Selector};
pub use marker::Marker;
pub use parts::StackPart;

/// A stack as its author writes it; immutable once published under `name` and `version`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StackSpec {
    pub version: String,
    /// The image (by name) it lies over.
    pub image: String,
    /// Whom it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<Selector>,
    /// Versions of what it must fit and does not install, by the words of the rule book: `slurm_controller`, `kubernetes`, `network_operator`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub beside: BTreeMap<String, String>,
    /// Wanted packages with exact versions, epoch included.
    #[serde(default)]
    pub packages: BTreeMap<String, String>,
    /// Packages that must not be there.
    #[serde(default)]
    pub absent: Vec<String>,
    #[serde(default)]
    pub files: Vec<FileItem>,
    #[serde(default)]
    pub sysctl: BTreeMap<String, String>,
    #[serde(default)]
    pub modules_load: Vec<String>,
    #[serde(default)]
    pub modules_blacklist: Vec<String>,
    /// Items of the kernel command line: `name` or `name=value`. A change needs a reboot.
    #[serde(default)]
    pub kernel_args: Vec<String>,
    #[serde(default)]
    pub limits: Vec<LimitItem>,
    #[serde(default)]
    pub services: Vec<ServiceItem>,
    /// containerd's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_runtime: Option<ContainerRuntime>,
    /// Combinations that the author knows to be bad.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known_bad: Vec<KnownBad>,
    /// Firmware wanted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub firmware: Vec<FirmwareItem>,
    /// BIOS settings wanted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bios: Vec<BiosItem>,
    /// What must be true of a node that has it.
    #[serde(default, skip_serializing_if = "Expectations::is_empty")]
    pub expects: Expectations,
    /// The lock, once `muster stack lock` made it. A stack without one cannot be used by a pool.
    #[serde(default)]
    pub lock: Option<StackLock>,
    /// The blob `bundle.json`, which names every file of the lock's flat repository by digest.
    #[serde(default)]
    pub bundle: Option<Digest>,
}

impl StackSpec {
    /// Its files, with the one that its container runtime makes.
    pub fn all_files(&self) -> Vec<FileItem> {
        self.files
            .iter()
            .cloned()
            .chain(self.container_runtime.iter().map(ContainerRuntime::file))
            .collect()
    }

    /// What is wanted of the firmware and BIOS of a machine, by the lock: what its author wrote since is not what nodes were promised.
    pub fn firmware_of(&self, facts: Option<&Facts>) -> Wanted {
        let product = facts
            .and_then(|facts| facts.smbios.product.as_deref())
            .unwrap_or_default();
        self.lock
            .as_ref()
            .map(|lock| lock.firmware_of(product))
            .unwrap_or_default()
    }
}

/// A file the stack owns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FileItem {
    pub path: String,
    /// Octal, as `"0644"`.
    pub mode: String,
    #[serde(default = "root")]
    pub owner: String,
    #[serde(default = "root")]
    pub group: String,
    pub content: Vec<Part>,
}

fn root() -> String {
    "root".into()
}

/// A piece of a file's content. No template language: typed values only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Part {
    Text(String),
    /// `hostname`, `address`, `agent_address`, `cluster_address`, `node_id`, `rack`, `label:NAME`, or `rail:N`. One that the node lacks is refused.
    Value(String),
    /// A credential by name; a content that starts with `base64:` is decoded. Travels only over the SSH channel.
    Secret(String),
}

/// One line of limits.d.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LimitItem {
    pub domain: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub item: String,
    pub value: String,
}

/// A systemd unit and how it must be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ServiceItem {
    pub name: String,
    pub enabled: bool,
    pub running: bool,
    /// Paths whose change restarts the unit.
    #[serde(default)]
    pub restart_on: Vec<String>,
}

/// The whole closure of a stack over one image, resolved by the distribution's own resolver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StackLock {
    pub image_digest: Digest,
    pub arch: String,
    /// Every package to install or upgrade, sorted by name.
    pub packages: Vec<LockedPackage>,
    /// The stack's, when it was locked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub firmware: Vec<FirmwareItem>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bios: Vec<BiosItem>,
    /// Where the packages came from. Locks of former releases do not say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repositories: Vec<LockedRepository>,
}

/// A repository that packages of a lock came from, as it was at that moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LockedRepository {
    /// As apt's sources name it, without a user, a password or a query.
    pub uri: String,
    /// As apt's sources name it: `bookworm-updates`. Empty for a flat repository.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub suite: String,
    /// `main`. Empty for a flat repository.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub component: String,
    /// When it was made, in its own words: `Date` of its Release file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
    /// Of its Release file, by whose digests apt checked all that came from it: the snapshot.
    pub release: Digest,
    /// Names of the lock's packages that came from it, sorted.
    pub packages: Vec<String>,
}

impl LockedRepository {
    /// As people call it.
    pub fn name(&self) -> String {
        let words = [&self.uri, &self.suite, &self.component]
            .into_iter()
            .filter(|word| !word.is_empty());
        words.cloned().collect::<Vec<_>>().join(" ")
    }
}

impl StackLock {
    /// The version operators see.
    pub fn digest(&self) -> Digest {
        Digest::of(&serde_json::to_vec(self).expect("a lock holds only strings and numbers"))
    }

    /// What is wanted of the firmware and BIOS of a machine with this product name.
    pub fn firmware_of(&self, product: &str) -> Wanted {
        let is_for = |only: &Option<String>| {
            only.as_deref()
                .is_none_or(|only| rules::glob(only, product))
        };
        let firmware: Vec<&FirmwareItem> = self
            .firmware
            .iter()
            .filter(|item| is_for(&item.product))
            .collect();
        let own = firmware.iter().map(|item| &item.attributes);
        let bios = self
            .bios
            .iter()
            .filter(|item| is_for(&item.product))
            .map(|item| &item.attributes);
        Wanted {
            bios: own
                .chain(bios)
                .flatten()
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
            firmware: firmware
                .into_iter()
                .map(
                    |FirmwareItem {
                         component,
                         version,
                         image,
                         class,
                         ..
                     }| WantedFirmware {
                        component: component.clone(),
                        version: version.clone(),
                        image: *image,
                        class: *class,
                    },
                )
                .collect(),
        }
    }
}

/// One package of a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LockedPackage {
    pub name: String,
    pub version: String,
    pub arch: String,
    pub size: u64,
    pub sha256: Digest,
    /// File name in the bundle's flat repository.
    pub filename: String,
}

/// What a node must be, resolved for that node. Holds secrets: it is built when it is sent, and never stored or logged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConvergePlan {
    pub lock: Digest,
    /// `http://AGENT:8090/boot/v1/bundle/<bundle digest hex>`; signed by nobody, so every package's digest is in `packages`.
    pub repository: String,
    pub packages: Vec<LockedPackage>,
    pub absent: Vec<String>,
    pub files: Vec<PlannedFile>,
    pub sysctl: BTreeMap<String, String>,
    pub modules_load: Vec<String>,
    pub modules_blacklist: Vec<String>,
    pub kernel_args: Vec<String>,
    pub limits: Vec<LimitItem>,
    pub services: Vec<ServiceItem>,
    /// `muster:<node>:<epoch>`, renewed on every converge.
    pub principal: String,
    pub user_ca: String,
    pub marker: Marker,
    /// `true`: print what would change and its reboot class, touch nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// A file with its content for this node.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedFile {
    pub path: String,
    pub mode: String,
    pub owner: String,
    pub group: String,
    /// Base64.
    pub content: String,
    /// Whether reports show only a keyed hash of it.
    pub secret: bool,
}

impl std::fmt::Debug for PlannedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let PlannedFile {
            path, mode, secret, ..
        } = self;
        f.debug_struct("PlannedFile")
            .field("path", path)
            .field("mode", mode)
            .field("secret", secret)
            .finish_non_exhaustive()
    }
}

/// What converge found and did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConvergeReport {
    pub lock: Digest,
    pub items: Vec<ItemReport>,
    /// Items that hold only after a reboot; empty when none does.
    pub reboot_for: Vec<String>,
}

impl ConvergeReport {
    /// Whether the node is what its plan says, with nothing left to do.
    pub fn clean(&self) -> bool {
        self.reboot_for.is_empty()
            && self
                .items
                .iter()
                .all(|item| item.outcome == ItemOutcome::Unchanged)
    }
}

/// One item of a converge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ItemReport {
    /// `package slurmd`, `file /etc/chrony/chrony.conf`, `sysctl vm.swappiness`…
    pub item: String,
    pub outcome: ItemOutcome,
    pub before: Option<String>,
    pub after: Option<String>,
}

/// What became of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemOutcome {
    Unchanged,
    Changed,
    /// Differs, and was left alone (dry run, or it waits for a reboot).
    Differs,
}
