//! Branches of NVIDIA's driver: the kind, the end of support, and the newest security fix known to
//! the table. Facts without a source are unknown.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::book::book;
use super::packages::{Packages, Subject};
use super::version::{compare, numbers};
use crate::stacks::StackSpec;

/// The complete content of `branches.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BranchTable {
    /// Date of the facts in the table.
    pub version: String,
    pub branches: Vec<DriverBranch>,
}

/// A branch of the driver: all versions with the same first number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DriverBranch {
    pub number: u64,
    /// Absent: no source names the kind.
    pub kind: Option<BranchKind>,
    /// Month of the end of support, as `2026-06`. Absent: no source names the month.
    pub ends: Option<String>,
    /// Whether the source names the branch as ended, without a month.
    #[serde(default)]
    pub is_ended: bool,
    /// Source of the kind and of the end.
    pub source: String,
    /// The newest security fix. Absent: no source names a fix.
    pub fix: Option<SecurityFix>,
}

/// The kind of a driver branch, in NVIDIA's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum BranchKind {
    LongTermSupport,
    Production,
    NewFeature,
}

impl BranchKind {
    /// Returns the name of the kind for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LongTermSupport => "long-term support",
            Self::Production => "production",
            Self::NewFeature => "new feature",
        }
    }
}

/// A driver version with fixes of a security bulletin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SecurityFix {
    pub version: String,
    /// Day of the report in the source, as `2026-06-01`.
    pub reported: String,
    pub source: String,
}

/// The driver of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StackDriver {
    /// A package of the driver.
    pub package: String,
    /// Absent: the stack leaves the version open.
    pub version: Option<String>,
    /// Absent: the version is open, or the branch is missing in the table.
    pub branch: Option<DriverBranch>,
    /// Whether the version has the newest known fix of its branch. Absent: unknown.
    pub has_fix: Option<bool>,
}

/// Returns the table shipped with the program.
pub fn branch_table() -> &'static BranchTable {
    static TABLE: LazyLock<BranchTable> = LazyLock::new(|| {
        toml::from_str(include_str!("branches.toml"))
            .expect("a test of the crate reads the shipped table")
    });
    &TABLE
}

/// Returns the stack's NVIDIA driver, from the lock or from the wanted packages. `None` for a stack
/// without a driver.
pub fn find_driver(stack: &StackSpec) -> Option<StackDriver> {
    let subject = Subject {
        stack,
        image: None,
        facts: None,
    };
    let parts = Packages::of(book(), subject).component("driver");
    let known = parts.iter().find(|part| part.version.is_some());
    let part = known.or(parts.first())?;
    let branch = part.version.as_deref().and_then(find_branch).cloned();
    let fix = branch.as_ref().and_then(|branch| branch.fix.as_ref());
    let has_fix = fix
        .zip(part.version.as_deref())
        .map(|(fix, version)| compare(version, &fix.version).is_ge());
    Some(StackDriver {
        package: part.name.clone(),
        version: part.version.clone(),
        branch,
        has_fix,
    })
}

fn find_branch(version: &str) -> Option<&'static DriverBranch> {
    let number = numbers(version).first().copied()?;
    let mut branches = branch_table().branches.iter();
    branches.find(|branch| branch.number == number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn driver_of(packages: &serde_json::Value) -> Option<StackDriver> {
        let stack = json!({ "version": "1", "image": "i", "packages": packages });
        find_driver(&serde_json::from_value(stack).expect("a stack"))
    }

    #[test]
    fn branches_are_in_order_and_have_sources_and_plain_dates() {
        let table = branch_table();
        assert!(
            table
                .branches
                .is_sorted_by(|before, after| before.number < after.number)
        );
        let is_date = |text: &str, length: usize| {
            text.len() == length && text.starts_with("20") && text.split('-').all(is_number)
        };
        for branch in &table.branches {
            assert!(!branch.source.is_empty(), "{branch:?}");
            assert!(branch.ends.is_some() != branch.is_ended, "{branch:?}");
            let ends = branch.ends.as_deref();
            assert!(ends.is_none_or(|month| is_date(month, 7)), "{branch:?}");
            if let Some(fix) = &branch.fix {
                let number = numbers(&fix.version).first().copied();
                assert_eq!(number, Some(branch.number), "{branch:?}");
                assert!(is_date(&fix.reported, 10), "{branch:?}");
                assert!(!fix.source.is_empty(), "{branch:?}");
            }
        }
    }

    /// Readers of the API skip unknown fields of a branch, so a typing error in the table is found
    /// here.
    #[test]
    fn the_table_has_no_unknown_field() {
        let table: toml::Value = toml::from_str(include_str!("branches.toml")).expect("TOML");
        let allowed = ["number", "kind", "ends", "is_ended", "source", "fix"];
        let of_fix = ["version", "reported", "source"];
        for branch in table["branches"].as_array().expect("a list") {
            let fields = branch.as_table().expect("a table");
            for field in fields.keys() {
                assert!(allowed.contains(&field.as_str()), "{field}: {branch}");
            }
            let fix = fields.get("fix").and_then(toml::Value::as_table);
            for field in fix.iter().flat_map(|fix| fix.keys()) {
                assert!(of_fix.contains(&field.as_str()), "{field}: {branch}");
            }
        }
    }

    fn is_number(part: &str) -> bool {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())
    }

    #[test]
    fn a_driver_has_the_fix_of_its_branch_lacks_the_fix_or_is_unknown() {
        for (version, has_fix) in [
            ("535.309.01-0+deb12u1", Some(true)),
            ("535.274.02-1~deb13u1", Some(false)),
            ("580.159.03-1", Some(true)),
            // An ended branch without a known fix, and a branch that is not in the table.
            ("550.163.01-2", None),
            ("999.1-1", None),
        ] {
            let driver = driver_of(&json!({ "libcuda1": version })).expect("a driver");
            assert_eq!(driver.has_fix, has_fix, "{version}");
            assert_eq!(driver.version.as_deref(), Some(version));
        }
        let old = driver_of(&json!({ "libcuda1": "550.163.01-2" })).expect("a driver");
        let branch = old.branch.expect("a branch");
        assert!(branch.is_ended && branch.kind.is_none() && branch.ends.is_none());
    }

    #[test]
    fn an_open_version_is_unknown_and_no_driver_is_none() {
        let open = driver_of(&json!({ "libcuda1": "*", "chrony": "4.3-2" })).expect("a driver");
        assert_eq!(
            (open.version, open.branch, open.has_fix),
            (None, None, None)
        );
        let known = json!({ "libcuda1": "*", "nvidia-smi": "535.309.01-0+deb12u1" });
        let known = driver_of(&known).expect("a driver");
        assert_eq!(known.package, "nvidia-smi");
        assert_eq!(driver_of(&json!({ "chrony": "4.3-2" })), None);
    }
}
