//! Groups of alternatives that select the driver's files on Debian. A switch by hand separates
//! module and user space, or leaves modprobe without its settings. The wanted value is the best
//! value of the installed packages.

use std::time::Duration;

use muster_core::stacks::ConvergePlan;
use muster_core::wire::node::{Failure, FailureCode};

use super::damage;
use super::item::Item;
use crate::job::JobContext;
use crate::machine::Machine;

/// `glx` has modprobe's settings, `nvidia` the libraries, the programs and the module's name.
const GROUPS: [&str; 2] = ["glx", "nvidia"];
/// Folder of the known groups.
const KNOWN: &str = "/var/lib/dpkg/alternatives";
const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns an item for each known group, if the plan has a driver.
///
/// # Errors
/// `packages_failed` when update-alternatives gives no answer, or the failure of the program.
pub(super) fn items(
    machine: &Machine,
    plan: &ConvergePlan,
    cx: &JobContext,
) -> Result<Vec<Item>, Failure> {
    let mut items = Vec::new();
    let has_driver = plan
        .packages
        .iter()
        .any(|package| damage::is_of_driver(&package.name));
    let is_known = |group: &&str| machine.path(&format!("{KNOWN}/{group}")).exists();
    for group in GROUPS
        .into_iter()
        .filter(|group| has_driver && is_known(group))
    {
        let argv = ["update-alternatives", "--query", group];
        let said = machine.output(cx, FailureCode::PackagesFailed, &argv, TIMEOUT)?;
        items.extend(read_group(group, &String::from_utf8_lossy(&said)));
    }
    Ok(items)
}

/// Sets each differing group to its best value.
///
/// # Errors
/// As [`items`].
pub(super) fn apply(
    machine: &Machine,
    plan: &ConvergePlan,
    cx: &JobContext,
) -> Result<(), Failure> {
    for item in items(machine, plan, cx)?.iter().filter(|item| !item.fits) {
        let Some(group) = item.name.strip_prefix("alternative ") else {
            continue;
        };
        let argv = ["update-alternatives", "--auto", group];
        cx.uncut(|| machine.output(cx, FailureCode::PackagesFailed, &argv, TIMEOUT))?;
        cx.log(&format!("alternative {group} is {} again", item.wanted));
    }
    Ok(())
}

/// Reads the best and the present value of a group; `None` for a group without a value.
fn read_group(group: &str, said: &str) -> Option<Item> {
    let field = |name: &str| {
        let mut lines = said.lines();
        lines.find_map(|line| line.strip_prefix(name).map(str::trim))
    };
    let best = field("Best:")?;
    let present = field("Value:").map(str::to_owned);
    Some(Item::new(format!("alternative {group}"), best, present))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_present_value_is_compared_with_the_best() {
        let said = "Name: glx\nLink: /usr/lib/glx\nStatus: manual\nBest: /usr/lib/nvidia\n\
            Value: /usr/lib/mesa-diverted\n\nAlternative: /usr/lib/nvidia\nPriority: 100\n";
        let item = read_group("glx", said).expect("a group");
        assert_eq!(
            (item.name.as_str(), item.wanted.as_str(), item.fits),
            ("alternative glx", "/usr/lib/nvidia", false)
        );
        assert_eq!(item.found.as_deref(), Some("/usr/lib/mesa-diverted"));
        let auto = said.replace("Value: /usr/lib/mesa-diverted", "Value: /usr/lib/nvidia");
        assert!(read_group("glx", &auto).is_some_and(|item| item.fits));
        assert_eq!(read_group("glx", "Name: glx\nStatus: auto\n"), None);
    }
}
