//! Reservations keep long jobs away from nodes waiting for a change. A floating reservation always
//! begins a fixed time from now, so a job starts only with a shorter time limit. Muster's reservations
//! are known by name, so a new process repairs the reservations of a killed process.

use std::collections::BTreeMap;

use muster_core::wire::scheduler::Wait;

use super::error::SlurmError;
use super::hostlist::expand;
use super::{Controller, includes};

/// The start of the names of Muster's reservations. Reservations of other owners are left alone.
const PREFIX: &str = "muster-wait-";
/// Nodes of a reservation. A command line has a limit.
const NODES: usize = 500;
/// Largest number of names in a reservation.
const NAMES: usize = 400_000;
/// Any length: the start of a floating reservation never comes.
const DURATION: &str = "Duration=1-00:00:00";
/// `IGNORE_JOBS` accepts nodes with running jobs, `OVERLAP` nodes with other reservations.
const FLAGS: &str = "Flags=TIME_FLOAT,IGNORE_JOBS,OVERLAP";

/// Sorted nodes by the name of their reservation.
type Reservations = BTreeMap<String, Vec<String>>;

impl Controller {
    /// Makes Muster's reservations those of the waiting nodes.
    ///
    /// # Errors
    /// [`SlurmError`]. The other reservations of the call are still made.
    pub async fn reserve(&self, waits: &[Wait]) -> Result<(), SlurmError> {
        let wanted = plan(waits)?;
        let present = read(&self.scontrol(&["show", "reservations", "-o"]).await?)?;
        let mut result = Ok(());
        for change in compare(&present, &wanted) {
            let arguments: Vec<&str> = change.iter().map(String::as_str).collect();
            // A refused change, for example with a removed node, stops no other change.
            result = result.and(self.scontrol(&arguments).await.map(|_| ()));
        }
        result
    }
}

/// Returns the reservations for the waiting nodes.
fn plan(waits: &[Wait]) -> Result<Reservations, SlurmError> {
    let mut wanted = Reservations::new();
    for Wait { lead_s, nodes } in waits {
        for name in nodes {
            includes::word("node name", name)?;
        }
        for (part, nodes) in nodes.chunks(NODES).enumerate() {
            let mut nodes = nodes.to_vec();
            nodes.sort_unstable();
            wanted.insert(format!("{PREFIX}{lead_s}-{part}"), nodes);
        }
    }
    Ok(wanted)
}

/// Parses a line per reservation. Only reservations of Muster are returned.
fn read(text: &str) -> Result<Reservations, SlurmError> {
    let mut present = Reservations::new();
    for line in text.lines() {
        let field = |name: &str| {
            let mut words = line.split_whitespace();
            words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
        };
        let Some(name) = field("ReservationName").filter(|name| name.starts_with(PREFIX)) else {
            continue;
        };
        let nodes = field("Nodes").and_then(|list| expand(list, NAMES));
        let mut nodes = nodes.ok_or_else(|| SlurmError::Garbage {
            what: format!("the nodes of {name}: {line:?}"),
        })?;
        nodes.sort_unstable();
        present.insert(name.to_owned(), nodes);
    }
    Ok(present)
}

/// Returns the arguments of scontrol for each difference.
fn compare(present: &Reservations, wanted: &Reservations) -> Vec<Vec<String>> {
    let named = |name: &str| format!("ReservationName={name}");
    let gone = present.keys().filter(|name| !wanted.contains_key(*name));
    let mut changes: Vec<Vec<String>> = gone
        .map(|name| vec!["delete".to_owned(), named(name)])
        .collect();
    for (name, nodes) in wanted {
        let list = format!("Nodes={}", nodes.join(","));
        match present.get(name) {
            Some(held) if held == nodes => {}
            Some(_) => changes.push(vec!["update".to_owned(), named(name), list]),
            None => changes.push(create(name, list)),
        }
    }
    changes
}

fn create(name: &str, list: String) -> Vec<String> {
    let lead = name
        .strip_prefix(PREFIX)
        .and_then(|rest| rest.split('-').next());
    let start = format!("StartTime=now+{}seconds", lead.unwrap_or_default());
    [
        "create",
        "reservation",
        &format!("ReservationName={name}"),
        &list,
        &start,
    ]
    .into_iter()
    .chain([DURATION, "Users=root", FLAGS])
    .map(str::to_owned)
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Printed by scontrol of 22.05.8 (Debian 12): a reservation of Muster, and one of another owner.
    const SHOWN: &str = "\
ReservationName=muster-wait-900-0 StartTime=2026-11-26T17:12:26 EndTime=2026-11-27T17:12:26 Duration=1-00:00:00 Nodes=n[1-2] NodeCnt=2 CoreCnt=4 Features=(null) PartitionName=(null) Flags=OVERLAP,IGNORE_JOBS,SPEC_NODES,TIME_FLOAT TRES=cpu=4 Users=root Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)
ReservationName=other StartTime=2026-11-26T17:12:26 EndTime=2026-11-26T18:12:26 Duration=01:00:00 Nodes=n4 NodeCnt=1 CoreCnt=2 Features=(null) PartitionName=(null) Flags=OVERLAP,IGNORE_JOBS,SPEC_NODES,TIME_FLOAT TRES=cpu=2 Users=root Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)
";

    fn wait(lead_s: u32, nodes: &[&str]) -> Wait {
        Wait {
            lead_s,
            nodes: nodes.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    fn changes(shown: &str, waits: &[Wait]) -> Vec<String> {
        let changes = compare(&read(shown).unwrap(), &plan(waits).unwrap());
        changes.iter().map(|change| change.join(" ")).collect()
    }

    #[test]
    fn only_differences_of_our_own_reservations_are_changed() {
        let none = "No reservations in the system\n";
        assert_eq!(
            changes(none, &[wait(900, &["n2", "n1"])]),
            [
                "create reservation ReservationName=muster-wait-900-0 Nodes=n1,n2 StartTime=now+900seconds \
                 Duration=1-00:00:00 Users=root Flags=TIME_FLOAT,IGNORE_JOBS,OVERLAP"
            ]
        );
        assert!(changes(SHOWN, &[wait(900, &["n2", "n1"])]).is_empty());
        assert_eq!(
            changes(SHOWN, &[wait(900, &["n3"])]),
            ["update ReservationName=muster-wait-900-0 Nodes=n3"]
        );
        assert_eq!(
            changes(SHOWN, &[]),
            ["delete ReservationName=muster-wait-900-0"]
        );
        assert!(changes(none, &[]).is_empty());
    }

    #[test]
    fn a_list_in_a_name_and_unreadable_nodes_are_refused() {
        assert!(plan(&[wait(900, &["n1,n2"])]).is_err());
        assert!(read("ReservationName=muster-wait-900-0 Nodes=n[1-").is_err());
        let many: Vec<String> = (0..1001).map(|number| format!("n{number}")).collect();
        let waits = [Wait {
            lead_s: 60,
            nodes: many,
        }];
        let names: Vec<String> = plan(&waits).unwrap().into_keys().collect();
        let expected = ["muster-wait-60-0", "muster-wait-60-1", "muster-wait-60-2"];
        assert_eq!(names, expected);
    }
}
