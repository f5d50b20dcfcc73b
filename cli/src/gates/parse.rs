//! `muster gate parse`: prints the result of a parser for a file.

use clap::Args;
use muster_node::gates::{Question, read};

use crate::client::output::Output;

/// The input of the parser.
#[derive(Args, Clone, Debug)]
pub(crate) struct ParseArgs {
    parser: String,
    /// File with the tool's stdout, or with the file written by the tool
    file: String,
    /// Exit status of the tool
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    exit: i32,
    /// File with the tool's stderr, for parsers using stderr
    #[arg(long, value_name = "FILE")]
    messages: Option<String>,
}

/// Parses a file, and prints the result.
///
/// # Errors
/// When the parser or the file is missing, or the file is no valid output.
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
