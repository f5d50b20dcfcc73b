//! Reservations keep long jobs away from nodes waiting for a change. A floating reservation always
//! begins a fixed time from now, so a job starts only with a shorter time limit. A reservation at the
//! opening of a maintenance window lets jobs start that end before. Muster's reservations are known by
//! name, so a new process repairs the reservations of a killed process.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_core::wire::scheduler::{ClusterWaits, Wait, WindowWait};

use super::error::SlurmError;
use super::hostlist::expand;
use super::{Controller, includes};

/// The start of the names of Muster's reservations. Reservations of other owners are left alone.
const PREFIX: &str = "muster-wait-";
/// The begin of each line about a reservation.
const NAME: &str = "ReservationName=";
/// Nodes of a reservation. A command line has a limit.
const NODES: usize = 500;
/// Largest number of names in a reservation.
const NAMES: usize = 400_000;
/// Any length: the start of a floating reservation never comes.
const FLOATING: &str = "Duration=1-00:00:00";
/// Time after the opening in which no job starts, if no agent removes the reservation before.
const AT_OPENING: &str = "Duration=02:00:00";
/// `IGNORE_JOBS` accepts nodes with running jobs, `OVERLAP` nodes with other reservations.
const FLAGS: &str = "Flags=IGNORE_JOBS,OVERLAP";
const FLOATING_FLAGS: &str = "Flags=TIME_FLOAT,IGNORE_JOBS,OVERLAP";

/// Sorted nodes by the name of their reservation.
type Reservations = BTreeMap<String, Vec<String>>;

/// The start of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// This many seconds from now, at any time.
    Floating(u32),
    At(Timestamp),
}

/// A reservation to make.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    start: Start,
    /// Sorted names.
    nodes: Vec<String>,
}

impl Controller {
    /// Makes Muster's reservations those of the waiting nodes.
    ///
    /// # Errors
    /// [`SlurmError`] without the names of nodes, whose readers may see other nodes only. The other
    /// reservations of the call are still made.
    pub async fn reserve(&self, waits: &ClusterWaits, now: Timestamp) -> Result<(), SlurmError> {
        let result = self.make_reservations(waits, now).await;
        result.map_err(hide_nodes)
    }

    async fn make_reservations(
        &self,
        waits: &ClusterWaits,
        now: Timestamp,
    ) -> Result<(), SlurmError> {
        let wanted = plan(waits)?;
        let present = read(&self.scontrol(&["show", "reservations", "-o"]).await?)?;
        let mut result = Ok(());
        for change in compare(&present, &wanted, now) {
            let arguments: Vec<&str> = change.iter().map(String::as_str).collect();
            // A refused change, for example with a removed node, stops no other change.
            result = result.and(self.scontrol(&arguments).await.map(drop));
        }
        result
    }
}

fn hide_nodes(error: SlurmError) -> SlurmError {
    let hide = |command: String| {
        let words = command
            .split(' ')
            .filter(|word| !word.starts_with("Nodes="));
        words.collect::<Vec<_>>().join(" ")
    };
    match error {
        SlurmError::Refused { command, said } => SlurmError::Refused {
            command: hide(command),
            said,
        },
        SlurmError::Timeout { command, after } => SlurmError::Timeout {
            command: hide(command),
            after,
        },
        SlurmError::Files { path, source } => SlurmError::Files {
            path: hide(path),
            source,
        },
        SlurmError::Unwritable { field, .. } => SlurmError::Unwritable {
            field,
            value: "of a waiting node".to_owned(),
        },
        other => other,
    }
}

/// Returns the reservations for the waiting nodes.
fn plan(waits: &ClusterWaits) -> Result<BTreeMap<String, Wanted>, SlurmError> {
    let floating = waits.waits.iter().map(|Wait { lead_s, nodes }| {
        let name = format!("{PREFIX}{lead_s}");
        (name, Start::Floating(*lead_s), nodes)
    });
    let openings = waits.window_waits.iter();
    let openings = openings.map(|WindowWait { opens_at, nodes }| {
        let name = format!("{PREFIX}window-{}", opens_at.as_second());
        (name, Start::At(*opens_at), nodes)
    });
    let mut wanted = BTreeMap::new();
    for (name, start, nodes) in floating.chain(openings) {
        for node in nodes {
            includes::word("node name", node)?;
        }
        for (part, nodes) in nodes.chunks(NODES).enumerate() {
            let mut nodes = nodes.to_vec();
            nodes.sort_unstable();
            wanted.insert(format!("{name}-{part}"), Wanted { start, nodes });
        }
    }
    Ok(wanted)
}

/// Parses a line per reservation. Only reservations of Muster are returned.
fn read(text: &str) -> Result<Reservations, SlurmError> {
    let mut present = Reservations::new();
    // The comment of a reservation may have line breaks. Such a line is no reservation.
    let lines = text.lines().filter(|line| line.starts_with(NAME));
    for line in lines {
        let field = |name: &str| {
            let mut words = line.split_whitespace();
            words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
        };
        let Some(name) = field("ReservationName").filter(|name| name.starts_with(PREFIX)) else {
            continue;
        };
        let nodes = field("Nodes").and_then(|list| expand(list, NAMES));
        let mut nodes = nodes.ok_or_else(|| SlurmError::Garbage {
            what: format!("the nodes of the reservation {name}"),
        })?;
        nodes.sort_unstable();
        present.insert(name.to_owned(), nodes);
    }
    Ok(present)
}

