//! `muster stack show`: the size of a stack's closure, the effect of the packages, and the driver
//! with the known facts of the driver's branch.

use muster_core::stacks::StackSpec;
use muster_core::stacks::rules::{BranchKind, DriverBranch, StackDriver, branch_table};
use muster_core::stacks::summary::{ClosureSummary, StackSummary, summarize_stack};
use serde::Serialize;

use crate::client::output::Output;

/// Most packages named with the effect.
const NAMED: usize = 5;

#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    summary: StackSummary,
    /// Date of the facts about driver branches.
    branches: &'static str,
}

/// Prints the facts of a stack.
pub(crate) fn print_summary(stack: &StackSpec, output: Output) -> anyhow::Result<()> {
    let shown = summarize_for_people(stack);
    output.print_lines(&shown, || render_summary(&shown))
}

fn summarize_for_people(stack: &StackSpec) -> Shown {
    Shown {
        summary: summarize_stack(stack),
        branches: &branch_table().version,
    }
}

fn render_summary(shown: &Shown) -> Vec<String> {
    let StackSummary {
        version,
        image,
        closure,
        driver,
    } = &shown.summary;
    let mut lines = vec![format!("stack    {version} over {image}")];
    match closure {
        Some(closure) => lines.extend(render_closure(closure)),
        None => {
            lines.push("lock     none: the size is unknown until `muster stack lock`".to_owned())
        }
    }
    match driver {
        Some(driver) => {
            lines.extend(render_driver(driver));
            lines.push(format!("facts    driver branches of {}", shown.branches));
        }
        None => lines.push("driver   no NVIDIA driver".to_owned()),
    }
    lines
}

fn render_closure(closure: &ClosureSummary) -> [String; 3] {
    let named: Vec<&str> = closure
        .dearest
        .iter()
        .take(NAMED)
        .map(String::as_str)
        .collect();
    let more = match closure.dearest.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let dearest = match named.is_empty() {
        true => String::new(),
        false => format!(": {}{more}", named.join(", ")),
    };
    [
        format!("lock     {}", closure.lock),
        format!(
            "packages {} ({} MB)",
            closure.packages,
            closure.bytes / 1_000_000
        ),
        format!("effect   {}{dearest}", closure.class.as_str()),
    ]
}

fn render_driver(driver: &StackDriver) -> [String; 3] {
    let unknown = || "unknown".to_owned();
    let version = driver.version.as_deref();
    let version = version.unwrap_or("in an unknown version: the stack leaves the version open");
    let branch = driver.branch.as_ref();
    let has_fix = match driver.has_fix {
        Some(true) => "this driver has the fix",
        Some(false) => "this driver lacks the fix",
        None => "unknown whether this driver has the fix",
    };
    let fix = branch.and_then(|branch| branch.fix.as_ref()).map(|fix| {
        let (version, day, source) = (&fix.version, &fix.reported, &fix.source);
        format!("{version}, reported {day} ({source}): {has_fix}")
    });
    [
        format!("driver   {} {version}", driver.package),
        format!("branch   {}", branch.map_or_else(unknown, describe_branch)),
        format!("fix      {}", fix.unwrap_or_else(unknown)),
    ]
}

fn describe_branch(branch: &DriverBranch) -> String {
    let kind = branch.kind.map_or("kind unknown", BranchKind::as_str);
    // The table's version is the date of the facts, such as 2026-11-30.
    let of_facts = branch_table().version.get(..7).unwrap_or_default();
    let end = match (branch.ends.as_deref(), branch.is_ended) {
        (Some(month), _) if month < of_facts => format!("support ended in {month}"),
        (Some(month), _) => format!("supported until {month}"),
        (None, true) => "support has ended".to_owned(),
        (None, false) => "end of support unknown".to_owned(),
    };
    format!("{}: {kind}, {end} ({})", branch.number, branch.source)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(libcuda1: &str) -> Shown {
        let digest = muster_core::values::Digest::of(b"");
        let stack = json!({
            "version": "3", "image": "debian-12", "packages": { "libcuda1": libcuda1 },
            "lock": { "image_digest": digest, "arch": "amd64", "packages": [
                { "name": "libcuda1", "version": libcuda1, "arch": "amd64", "size": 2_000_000, "sha256": digest,
                  "filename": "libcuda1.deb" },
            ] },
        });
        summarize_for_people(&serde_json::from_value(stack).unwrap())
    }

    #[test]
    fn a_locked_stack_is_shown_with_size_effect_and_driver() {
        let lines = render_summary(&shown("535.274.02-1~deb13u1"));
        for (at, words) in [
            (0, "stack    3 over debian-12"),
            (2, "packages 1 (2 MB)"),
            (3, "effect   driver reload: libcuda1"),
            (4, "driver   libcuda1 535.274.02-1~deb13u1"),
            (
                5,
                "branch   535: long-term support, support ended in 2026-06 (",
            ),
            (
                6,
                "fix      535.309.01, reported 2026-06-01 (flatcar/Flatcar#2155): this driver lacks the fix",
            ),
        ] {
            assert!(lines[at].starts_with(words), "{words}: {lines:#?}");
        }
        let document = serde_json::to_value(shown("535.309.01-0+deb12u1")).unwrap();
        assert_eq!(document["driver"]["has_fix"], true);
        assert_eq!(document["closure"]["bytes"], 2_000_000);
        assert_eq!(document["branches"], branch_table().version.as_str());
    }

    #[test]
    fn a_branch_is_supported_in_the_month_of_its_end() {
        let version = &branch_table().version;
        let describe = |ends: &str| {
            describe_branch(&DriverBranch {
                ends: Some(ends.to_owned()),
                ..branch_table().branches[0].clone()
            })
        };
        assert!(describe(&version[..7]).contains(&format!("supported until {}", &version[..7])));
        assert!(describe("2020-12").contains("support ended in 2020-12"));
    }

    #[test]
    fn unknown_facts_are_shown_as_unknown() {
        let lines = render_summary(&shown("550.163.01-2"));
        assert!(
            lines[5].starts_with("branch   550: kind unknown, support has ended ("),
            "{lines:#?}"
        );
        assert_eq!(lines[6], "fix      unknown");
        let open = json!({ "version": "1", "image": "i", "packages": { "libcuda1": "*" } });
        let open = summarize_for_people(&serde_json::from_value(open).unwrap());
        let lines = render_summary(&open);
        assert!(lines[1].starts_with("lock     none"), "{lines:#?}");
        assert!(lines[2].contains("in an unknown version"), "{lines:#?}");
        assert_eq!(lines[3], "branch   unknown");
        let plain = json!({ "version": "1", "image": "i", "packages": {} });
        let plain = summarize_for_people(&serde_json::from_value(plain).unwrap());
        assert_eq!(render_summary(&plain)[2], "driver   no NVIDIA driver");
    }
}
