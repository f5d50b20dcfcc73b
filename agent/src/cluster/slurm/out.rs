//! Lists the nodes out of service for a whole cluster by a single call of `sinfo`. The format is
//! the same in every version since 20.

use std::collections::BTreeMap;

use muster_core::wire::scheduler::NodeOut;

use super::error::SlurmError;
use super::view::given;
use super::{Controller, command};

/// Name, state and reason. The reason can contain any character and is therefore the last column
/// (sinfo(1), OUTPUT FIELD SPECIFICATION).
const FORMAT: &str = "%N|%T|%E";
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

impl Controller {
    /// Returns the nodes of the cluster out of service, sorted by name.
    ///
    /// # Errors
    /// [`SlurmError`]; the state of all nodes is then unknown.
    pub async fn nodes_out(&self) -> Result<Vec<NodeOut>, SlurmError> {
        let arguments = ["-a", "-h", "-N", "-o", FORMAT];
        let text =
            command::run(&self.cluster.conf, "sinfo", &arguments, self.limits.command).await?;
        read(&text)
    }
}

/// Parses a line per node and partition. A node in several partitions has several lines.
pub(super) fn read(text: &str) -> Result<Vec<NodeOut>, SlurmError> {
    let mut nodes = BTreeMap::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let garbage = || SlurmError::Garbage {
            what: format!("{:?} of sinfo", line.chars().take(200).collect::<String>()),
        };
        let (name, rest) = line.split_once('|').ok_or_else(garbage)?;
        let (state, reason) = rest.split_once('|').ok_or_else(garbage)?;
        let state = state.trim().trim_end_matches(SIGNS).to_ascii_lowercase();
        let plain = !state.is_empty()
            && state
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        if name.trim().is_empty() || !plain {
            return Err(garbage());
        }
        if OUT.contains(&state.as_str()) {
            let reason = given(reason.trim()).filter(|reason| *reason != "none");
            let reason = reason.map(|reason| {
                reason
                    .chars()
                    .filter(|c| !c.is_control())
                    .take(REASON_CHARS)
                    .collect()
            });
            let node = NodeOut {
                name: name.trim().to_owned(),
                state,
                reason,
            };
            nodes.insert(node.name.clone(), node);
        }
    }
    Ok(nodes.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_nodes_that_take_no_jobs_are_told_once_each() {
        let text = "n1|idle|none\nn2|drained|muster: gate kernel.new: kernel.xid_fatal is 1 events, wanted == 0\n\
                    n2|drained|muster: gate kernel.new: kernel.xid_fatal is 1 events, wanted == 0\nn3|down*|Not responding\n\
                    n4|mixed|none\nn5|draining|fans | and more\nn6|idle~|none\nn7|reserved|none\nn8|unknown*|none\n";
        let told = read(text).unwrap();
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
        assert_eq!(read("").unwrap(), []);
        for wrong in ["n1", "n1|idle", "|idle|none", "n1|7|none", "n1||none"] {
            assert!(read(&format!("{wrong}\n")).is_err(), "{wrong}");
        }
    }
}
