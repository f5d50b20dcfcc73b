//! `muster record`: records the output of this machine's tools, for parsers of gates. No server is
//! called.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use muster_node::record;

/// The place of the recording.
#[derive(Args, Clone, Debug)]
pub(crate) struct RecordArgs {
    /// New folder for the recording
    folder: PathBuf,
    /// Time limit in seconds for the command after --, including its children; at most one day
    #[arg(long, value_name = "SECONDS", default_value_t = record::ASKED_TIMEOUT.as_secs(), requires = "command",
          value_parser = clap::value_parser!(u64).range(1..=record::ASKED_MAX.as_secs()))]
    timeout: u64,
    /// Command to run and record first, without a shell: for example a tool putting load on the
    /// machine
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Records the output of this machine's tools, with identifying values removed.
///
/// # Errors
/// When the folder exists or is not writable, or the command is not installed.
pub(crate) fn run(args: &RecordArgs) -> anyhow::Result<()> {
    let argv: Vec<&str> = args.command.iter().map(String::as_str).collect();
    let asked = record::Asked {
        argv,
        timeout: Duration::from_secs(args.timeout),
    };
    let asked = Some(asked).filter(|asked| !asked.argv.is_empty());
    let lines = record::run(&args.folder, asked.as_ref())
        .map_err(|failure| anyhow::anyhow!(failure.message))?;
    lines.iter().for_each(|line| print_line!("{line}"));
    Ok(())
}
