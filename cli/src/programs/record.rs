//! `muster record`: what this machine's tools print, for parsers of gates to be written from. No server is asked.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use muster_node::record;

/// Where to record.
#[derive(Args, Clone, Debug)]
pub(crate) struct RecordArgs {
    /// A folder that is not there yet.
    folder: PathBuf,
    /// Seconds after which the command behind -- is killed, with all that it started; at most a day
    #[arg(long, value_name = "SECONDS", default_value_t = record::ASKED_TIMEOUT.as_secs(), requires = "command",
          value_parser = clap::value_parser!(u64).range(1..=record::ASKED_MAX.as_secs()))]
    timeout: u64,
    /// A command to record first, as it stands, without a shell: a tool that puts load on the machine, which is never run unasked
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Records what this machine's tools print, scrubbed.
///
/// # Errors
/// When the folder is there already or cannot be written, or the command is not installed.
pub(crate) fn run(args: &RecordArgs) -> anyhow::Result<()> {
    let argv: Vec<&str> = args.command.iter().map(String::as_str).collect();
    let asked = record::Asked {
        argv,
        timeout: Duration::from_secs(args.timeout),
    };
    let asked = Some(asked).filter(|asked| !asked.argv.is_empty());
    let lines = record::run(&args.folder, asked.as_ref())
        .map_err(|failure| anyhow::anyhow!(failure.message))?;
    lines.iter().for_each(|line| println!("{line}"));
    Ok(())
}
