//! `muster record`: what this machine's tools print, for parsers of gates to be written from. No server is asked.

use std::path::PathBuf;

use clap::Args;
use muster_node::record;

/// Where to record.
#[derive(Args, Clone, Debug)]
pub(crate) struct RecordArgs {
    /// A folder that is not there yet.
    folder: PathBuf,
}

/// Records what this machine's tools print, scrubbed.
///
/// # Errors
/// When the folder is there already or cannot be written.
pub(crate) fn run(args: &RecordArgs) -> anyhow::Result<()> {
    let lines = record::run(&args.folder).map_err(|failure| anyhow::anyhow!(failure.message))?;
    lines.iter().for_each(|line| println!("{line}"));
    Ok(())
}
