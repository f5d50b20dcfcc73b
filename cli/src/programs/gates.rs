//! `muster gate parse` and `muster record`: what a parser of gates reads from a file, and recordings to write parsers from. No server is asked.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use muster_node::gates::{Question, read};
use muster_node::record;

use super::audit::Form;

/// What can be asked without a node.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum GateVerb {
    /// Show what a parser reads from a tool's answer: metrics, units, what each belongs to, versions, or why a gate would have no answer. Exits with 1
    /// then. docs/parsers.md lists the parsers.
    Parse(ParseArgs),
}

/// What to read.
#[derive(Args, Clone, Debug)]
pub(crate) struct ParseArgs {
    parser: String,
    /// The tool's stdout, or the file that it wrote.
    file: String,
    /// The tool's exit status.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    exit: i32,
    /// The tool's stderr, for parsers that look at it.
    #[arg(long, value_name = "FILE")]
    messages: Option<String>,
}

/// Where to record.
#[derive(Args, Clone, Debug)]
pub(crate) struct RecordArgs {
    /// A folder that is not there yet.
    folder: PathBuf,
}

/// Reads a file, and prints what is in it.
///
/// # Errors
/// When the parser or the file is not there, or the file is no answer.
pub(crate) fn run(verb: GateVerb, form: Form) -> anyhow::Result<()> {
    let GateVerb::Parse(ParseArgs { parser, file, exit, messages }) = verb;
    let question = Question { parser, file, exit, messages };
    let parsed = read(&question).map_err(|failure| anyhow::anyhow!(failure.message))?;
    match form {
        Form::Json => println!("{}", serde_json::to_string_pretty(&parsed)?),
        Form::Lines => parsed.lines().iter().for_each(|line| println!("{}", crate::client::output::clean(line))),
    }
    match parsed.error {
        None => Ok(()),
        Some(_) => anyhow::bail!("a gate would have no answer from {}", question.file),
    }
}

/// Records what this machine's tools print, scrubbed.
///
/// # Errors
/// When the folder is there already or cannot be written.
pub(crate) fn record(args: &RecordArgs) -> anyhow::Result<()> {
    let lines = record::run(&args.folder).map_err(|failure| anyhow::anyhow!(failure.message))?;
    lines.iter().for_each(|line| println!("{line}"));
    Ok(())
}
