//! The rules as they are written down. Data that ships with the program, so that what refused a stack can be read, cited and compared.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use super::Level;

/// Everything in `rules.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rulebook {
    /// The day the facts are of.
    pub version: String,
    pub components: BTreeMap<String, Component>,
    pub gpus: Vec<GpuModels>,
    pub rules: Vec<Rule>,
    pub classes: Classes,
}

/// Packages that are one thing under several names.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Component {
    /// Names, in which `*` is anything.
    pub packages: Vec<String>,
    pub except: Vec<String>,
    /// The word under which a stack tells the version of something that is no package of the node.
    pub beside: Option<String>,
    /// The kernel driver that a node's PCI functions have where it runs there.
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

/// Packages by what a change of them costs, as names in which `*` is anything.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Classes {
    pub reboot: Vec<String>,
    pub driver: Vec<String>,
    pub service: Vec<String>,
}

/// One rule, or a part of one: parts have the same id.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub id: String,
    pub title: String,
    /// The sentence, with `{of}`, `{on}`, `{want}`, `{gpu}`, `{missing}` filled in.
    pub says: String,
    pub source: String,
    #[serde(default)]
    pub when: When,
    /// What it comes to where a fact is missing.
    #[serde(default = "note")]
    pub unknown: Unknown,
    pub check: Check,
}

fn note() -> Unknown {
    Unknown::Note
}

/// What a missing fact comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unknown {
    /// A locked stack is refused: everything the rule needs stands in a lock.
    Refuse,
    /// It is told, and stops nothing.
    Note,
}

impl Unknown {
    /// As a finding of a stack that is locked or not yet.
    pub(super) fn level(self, locked: bool) -> Level {
        match (self, locked) {
            (Self::Refuse, true) => Level::Refused,
            (Self::Refuse, false) | (Self::Note, _) => Level::Unknown,
        }
    }
}

/// Which stacks a rule is about; everything that is given must hold.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct When {
    /// Components that are all there.
    pub has: Vec<String>,
    /// The selector's family is one of these.
    pub gpu: Vec<String>,
    pub nvswitch: Option<bool>,
    pub nvlink5: Option<bool>,
    /// Modules that the stack loads.
    pub modules: Vec<String>,
}

/// What must hold.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Check {
    /// Every package of `of` has the version of `on`; or its first `parts` numbers.
    Same {
        of: Vec<String>,
        on: String,
        #[serde(default)]
        parts: Option<usize>,
        /// With epoch and revision, for makers whose level is told there.
        #[serde(default)]
        whole: bool,
    },
    /// `on` is at least what the last row says that begins at or before `of`'s version.
    Least {
        of: String,
        on: String,
        rows: Vec<LeastRow>,
    },
    /// `of` is at most what the row of `on`'s branch says.
    Most {
        of: String,
        on: String,
        rows: Vec<MostRow>,
    },
    /// A package of `of` ends with the major number of CUDA that the row of `on`'s branch says.
    CudaMajor {
        of: String,
        on: String,
        rows: Vec<MostRow>,
    },
    /// Of the components `among`, only those that the row of the GPU's family allows.
    Flavour {
        among: Vec<String>,
        rows: Vec<FlavourRow>,
    },
    /// All of these are in the stack.
    Needs(Needs),
    /// Not both.
    Apart { of: String, on: String },
    /// Every version of `of` is like this, where `*` is anything.
    Like {
        of: String,
        on: String,
        version: String,
    },
    /// `of` lies between what the row of `on`'s version says.
    Range {
        of: String,
        on: String,
        rows: Vec<RangeRow>,
    },
    /// Not these versions together.
    Never(Vec<Bad>),
    /// `of` is of the same release as `on`, or at most so many before it.
    Behind {
        of: String,
        on: String,
        series: Vec<String>,
        rows: Vec<BehindRow>,
    },
    /// Modules built on the node have the headers of every kernel; those built elsewhere are of one of its kernels.
    Kernel { dkms: String, precompiled: String },
}

/// What must be in a stack.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Needs {
    pub components: Vec<String>,
    pub modules: Vec<String>,
    pub files: Vec<String>,
    pub texts: Vec<Text>,
}

/// A text in a file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Text {
    pub path: String,
    pub text: String,
}

/// From this version on, at least that.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeastRow {
    pub from: String,
    pub least: String,
}

/// On this branch, at most that.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MostRow {
    pub branch: u64,
    pub most: String,
}

/// For these families, only these components.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlavourRow {
    pub gpu: Vec<String>,
    pub allowed: Vec<String>,
}

/// At this version, from here to there.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RangeRow {
    pub at: String,
    pub from: String,
    pub to: String,
}

/// A component at a version.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bad {
    pub component: String,
    pub version: String,
}

/// From this release on, at most so many behind.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BehindRow {
    pub from: String,
    pub most: usize,
}

/// The rules that ship.
pub fn book() -> &'static Rulebook {
    static BOOK: LazyLock<Rulebook> = LazyLock::new(|| {
        toml::from_str(include_str!("rules.toml"))
            .expect("the book that ships was read by a test of this crate")
    });
    &BOOK
}