/// Returns the arguments of scontrol for each difference. A node gets the next reservation before the
/// present one is deleted, so no long job starts in between. An opening in the past needs no new
/// reservation, and keeps the present one until the next reply.
fn compare(
    present: &Reservations,
    wanted: &BTreeMap<String, Wanted>,
    now: Timestamp,
) -> Vec<Vec<String>> {
    let named = |name: &str| format!("ReservationName={name}");
    let mut changes: Vec<Vec<String>> = Vec::new();
    for (name, Wanted { start, nodes }) in wanted {
        let list = format!("Nodes={}", nodes.join(","));
        match (present.get(name), start) {
            (Some(held), _) if held == nodes => {}
            (Some(_), _) => changes.push(vec!["update".to_owned(), named(name), list]),
            (None, Start::At(time)) if *time <= now => {}
            (None, _) => changes.push(create(named(name), list, *start)),
        }
    }
    let gone = present.keys().filter(|name| !wanted.contains_key(*name));
    changes.extend(gone.map(|name| vec!["delete".to_owned(), named(name)]));
    changes
}

fn create(name: String, nodes: String, start: Start) -> Vec<String> {
    let (start, duration, flags) = match start {
        Start::Floating(lead_s) => (
            format!("StartTime=now+{lead_s}seconds"),
            FLOATING,
            FLOATING_FLAGS,
        ),
        // The programs of Slurm run in UTC.
        Start::At(time) => (
            format!("StartTime={}", time.strftime("%Y-%m-%dT%H:%M:%S")),
            AT_OPENING,
            FLAGS,
        ),
    };
    let (create, kind) = ("create".to_owned(), "reservation".to_owned());
    let rest = [duration, "Users=root", flags].map(str::to_owned);
    let mut words = vec![create, kind, name, nodes, start];
    words.extend(rest);
    words
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use muster_core::ids::ObjectId;

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

    fn plan_waits(waits: &[Wait]) -> Result<BTreeMap<String, Wanted>, SlurmError> {
        let waits = ClusterWaits {
            cluster: ObjectId::new(),
            waits: waits.to_vec(),
            window_waits: vec![],
        };
        plan(&waits)
    }

    fn changes(shown: &str, waits: &[Wait]) -> Vec<String> {
        let changes = compare(
            &read(shown).unwrap(),
            &plan_waits(waits).unwrap(),
            Timestamp::UNIX_EPOCH,
        );
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
    fn an_opening_has_a_fixed_start_and_in_the_past_no_new_reservation() {
        let opens_at: Timestamp = "2026-12-01T22:00:00Z".parse().unwrap();
        let waits = ClusterWaits {
            cluster: ObjectId::new(),
            waits: vec![],
            window_waits: vec![WindowWait {
                opens_at,
                nodes: vec!["n1".to_owned()],
            }],
        };
        let wanted = plan(&waits).unwrap();
        let none = Reservations::new();
        let changes = |present, now| -> Vec<String> {
            let changes = compare(present, &wanted, now);
            changes.iter().map(|change| change.join(" ")).collect()
        };
        assert_eq!(
            changes(&none, Timestamp::UNIX_EPOCH),
            [
                "create reservation ReservationName=muster-wait-window-1796162400-0 Nodes=n1 StartTime=2026-12-01T22:00:00 \
                 Duration=02:00:00 Users=root Flags=IGNORE_JOBS,OVERLAP"
            ]
        );
        assert!(changes(&none, opens_at).is_empty());
        let name = "muster-wait-window-1796162400-0".to_owned();
        let present = Reservations::from([(name, vec!["n1".to_owned()])]);
        assert!(
            changes(&present, opens_at).is_empty(),
            "kept until the next reply"
        );
    }

    #[test]
    fn a_node_gets_the_next_reservation_before_the_present_one_is_deleted() {
        assert_eq!(
            changes(SHOWN, &[wait(60, &["n1", "n2"])]),
            [
                "create reservation ReservationName=muster-wait-60-0 Nodes=n1,n2 StartTime=now+60seconds \
                 Duration=1-00:00:00 Users=root Flags=TIME_FLOAT,IGNORE_JOBS,OVERLAP",
                "delete ReservationName=muster-wait-900-0"
            ]
        );
    }

    #[test]
    fn a_line_of_a_comment_is_no_reservation() {
        let text = format!("{SHOWN}  x ReservationName=muster-wait-60-0 Nodes=n[\n");
        let names: Vec<String> = read(&text).unwrap().into_keys().collect();
        assert_eq!(names, ["muster-wait-900-0"]);
    }

    #[test]
    fn an_error_names_no_node() {
        let command = || "scontrol update ReservationName=r Nodes=gpu17".to_owned();
        let garbage = read("ReservationName=muster-wait-900-0 Nodes=gpu17[");
        let errors = [
            SlurmError::Refused {
                command: command(),
                said: "Access denied".to_owned(),
            },
            SlurmError::Timeout {
                command: command(),
                after: Duration::from_secs(20),
            },
            plan_waits(&[wait(900, &["gpu17,gpu18"])]).unwrap_err(),
            garbage.unwrap_err(),
        ];
        for error in errors.map(hide_nodes) {
            let shown = error.to_string();
            assert!(!shown.contains("gpu17"), "{shown}");
        }
    }

    #[test]
    fn a_list_in_a_name_and_unreadable_nodes_are_refused() {
        assert!(plan_waits(&[wait(900, &["n1,n2"])]).is_err());
        assert!(read("ReservationName=muster-wait-900-0 Nodes=n[1-").is_err());
        let many: Vec<String> = (0..1001).map(|number| format!("n{number}")).collect();
        let waits = [Wait {
            lead_s: 60,
            nodes: many,
        }];
        let names: Vec<String> = plan_waits(&waits).unwrap().into_keys().collect();
        let expected = ["muster-wait-60-0", "muster-wait-60-1", "muster-wait-60-2"];
        assert_eq!(names, expected);
    }
}
