//! Libraries named by a gate: known to the loader, and present as files.

use std::collections::BTreeSet;

use muster_core::gates::Gate;

use super::ldconfig::{self, Library};
use crate::gates::parsers::{Bench, Reading, scan};
use crate::machine::Machine;

pub(in crate::gates::parsers) fn measure(
    gate: &Gate,
    bench: &Bench<'_>,
) -> Result<Reading, String> {
    count_files(gate, &ldconfig::list(bench)?, &bench.machine)
}

/// Counts the files of every library named by a criterion.
fn count_files(gate: &Gate, listed: &[Library], machine: &Machine) -> Result<Reading, String> {
    let named = gate.criteria.iter();
    let named: BTreeSet<&str> = named
        .filter_map(|criterion| criterion.of.as_deref())
        .collect();
    if named.is_empty() {
        return Err("no criterion names a library: write `of = \"libcuda.so.1\"`".into());
    }
    let mut reading = Reading::default();
    for name in named {
        let listed = listed.iter().filter(|library| library.name == name);
        let paths: BTreeSet<&str> = listed.map(|library| library.path.as_str()).collect();
        let (there, gone): (Vec<&str>, Vec<&str>) = paths
            .into_iter()
            .partition(|path| machine.path(path).is_file());
        if there.is_empty() && gone.is_empty() {
            let name = scan::word(name);
            reading
                .notes
                .push(format!("{name} is not in ldconfig's list"));
        }
        let gone = gone.into_iter().map(scan::word);
        reading
            .notes
            .extend(gone.map(|path| format!("ldconfig lists {path}, and the file is missing")));
        reading.count_of("library.files", name, there.len());
    }
    Ok(reading)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A gate with criteria.
    fn gate(criteria: &str) -> Gate {
        let text = format!(
            "id = \"a\"\ntitle = \"t\"\nfinding = \"f\"\nstage = \"software\"\nparser = \"libraries\"\n\
             timeout_s = 5\ncriteria = [{criteria}]\n"
        );
        toml::from_str(&text).expect("a gate")
    }

    #[test]
    fn a_library_without_a_file_and_a_library_without_a_line_are_missing() {
        let root = tempfile::tempdir().expect("a folder");
        for name in ["libcuda.so.1", "libother.so.1"] {
            std::fs::write(root.path().join(name), "").expect("a file");
        }
        let library = |name: &str| Library {
            name: name.into(),
            path: format!("/{name}"),
        };
        let listed = ["libcuda.so.1", "libcuda.so.1", "libnvidia-ml.so.1"].map(library);
        let of = |name: &str| {
            format!(
                "{{ metric = \"library.files\", of = \"{name}\", op = \">=\", limit = 1, unit = \"files\" }}, "
            )
        };
        let names = ["libcuda.so.1", "libnvidia-ml.so.1", "libnccl.so.2"];
        let criteria: String = names.into_iter().map(of).collect();
        let named = gate(&criteria);
        let machine = Machine::at(root.path());
        let reading = count_files(&named, &listed, &machine).expect("a reading");
        let found = names.map(|name| reading.number("library.files", name));
        assert_eq!(found, [Some(1.0), Some(0.0), Some(0.0)]);
        let notes = [
            "libnccl.so.2 is not in ldconfig's list",
            "ldconfig lists /libnvidia-ml.so.1, and the file is missing",
        ];
        assert_eq!(reading.notes, notes);
        let why = count_files(&gate(""), &listed, &machine).expect_err("no library");
        assert!(why.contains("write `of"), "{why}");
    }
}
