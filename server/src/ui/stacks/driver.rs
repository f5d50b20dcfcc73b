//! The driver of a stack, with the known facts of the driver's branch. Missing facts are shown as
//! unknown.

use jiff::Timestamp;
use muster_core::stacks::rules::{BranchKind, StackDriver, Support, find_link, judge_support};

use crate::ui::chips::{self, Chip};
use crate::ui::format;

/// The driver in a row of the list.
pub(super) struct Brief {
    /// `libcuda1 550.163.01-2`.
    pub name: String,
    /// `branch 550`.
    pub branch: String,
    /// Reasons to plan another driver.
    pub marks: Vec<Chip>,
}

/// The driver on the page of the stack.
pub(super) struct Detail {
    pub name: String,
    /// `550: production`, or `unknown`.
    pub branch: String,
    pub support: Chip,
    /// Source of the kind and of the end. Absent for an unknown branch.
    pub source: Option<Source>,
    pub fix: Option<Fix>,
    pub has_fix: Chip,
}

/// The newest known security fix of a branch.
pub(super) struct Fix {
    /// `535.309.01, reported 2026-06-01`.
    pub told: String,
    pub source: Source,
}

/// The source of a fact.
pub(super) struct Source {
    pub text: String,
    /// Address of the source. Empty for a source without an address.
    pub href: String,
}

/// Renders the driver for a row of the list.
pub(super) fn render_brief(driver: &StackDriver, now: Timestamp) -> Brief {
    let support = judge(driver, now);
    let mut marks = Vec::new();
    match support {
        Support::Ended(_) | Support::EndsSoon(_) => marks.push(chips::support(&support)),
        Support::Until(_) | Support::Unknown => {}
    }
    if driver.has_fix == Some(false) {
        marks.push(chips::fix(driver.has_fix));
    }
    let number = driver.branch.as_ref().map(|branch| branch.number);
    Brief {
        name: name_driver(driver),
        branch: number.map_or_else(
            || "branch unknown".to_owned(),
            |number| format!("branch {number}"),
        ),
        marks,
    }
}

/// Renders the driver for the page of the stack.
pub(super) fn render_detail(driver: &StackDriver, now: Timestamp) -> Detail {
    let branch = driver.branch.as_ref();
    let fix = branch.and_then(|branch| branch.fix.as_ref());
    Detail {
        name: name_driver(driver),
        branch: branch.map_or_else(
            || "unknown".to_owned(),
            |branch| {
                let kind = branch.kind.map_or("kind unknown", BranchKind::as_str);
                format!("{}: {kind}", branch.number)
            },
        ),
        support: chips::support(&judge(driver, now)),
        source: branch.map(|branch| build_source(&branch.source)),
        fix: fix.map(|fix| Fix {
            told: format!("{}, reported {}", fix.version, fix.reported),
            source: build_source(&fix.source),
        }),
        has_fix: chips::fix(driver.has_fix),
    }
}

/// Returns the support of the driver's branch. The support of an unknown branch is unknown.
fn judge(driver: &StackDriver, now: Timestamp) -> Support {
    let branch = driver.branch.as_ref();
    branch.map_or(Support::Unknown, |branch| judge_support(branch, now))
}

fn name_driver(driver: &StackDriver) -> String {
    let version = driver.version.as_deref().unwrap_or("in an open version");
    format::cut(&format!("{} {version}", driver.package), 120)
}

fn build_source(source: &str) -> Source {
    Source {
        text: source.to_owned(),
        href: find_link(source).unwrap_or_default(),
    }
}
