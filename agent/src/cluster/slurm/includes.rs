//! The three files that a controller's configuration includes, rendered by the core, replaced whole or not at all.
//!
//! Where nodes fetch their configuration from the controller (configless), it hands out included files only when they are named without a
//! directory and lie beside slurm.conf: `include muster-nodes.conf`. So for gres.conf; topology.conf too, or a symbolic link. An absolute path
//! is passed on as it is and means nothing on the node (seen with 22.05.8).

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use muster_core::clusters::{SlurmCluster, SlurmNode, render_gres, render_nodes, render_topology};

use super::error::SlurmError;

const NODES: &str = "muster-nodes.conf";

/// Whether every field may stand in a line of configuration: no blank, no list, nothing that ends the line.
pub(super) fn check(cluster: &SlurmCluster, nodes: &[SlurmNode]) -> Result<(), SlurmError> {
    word("partition", &cluster.partition)?;
    for node in nodes {
        word("node name", &node.name)?;
        if let Some((model, _)) = &node.gpus {
            word("GPU model", model)?;
        }
        if let Some(switch) = &node.switch {
            word("switch", switch)?;
        }
        for feature in &node.features {
            word("feature", feature)?;
        }
    }
    Ok(())
}

/// One word of a configuration, which is no host list either.
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

/// Names of the nodes in the present file; none where there is no file.
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

/// Writes what differs; whether anything did. The nodes' file comes last: it names what the others describe.
pub(super) fn write(cluster: &SlurmCluster, nodes: &[SlurmNode]) -> Result<bool, SlurmError> {
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

/// Old or new after a crash at any instant, never half.
fn replace(directory: &Path, path: &Path, text: &str) -> std::io::Result<()> {
    let fresh = path.with_extension("conf.new");
    let mut file = File::create(&fresh)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&fresh, path)?;
    File::open(directory)?.sync_all()
}
