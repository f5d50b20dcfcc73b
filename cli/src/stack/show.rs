//! `muster stack show`: the size of a stack's closure, the effect of the packages, and the driver
//! with the known facts of the driver's branch.

use jiff::Timestamp;
use muster_core::stacks::StackSpec;
use muster_core::stacks::rules::{BranchKind, DriverBranch, StackDriver, judge_support};
use muster_core::stacks::summary::{ClosureSummary, StackSummary, summarize_stack};

use crate::client::output::Output;

/// Prints the facts of a stack, with the support of the driver as of `now`.
pub(crate) fn print_summary(
    stack: &StackSpec,
    now: Timestamp,
    output: Output,
) -> anyhow::Result<()> {
    let summary = summarize_stack(stack);
    output.print_lines(&summary, || render_summary(&summary, now))
}

fn render_summary(summary: &StackSummary, now: Timestamp) -> Vec<String> {
    let StackSummary {
        version,
        image,
        closure,
        driver,
        branches,
    } = summary;
    let mut lines = vec![format!("stack    {version} over {image}")];
    match closure {
        Some(closure) => lines.extend(render_closure(closure)),
        None => {
            lines.push("lock     none: the size is unknown until `muster stack lock`".to_owned())
        }
    }
    match driver {
        Some(driver) => {
            lines.extend(render_driver(driver, now));
            lines.push(format!("facts    driver branches of {branches}"));
        }
        None => lines.push("driver   no NVIDIA driver".to_owned()),
    }
    lines
}

fn render_closure(closure: &ClosureSummary) -> [String; 3] {
    [
        format!("lock     {}", closure.lock),
        format!(
            "packages {} ({} MB)",
            closure.packages,
            closure.bytes / 1_000_000
        ),
        format!("effect   {}", closure.describe_effect()),
    ]
}

fn render_driver(driver: &StackDriver, now: Timestamp) -> [String; 3] {
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
        format!(
            "branch   {}",
            branch.map_or_else(unknown, |branch| describe_branch(branch, now))
        ),
        format!("fix      {}", fix.unwrap_or_else(unknown)),
    ]
}

fn describe_branch(branch: &DriverBranch, now: Timestamp) -> String {
    let kind = branch.kind.map_or("kind unknown", BranchKind::as_str);
    let support = judge_support(branch, now).describe();
    format!("{}: {kind}, {support} ({})", branch.number, branch.source)
}

#[cfg(test)]
mod tests {
    use muster_core::stacks::rules::branch_table;
    use serde_json::json;

    use super::*;

    fn shown(libcuda1: &str) -> StackSummary {
        let digest = muster_core::values::Digest::of(b"");
        let stack = json!({
            "version": "3", "image": "debian-12", "packages": { "libcuda1": libcuda1 },
            "lock": { "image_digest": digest, "arch": "amd64", "packages": [
                { "name": "libcuda1", "version": libcuda1, "arch": "amd64", "size": 2_000_000, "sha256": digest,
                  "filename": "libcuda1.deb" },
            ] },
        });
        summarize(&stack)
    }

    fn summarize(stack: &serde_json::Value) -> StackSummary {
        summarize_stack(&serde_json::from_value(stack.clone()).unwrap())
    }

    fn render(summary: &StackSummary) -> Vec<String> {
        render_summary(summary, "2026-11-30T12:00:00Z".parse().unwrap())
    }

    #[test]
    fn a_locked_stack_is_shown_with_size_effect_and_driver() {
        let lines = render(&shown("535.274.02-1~deb13u1"));
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
        let near = render_summary(
            &shown("595.71.05-1"),
            "2027-01-15T00:00:00Z".parse().unwrap(),
        );
        assert!(near[5].contains("support ends in 2027-03 ("), "{near:#?}");
    }

    #[test]
    fn unknown_facts_are_shown_as_unknown() {
        let lines = render(&shown("550.163.01-2"));
        assert!(
            lines[5].starts_with("branch   550: kind unknown, support has ended ("),
            "{lines:#?}"
        );
        assert_eq!(lines[6], "fix      unknown");
        let open = json!({ "version": "1", "image": "i", "packages": { "libcuda1": "*" } });
        let lines = render(&summarize(&open));
        assert!(lines[1].starts_with("lock     none"), "{lines:#?}");
        assert!(lines[2].contains("in an unknown version"), "{lines:#?}");
        assert_eq!(lines[3], "branch   unknown");
        let plain = json!({ "version": "1", "image": "i", "packages": {} });
        assert_eq!(render(&summarize(&plain))[2], "driver   no NVIDIA driver");
    }
}
