//! Files as the node is given them, and the only places they may go to.

use serde::{Deserialize, Serialize};

/// The folder that all of them are in.
pub const FOLDER: &str = "/etc/systemd/network";
/// The file with the node's own address, whether a profile made it or not.
pub const SINGLE: &str = "/etc/systemd/network/10-muster.network";
/// More than any profile makes, and longer than any of its files.
const MOST: usize = 256;
const LONGEST: usize = 16 << 10;

/// A file of the network's manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkFile {
    /// `/etc/systemd/network/10-muster-bond0.netdev`.
    pub path: String,
    pub content: String,
}

impl NetworkFile {
    /// What keeps files from being written on a node: a place that is not the manager's, or no text of lines.
    pub fn problem(files: &[Self]) -> Option<String> {
        if files.len() > MOST {
            return Some(format!(
                "{} network files are more than {MOST}",
                files.len()
            ));
        }
        let mut seen = std::collections::BTreeSet::new();
        files.iter().find_map(|Self { path, content }| {
            let odd = |c: char| c.is_control() && c != '\n';
            if !is_ours(path) {
                Some(format!("{path:?} is no file of ours in {FOLDER}"))
            } else if !seen.insert(path) {
                Some(format!("{path:?} is there twice"))
            } else if content.len() > LONGEST || content.chars().any(odd) {
                Some(format!("{path:?} is no text of at most {LONGEST} bytes"))
            } else {
                None
            }
        })
    }
}

/// `10-muster.network`, and `10-muster-LINK.network` and `.netdev`.
fn is_ours(path: &str) -> bool {
    let Some(name) = path
        .strip_prefix(FOLDER)
        .and_then(|rest| rest.strip_prefix("/10-muster"))
    else {
        return false;
    };
    let link = name
        .strip_suffix(".network")
        .or_else(|| name.strip_suffix(".netdev"));
    match link {
        Some("") => name == ".network",
        Some(link) => link
            .strip_prefix('-')
            .is_some_and(super::check::is_link_name),
        None => false,
    }
}
