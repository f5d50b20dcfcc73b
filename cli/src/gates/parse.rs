//! `muster gate parse`: what a parser of gates reads from a file.

use clap::Args;
use muster_node::gates::{Question, read};

use crate::client::output::Output;

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

/// Reads a file, and prints what is in it.
///
/// # Errors
/// When the parser or the file is not there, or the file is no answer.
pub(super) fn run(output: Output, args: ParseArgs) -> anyhow::Result<()> {
    let ParseArgs {
        parser,
        file,
        exit,
        messages,
    } = args;
    let question = Question {
        parser,
        file,
        exit,
        messages,
    };
    let parsed = read(&question).map_err(|failure| anyhow::anyhow!(failure.message))?;
    output.print_lines(&parsed, || parsed.lines())?;
    match parsed.error {
        None => Ok(()),
        Some(_) => anyhow::bail!("a gate would have no answer from {}", question.file),
    }
}
