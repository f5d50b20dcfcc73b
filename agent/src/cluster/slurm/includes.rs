//! The three files included by the configuration of a controller. The core renders the files, and
//! each is replaced atomically.
//!
//! A configless controller sends included files to the nodes only if the include line has no
//! directory and the files are next to slurm.conf: `include muster-nodes.conf`. The rule also
//! applies to gres.conf and topology.conf. A symbolic link is allowed for topology.conf. An
//! absolute path is sent unchanged and is wrong on the node (seen with 22.05.8).

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use muster_core::clusters::slurm::{render_gres, render_nodes, render_topology};
use muster_core::clusters::{Member, SlurmCluster};

use super::error::SlurmError;

const NODES: &str = "muster-nodes.conf";

/// Checks whether every field is safe in a configuration line: no blanks, no lists, no line ends.
pub(super) fn check(cluster: &SlurmCluster, nodes: &[Member]) -> Result<(), SlurmError> {
    word("partition", &cluster.partition)?;
    for node in nodes {
        word("node name", &node.name)?;
        if let Some((model, _)) = &node.gpus {
            word("GPU model", model)?;
        }
        for switch in [&node.switch, &node.spine].into_iter().flatten() {
            word("switch", switch)?;
        }
        for feature in &node.features {
            word("feature", feature)?;
        }
    }
    Ok(())
}

/// Checks a single word of the configuration. Host lists are rejected.
pub(super) fn word(field: &'static str, value: &str) -> Result<(), SlurmError> {
    let plain = value
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    match plain && (1..=64).contains(&value.len()) && !value.starts_with(['-', '.']) {
        true => Ok(()),
        false => Err(SlurmError::Unwritable {
            field,
            value: value.to_owned(),
        }),
    }
}

/// Returns the names of the nodes in the current file, or an empty set for a missing file.
pub(super) fn names(cluster: &SlurmCluster) -> Result<BTreeSet<String>, SlurmError> {
    let path = Path::new(&cluster.include_dir).join(NODES);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(source) => {
            return Err(SlurmError::Files {
                path: path.display().to_string(),
                source,
            });
        }
    };
    let lines = text.lines().filter(|line| !line.contains(" State=FUTURE"));
    Ok(lines
        .filter_map(|line| line.strip_prefix("NodeName=")?.split(' ').next())
        .map(str::to_owned)
        .collect())
}

/// Writes the changed files and returns whether any file changed. The nodes file is written last,
/// because its lines refer to the other files.
pub(super) fn write(cluster: &SlurmCluster, nodes: &[Member]) -> Result<bool, SlurmError> {
    let directory = Path::new(&cluster.include_dir);
    let mut changed = false;
    for (name, text) in [
        ("muster-gres.conf", render_gres(nodes)),
        ("muster-topology.conf", render_topology(nodes)),
        (NODES, render_nodes(nodes, &cluster.partition)),
    ] {
        let path = directory.join(name);
        if std::fs::read(&path).is_ok_and(|present| present == text.as_bytes()) {
            continue;
        }
        replace(directory, &path, &text).map_err(|source| SlurmError::Files {
            path: path.display().to_string(),
            source,
        })?;
        changed = true;
    }
    Ok(changed)
}

/// Replaces a file atomically. After a crash the file is either old or new, never partial.
fn replace(directory: &Path, path: &Path, text: &str) -> std::io::Result<()> {
    let fresh = path.with_extension("conf.new");
    let mut file = File::create(&fresh)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&fresh, path)?;
    File::open(directory)?.sync_all()
}
