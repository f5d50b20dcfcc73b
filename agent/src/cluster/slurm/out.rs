//! Lists the nodes out of service for a whole cluster by a single call of `sinfo`. The format is
//! the same in every version since 20.

use std::collections::BTreeMap;

use muster_core::wire::scheduler::NodeOut;
use uuid::Uuid;

use super::error::SlurmError;
use super::view::given;
use super::{Controller, command};

/// Suffixes of a state: not responding, powered down, reserved and others (sinfo(1), NODE STATE
/// CODES).
const SIGNS: [char; 10] = ['*', '~', '#', '!', '%', '$', '@', '^', '-', '+'];
/// States of a node refusing jobs (sinfo(1), NODE STATE CODES). `unknown` is excluded: after a
/// start the controller waits for the first report of the node. A silent node becomes `down` soon
/// after.
const OUT: [&str; 8] = [
    "down",
    "drained",
    "draining",
    "error",
    "fail",
    "failing",
    "inval",
    "not_responding",
];
/// Maximum number of characters of a reason.
const REASON_CHARS: usize = 300;
/// Maximum number of characters of a state that is unknown to this version.
const STATE_CHARS: usize = 60;
/// The state of a node whose state is unknown to this version.
const UNREAD: &str = "unread";

impl Controller {
    /// Returns the nodes of the cluster out of service, sorted by name.
    ///
    /// # Errors
    /// [`SlurmError`]; the state of all nodes is then unknown.
    pub async fn nodes_out(&self) -> Result<Vec<NodeOut>, SlurmError> {
        // The text of a reason cannot contain the mark of this call, so no reason hides or forges
        // the line of another node.
        let mark = format!("|{}|", Uuid::new_v4().simple());
        let format = format!("%N{mark}%T|%E");
        let arguments = ["-a", "-h", "-N", "-o", &format];
        let text =
            command::run(&self.cluster.conf, "sinfo", &arguments, self.limits.command).await?;
        read(&text, &mark)
    }
}

/// The lines of a node.
struct Shown<'a> {
    name: &'a str,
    state: &'a str,
    /// The lines of the reason.
    reason: Vec<&'a str>,
}

/// Parses name, mark, state and reason of each node and partition. A node in several partitions has
/// several lines. The reason is the last column, because it may contain any character. sinfo prints
/// its line breaks as they are (sinfo(1), OUTPUT FIELD SPECIFICATION), so a line without the mark
/// belongs to the reason before.
pub(super) fn read(text: &str, mark: &str) -> Result<Vec<NodeOut>, SlurmError> {
    let mut shown: Vec<Shown<'_>> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let garbage = || SlurmError::Garbage {
            what: format!("{:?} of sinfo", line.chars().take(200).collect::<String>()),
        };
        match (line.split_once(mark), shown.last_mut()) {
            (Some((name, rest)), _) => {
                let (state, reason) = rest.split_once('|').ok_or_else(garbage)?;
                let name = name.trim();
                if name.is_empty() {
                    return Err(garbage());
                }
                shown.push(Shown {
                    name,
                    state: state.trim(),
                    reason: vec![reason.trim()],
                });
            }
            (None, Some(node)) => node.reason.push(line.trim()),
            (None, None) => return Err(garbage()),
        }
    }
    let out = shown.iter().filter_map(read_node);
    let nodes: BTreeMap<String, NodeOut> = out.map(|node| (node.name.clone(), node)).collect();
    Ok(nodes.into_values().collect())
}

/// Returns a node out of service, or `None` for a node accepting jobs. The node counts as out of
/// service while the state is unread, and the reason names the state.
fn read_node(shown: &Shown<'_>) -> Option<NodeOut> {
    let state = shown.state.trim_end_matches(SIGNS).to_ascii_lowercase();
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    let (state, reason) = if state.is_empty() || !state.bytes().all(is_plain) {
        let reason = format!(
            "sinfo shows the state {:?}, which this version of Muster does not read",
            shorten(shown.state, STATE_CHARS)
        );
        (UNREAD.to_owned(), Some(reason))
    } else if OUT.contains(&state.as_str()) {
        let lines = shown.reason.join(" ");
        let reason = given(lines.trim()).filter(|reason| *reason != "none");
        (state, reason.map(|reason| shorten(reason, REASON_CHARS)))
    } else {
        return None;
    };
    Some(NodeOut {
        name: shown.name.to_owned(),
        state,
        reason,
    })
}

