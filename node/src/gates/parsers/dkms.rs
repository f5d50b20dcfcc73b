//! Checks with `dkms status` that every module built on the node is installed for the running
//! kernel. A module only added or built is missing after the next boot, and no other gate reports
//! the loss.

use std::collections::BTreeMap;

use super::{Bench, Reading, scan};
use crate::converge::dkms::{Line, TREE, parse_line, status};

const RELEASE_MAX: u64 = 4096;

/// Returns the reason to skip the gate on a node without dkms modules.
pub(super) fn absent(bench: &Bench<'_>) -> Option<String> {
    let modules = std::fs::read_dir(bench.machine.path(TREE))
        .map(|folder| folder.flatten().any(|one| is_folder(&one)));
    match modules {
        Ok(true) => None,
        Ok(false) => Some("dkms has no module".into()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Some("dkms has no module".into())
        }
        // An unreadable folder may contain modules. The gate runs, and the measurement fails with
        // the reason.
        Err(_) => None,
    }
}

fn is_folder(entry: &std::fs::DirEntry) -> bool {
    entry.file_type().is_ok_and(|kind| kind.is_dir())
}

pub(super) fn measure(bench: &Bench<'_>) -> Result<Reading, String> {
    let running = bench
        .machine
        .read("/proc/sys/kernel/osrelease", RELEASE_MAX)
        .map_err(|failure| failure.message)?;
    let running = running.ok_or("there is no /proc/sys/kernel/osrelease")?;
    let said = status(&bench.machine, bench.cx).map_err(|failure| failure.message)?;
    let said = std::str::from_utf8(&said).map_err(|_| "the answer of dkms is not UTF-8")?;
    read(said, String::from_utf8_lossy(&running).trim())
}

/// Compares the output of dkms with the running kernel. Counts a module once, whichever of its
/// versions is installed.
fn read(said: &str, running: &str) -> Result<Reading, String> {
    let mut modules: BTreeMap<&str, Vec<Line<'_>>> = BTreeMap::new();
    for text in said.lines() {
        let one =
            parse_line(text).ok_or_else(|| format!("{:?} is not understood", scan::word(text)))?;
        modules.entry(one.module).or_default().push(one);
    }
    if modules.is_empty() {
        return Err("dkms has modules, and tells of none".into());
    }
    let mut reading = Reading::default();
    let (mut missing, mut changed) = (0, 0);
    for (module, lines) in &modules {
        let here = || lines.iter().filter(|line| line.kernel == Some(running));
        match here().find(|line| line.state.starts_with("installed")) {
            Some(line) if line.beside.contains("Diff") => {
                changed += 1;
                reading.notes.push(format!(
                    "{} differs from what was built",
                    scan::word(module)
                ));
            }
            Some(_) => {}
            None => {
                missing += 1;
                let broken = lines.iter().find(|line| line.state == "broken");
                let line = broken.or_else(|| here().next());
                let state = line.map_or("not built", |line| line.state);
                reading.notes.push(format!(
                    "{} is {state} for {running}, not installed",
                    scan::word(module)
                ));
            }
        }
    }
    reading.count("dkms.modules", modules.len());
    reading.count("dkms.missing", missing);
    reading.count("dkms.changed", changed);
    Ok(reading)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = include_str!("../../../fixtures/dkms-3.0.10-status.txt");
    const CHANGED: &str = include_str!("../../../fixtures/dkms-3.0.10-status-changed.txt");

    fn counts(said: &str, running: &str) -> Result<[f64; 3], String> {
        let reading = read(said, running)?;
        let number = |metric| reading.number(metric, "").expect("it is measured");
        Ok([
            number("dkms.modules"),
            number("dkms.missing"),
            number("dkms.changed"),
        ])
    }

    #[test]
    fn only_what_is_installed_for_the_running_kernel_is_there() {
        assert_eq!(counts(STATUS, "6.1.0-40-amd64"), Ok([3.0, 2.0, 0.0]));
        let notes = read(STATUS, "6.1.0-40-amd64").expect("it is read").notes;
        let told = [
            "other is built for 6.1.0-40-amd64, not installed",
            "third is not built for 6.1.0-40-amd64, not installed",
        ];
        assert_eq!(notes, told);
        assert_eq!(
            counts(STATUS, "6.1.0-41-amd64"),
            Ok([3.0, 3.0, 0.0]),
            "a kernel that nothing was built for"
        );
        assert_eq!(counts(CHANGED, "6.1.0-40-amd64"), Ok([3.0, 1.0, 1.0]));
    }

    #[test]
    fn a_module_without_its_sources_is_missing() {
        let reading = read("demo/1.0: broken\n", "6.1.0-40-amd64").expect("it is read");
        assert_eq!(reading.number("dkms.missing", ""), Some(1.0));
        let note = "demo is broken for 6.1.0-40-amd64, not installed";
        assert_eq!(reading.notes, [note]);
    }

    #[test]
    fn older_releases_write_it_otherwise() {
        // dkms 2, as posted with reports of NVIDIA's and other drivers.
        let said = "nvidia, 396.44, 3.10.0-862.3.2.el7.x86_64, x86_64: installed (WARNING! Diff between built and installed module!)\n\
                    nvidia, 440.31, 3.10.0-862.3.2.el7.x86_64, x86_64: built\n\
                    bbswitch, 0.8: added\n";
        assert_eq!(
            counts(said, "3.10.0-862.3.2.el7.x86_64"),
            Ok([2.0, 1.0, 1.0])
        );
    }

    #[test]
    fn what_is_not_understood_is_no_answer() {
        for said in [
            "",
            "demo/1.0",
            "demo/1.0: sleeping",
            "demo/1.0: installed",
            "demo/1.0, 6.1.0-40-amd64: installed",
            "Error! dkms.conf is missing",
            "/1.0: added",
            "demo: added",
        ] {
            assert!(read(said, "6.1.0-40-amd64").is_err(), "{said:?}");
        }
    }
}
