//! Stacks: pins over an image, the lock resolving the pins, and the plan for converging a node.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::redact::redact;
use crate::values::Digest;

mod check; // Allowed content of a plan, checked before writing files or argv
mod conditions; // Items for nodes with certain hardware
pub mod diff; // Differences between two stacks
pub mod language; // Selector, firmware, container runtime
mod marker; // The marker of an installed disk
mod mounts; // File systems mounted by a stack
mod parts; // Fragments shared by several stacks
pub mod rules; // Compatibility rules, as data
pub mod summary; // Size, effect and driver of a stack
mod wanted; // Firmware and BIOS values wanted for a machine

pub use check::MANAGED;
pub use conditions::{ConditionalItems, Conditions};
use language::{
    BiosItem, ContainerRuntime, Expectations, FirmwareItem, KnownBad, Selector,
    is_nvidia_specification,
};
pub use marker::Marker;
pub use parts::StackPart;

/// A stack as written by the author. Immutable once published under `name` and `version`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StackSpec {
    pub version: String,
    /// The image under the stack, by name.
    pub image: String,
    /// The nodes and images that the stack is made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<Selector>,
    /// Versions of software outside the stack that the stack must be compatible with. Keys are
    /// words of the rule book: `slurm_controller`, `kubernetes`, `network_operator`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub beside: BTreeMap<String, String>,
    /// Wanted packages with exact versions, epoch included.
    #[serde(default)]
    pub packages: BTreeMap<String, String>,
    /// Packages that must not be installed.
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
    /// Items for nodes with certain hardware only.
    #[serde(default, skip_serializing_if = "Conditions::is_empty")]
    pub when: Conditions,
    /// Configuration of containerd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_runtime: Option<ContainerRuntime>,
    /// Combinations of packages known to be bad.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known_bad: Vec<KnownBad>,
    /// Wanted firmware versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub firmware: Vec<FirmwareItem>,
    /// Wanted BIOS settings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bios: Vec<BiosItem>,
    /// Conditions that a node with this stack must satisfy.
    #[serde(default, skip_serializing_if = "Expectations::is_empty")]
    pub expects: Expectations,
    /// The lock made by `muster stack lock`. Pools reject a stack without a lock.
    #[serde(default)]
    pub lock: Option<StackLock>,
    /// Digest of the blob `bundle.json`. The blob names every file of the lock's flat repository by
    /// digest.
    #[serde(default)]
    pub bundle: Option<Digest>,
}

impl StackSpec {
    /// Returns the stack's files, including the file generated for the container runtime.
    pub fn all_files(&self) -> Vec<FileItem> {
        self.files
            .iter()
            .cloned()
            .chain(self.container_runtime.iter().map(ContainerRuntime::file))
            .collect()
    }

    /// Returns whether containers get devices by the Container Device Interface.
    pub fn uses_cdi(&self) -> bool {
        self.container_runtime
            .as_ref()
            .is_some_and(|runtime| runtime.cdi)
    }

    /// Returns whether converge writes the CDI specification of the GPU driver. A stack with its own
    /// specification of NVIDIA's devices gets none from converge.
    pub fn needs_cdi_specification(&self) -> bool {
        let mut paths = self.files.iter().map(|file| file.path.as_str());
        self.uses_cdi() && !paths.any(is_nvidia_specification)
    }
}

/// A file owned by the stack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FileItem {
    pub path: String,
    /// Octal, such as `"0644"`.
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

/// A piece of a file's content. There is no template language: only typed values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Part {
    Text(String),
    /// A value of the node: `hostname`, `address`, `agent_address`, `cluster_address`, `node_id`,
    /// `rack`, `label:NAME`, or `rail:N`. A plan for a node without the value is rejected.
    Value(String),
    /// A credential, by name. Secret text starting with `base64:` is decoded. Sent only over the
    /// SSH channel.
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

/// A systemd unit with the required state.
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

/// All packages of a stack over one image, including dependencies, resolved by the distribution's
/// own resolver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StackLock {
    pub image_digest: Digest,
    pub arch: String,
    /// Every package to install or upgrade, sorted by name.
    pub packages: Vec<LockedPackage>,
    /// Firmware of the stack at the time of locking.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub firmware: Vec<FirmwareItem>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bios: Vec<BiosItem>,
    /// Sources of the packages. Empty in locks made by earlier releases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repositories: Vec<LockedRepository>,
}

/// A repository used for a lock, as of the time of locking.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LockedRepository {
    /// URI as in apt's sources, without user, password or query.
    pub uri: String,
    /// Suite as in apt's sources: `bookworm-updates`. Empty for a flat repository.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub suite: String,
    /// Component: `main`. Empty for a flat repository.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub component: String,
    /// Creation time of the repository: the text of `Date` in the Release file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
    /// Digest of the Release file. apt checked every download against digests in this file, so the
    /// digest identifies the snapshot.
    pub release: Digest,
    /// Names of the lock's packages from this repository, sorted.
    pub packages: Vec<String>,
}

impl LockedRepository {
    /// Returns the repository's name for people: URI, suite and component.
    pub fn name(&self) -> String {
        let words = [&self.uri, &self.suite, &self.component]
            .into_iter()
            .filter(|word| !word.is_empty());
        words.cloned().collect::<Vec<_>>().join(" ")
    }
}

impl StackLock {
    /// Returns the digest of the lock: the version shown to operators.
    pub fn digest(&self) -> Digest {
        Digest::of(&serde_json::to_vec(self).expect("a lock holds only strings and numbers"))
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

/// The required state of a node, resolved for this node. Contains secrets: the plan is built when
/// sent, and never stored or logged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConvergePlan {
    pub lock: Digest,
    /// `http://AGENT:8090/boot/v1/bundle/<bundle digest hex>`. The repository is unsigned, so
    /// `packages` contains every package's digest.
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
    /// Whether converge writes the CDI specification of the installed GPU driver.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cdi: bool,
    /// `muster:<node>:<epoch>`, renewed on every converge.
    pub principal: String,
    /// The SSH user CA as an OpenSSH public-key line. During a rotation a second line, the new CA.
    pub user_ca: String,
    pub marker: Marker,
    /// `true`: print the changes and their reboot class, without a change.
    #[serde(default)]
    pub dry_run: bool,
}

/// A file with the content for this node.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedFile {
    pub path: String,
    pub mode: String,
    pub owner: String,
    pub group: String,
    /// Base64.
    pub content: String,
    /// Whether reports show only a keyed hash of the content.
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

/// The findings and changes of a converge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConvergeReport {
    pub lock: Digest,
    pub items: Vec<ItemReport>,
    /// Items that take effect only after a reboot. Empty if a reboot is not needed.
    pub reboot_for: Vec<String>,
}

impl ConvergeReport {
    /// Returns whether the node matches the plan, without remaining changes.
    pub fn clean(&self) -> bool {
        self.reboot_for.is_empty()
            && self
                .items
                .iter()
                .all(|item| item.outcome == ItemOutcome::Unchanged)
    }

    /// Returns the report without text that looks like a secret: the values before and after.
    pub fn redacted(self) -> Self {
        let items = self.items.into_iter().map(|item| ItemReport {
            before: item.before.as_deref().map(redact),
            after: item.after.as_deref().map(redact),
            ..item
        });
        Self {
            items: items.collect(),
            ..self
        }
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

/// The result for an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemOutcome {
    Unchanged,
    Changed,
    /// The item differs and was not changed (dry run, or waiting for a reboot).
    Differs,
}