fn shorten(text: &str, most: usize) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .take(most)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded output of `sinfo -a -h -N -o '%N|%T|%E'`, 22.05.8 on Debian 12, after an
    /// administrator wrote reasons with a line break and with a carriage return.
    const MULTILINE: &str = include_str!("tests/multiline-22.05.8.sinfo.txt");

    #[test]
    fn only_nodes_that_take_no_jobs_are_told_once_each() {
        let text = "n1|idle|none\nn2|drained|muster: gate kernel.new: kernel.xid_fatal is 1 events, wanted == 0\n\
                    n2|drained|muster: gate kernel.new: kernel.xid_fatal is 1 events, wanted == 0\nn3|down*|Not responding\n\
                    n4|mixed|none\nn5|draining|fans | and more\nn6|idle~|none\nn7|reserved|none\nn8|unknown*|none\n";
        let told = read(text, "|").unwrap();
        let told: Vec<(&str, &str, Option<&str>)> = told
            .iter()
            .map(|node| {
                (
                    node.name.as_str(),
                    node.state.as_str(),
                    node.reason.as_deref(),
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                (
                    "n2",
                    "drained",
                    Some("muster: gate kernel.new: kernel.xid_fatal is 1 events, wanted == 0")
                ),
                ("n3", "down", Some("Not responding")),
                ("n5", "draining", Some("fans | and more")),
            ]
        );
        assert_eq!(read("", "|").unwrap(), []);
        for wrong in ["n1", "n1|idle", "|idle|none"] {
            assert!(read(&format!("{wrong}\n"), "|").is_err(), "{wrong}");
        }
    }

    fn name_states(out: &[NodeOut]) -> Vec<(&str, &str)> {
        let pairs = out
            .iter()
            .map(|node| (node.name.as_str(), node.state.as_str()));
        pairs.collect()
    }

    #[test]
    fn a_reason_with_line_breaks_hides_no_other_node() {
        let out = read(MULTILINE, "|").unwrap();
        assert_eq!(name_states(&out), [("n1", "drained"), ("n3", "drained")]);
        let reasons: Vec<&str> = out
            .iter()
            .filter_map(|node| node.reason.as_deref())
            .collect();
        let expected = [
            "muster: gate gpu.ecc failed twice",
            "line with  cr and | pipe",
        ];
        assert_eq!(reasons, expected);
    }

    #[test]
    fn a_reason_cannot_forge_the_line_of_another_node() {
        let text = "n1|k7|drained|fan\nn2|drained|muster: leaving service\n\nn2|idle|none\nn2|k7|idle|none\n";
        let out = read(text, "|k7|").unwrap();
        assert_eq!(name_states(&out), [("n1", "drained")]);
        let reason = "fan n2|drained|muster: leaving service n2|idle|none";
        assert_eq!(out[0].reason.as_deref(), Some(reason));
        assert!(read("n2|idle|none\n", "|k7|").is_err(), "no mark at all");
    }

    #[test]
    fn a_node_with_an_unread_state_is_out_and_the_others_are_told() {
        for state in ["7", "", "drained by"] {
            let text = format!("n1|{state}|none\nn2|drained|fan\nn3|idle|none\n");
            let out = read(&text, "|").unwrap();
            assert_eq!(name_states(&out), [("n1", "unread"), ("n2", "drained")]);
            let reason = out[0].reason.as_deref().unwrap_or_default();
            assert!(reason.contains(&format!("{state:?}")), "{reason}");
        }
    }
}
