//! The rule book in Rust types. The rules are data shipped with the program, so users can read,
//! cite and compare the rule rejecting a stack.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use super::Level;

/// The complete content of `rules.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rulebook {
    /// Date of the facts in the book.
    pub version: String,
    pub components: BTreeMap<String, Component>,
    pub gpus: Vec<GpuModels>,
    pub rules: Vec<Rule>,
    pub classes: Classes,
}

/// A component: packages with different names but the same function.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Component {
    /// Patterns for package names, where `*` matches any text.
    pub packages: Vec<String>,
    pub except: Vec<String>,
    /// The word used in a stack's `beside` for a version of software outside the node's packages.
    pub beside: Option<String>,
    /// The kernel driver bound to PCI functions of nodes running the component.
    pub runs: Option<String>,
}

/// PCI devices of one GPU family.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuModels {
    pub family: String,
    pub vendor: String,
    pub devices: Vec<String>,
}

/// Packages grouped by the effect of a change. Patterns for names, where `*` matches any text.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Classes {
    pub reboot: Vec<String>,
    pub driver: Vec<String>,
    pub service: Vec<String>,
}

/// One rule, or a part of a rule. Parts of a rule have the same id.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub id: String,
    pub title: String,
    /// Template of the sentence. `{of}`, `{on}`, `{want}`, `{gpu}`, `{missing}` are replaced.
    pub says: String,
    pub source: String,
    #[serde(default)]
    pub when: When,
    /// The result if a needed fact is missing.
    #[serde(default = "note")]
    pub unknown: Unknown,
    pub check: Check,
}

fn note() -> Unknown {
    Unknown::Note
}

/// The result of a rule whose facts are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unknown {
    /// A locked stack is rejected, because a lock contains every fact needed by the rule.
    Refuse,
    /// The missing fact is reported without effect on the stack.
    Note,
}

impl Unknown {
    /// Returns the level of the finding, for a locked or an unlocked stack.
    pub(super) fn level(self, locked: bool) -> Level {
        match (self, locked) {
            (Self::Refuse, true) => Level::Refused,
            (Self::Refuse, false) | (Self::Note, _) => Level::Unknown,
        }
    }
}

/// The stacks that a rule applies to. Every given condition must be true.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct When {
    /// Components that must all be present.
    pub has: Vec<String>,
    /// GPU families. A GPU of the node, or the selector for unknown GPUs, must have one of them.
    pub gpu: Vec<String>,
    pub nvswitch: Option<bool>,
    pub nvlink5: Option<bool>,
    /// Modules loaded by the stack.
    pub modules: Vec<String>,
    /// Whether the stack's container runtime uses the Container Device Interface.
    pub cdi: Option<bool>,
}

/// The condition checked by a rule.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Check {
    /// Every package of `of` has the version of `on`. With `parts`, only the first numbers are
    /// compared.
    Same {
        of: Vec<String>,
        on: String,
        #[serde(default)]
        parts: Option<usize>,
        /// Compares the whole version, with epoch and revision, for vendors that put the patch
        /// level there.
        #[serde(default)]
        whole: bool,
        /// A version of `of` newer than `on` is allowed as well.
        #[serde(default)]
        newer: bool,
    },
    /// `on` is at least the `least` of the last row starting at or before `of`'s version.
    Least {
        of: String,
        on: String,
        #[serde(default)]
        over: Option<Over>,
        rows: Vec<LeastRow>,
    },
    /// Every package of `of` has at least the version `version`. A stack without `of` fits.
    Floor { of: String, version: String },
    /// `of` is at most the `most` of the row for `on`'s branch.
    Most {
        of: String,
        on: String,
        #[serde(default)]
        over: Option<Over>,
        rows: Vec<MostRow>,
    },
    /// A package name of `of` ends with the CUDA major number in the row for `on`'s branch.
    CudaMajor {
        of: String,
        on: String,
        rows: Vec<MostRow>,
    },
    /// Of the components in `among`, only those allowed by the row for the GPU family are present.
    Flavour {
        among: Vec<String>,
        rows: Vec<FlavourRow>,
    },
    /// All of these are in the stack.
    Needs(Needs),
    /// `of` and `on` must not both be present.
    Apart { of: String, on: String },
    /// Every version of `of` matches the pattern `version`, where `*` matches any text.
    Like {
        of: String,
        on: String,
        version: String,
    },
    /// `of` is within the bounds of the row for `on`'s version.
    Range {
        of: String,
        on: String,
        rows: Vec<RangeRow>,
    },
    /// These versions must not all be present together.
    Never(Vec<Bad>),
    /// `of` has the same release as `on`, or is at most a given number of releases older.
    Behind {
        of: String,
        on: String,
        series: Vec<String>,
        rows: Vec<BehindRow>,
    },
    /// Prebuilt kernel modules `of` belong to the driver `on`: by version, or by the branch in the
    /// package's name if the version is a kernel's.
    Built { of: String, on: String },
    /// Modules built on the node need the headers of every kernel. Prebuilt modules must match one
    /// of the kernels.
    Kernel { dkms: String, precompiled: String },
}

/// A component that takes the place of an older partner, where the partner's branch is one of
/// `bases`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Over {
    pub component: String,
    pub bases: Vec<u64>,
}

/// Required content of a stack.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Needs {
    pub components: Vec<String>,
    pub modules: Vec<String>,
    pub files: Vec<String>,
    pub texts: Vec<Text>,
}

/// A text required in a file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Text {
    pub path: String,
    pub text: String,
}

/// The minimum version `least`, applied to versions starting at `from`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeastRow {
    pub from: String,
    pub least: String,
}

/// The maximum version `most`, applied to the branch `branch`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MostRow {
    pub branch: u64,
    pub most: String,
}

/// The components allowed for some GPU families.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlavourRow {
    pub gpu: Vec<String>,
    pub allowed: Vec<String>,
}

/// The version bounds `from` and `to`, applied to the version `at`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RangeRow {
    pub at: String,
    pub from: String,
    pub to: String,
}

/// A component at an exact version.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bad {
    pub component: String,
    pub version: String,
}

/// The maximum number of releases behind, applied to releases starting at `from`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BehindRow {
    pub from: String,
    pub most: usize,
}

/// Returns the rule book shipped with the program.
pub fn book() -> &'static Rulebook {
    static BOOK: LazyLock<Rulebook> = LazyLock::new(|| {
        toml::from_str(include_str!("rules.toml"))
            .expect("the book that ships was read by a test of this crate")
    });
    &BOOK
}
