//! Files of the network configuration for a node, and the only allowed paths.

use serde::{Deserialize, Serialize};

/// The folder of all these files.
pub const FOLDER: &str = "/etc/systemd/network";
/// The file with the node's own address, with or without a profile.
pub const SINGLE: &str = "/etc/systemd/network/10-muster.network";
/// Limits above the needs of any profile: number of files, and bytes of a file.
const MOST: usize = 256;
const LONGEST: usize = 16 << 10;

/// A file of systemd-networkd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkFile {
    /// `/etc/systemd/network/10-muster-bond0.netdev`.
    pub path: String,
    pub content: String,
}

impl NetworkFile {
    /// Returns the reason for not writing the files on a node: a path outside the allowed names, or
    /// content with control characters.
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

/// Returns whether the path is `10-muster.network`, `10-muster-LINK.network` or
/// `10-muster-LINK.netdev` in [`FOLDER`].
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
