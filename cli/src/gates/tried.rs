//! `muster gate try`: judges a recorded output by the criteria of a gate, without the node.

use clap::Args;
use muster_core::gates::{PROFILES, SUITES, Suite, Verdict, lint};
use muster_core::profiles::HardwareProfile;
use muster_node::gates::{Question, judge};

use super::named;
use crate::client::exit::{Ended, Exit};
use crate::client::output::Output;

/// The gate and the output.
#[derive(Args, Clone, Debug)]
pub(crate) struct TryArgs {
    /// Suite: a file, or the name of a shipped suite
    #[arg(long)]
    suite: String,
    /// Id of the gate in the suite
    #[arg(long, value_name = "GATE")]
    only: String,
    /// Hardware profile: a file, or the name of a shipped profile
    #[arg(long)]
    profile: String,
    /// File with the tool's stdout, or with the file written by the tool
    output_file: String,
    /// Exit status of the tool
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    exit: i32,
    /// File with the tool's stderr, for parsers using stderr
    #[arg(long, value_name = "FILE")]
    messages: Option<String>,
}

/// Parses the output, and prints each value beside its limit.
///
/// # Errors
/// When a file is missing or refused, or the gate would not pass.
pub(super) fn run(output: Output, args: TryArgs) -> anyhow::Result<()> {
    let suite: Suite = named(SUITES, &args.suite)?;
    let profile: HardwareProfile = named(PROFILES, &args.profile)?;
    let gate = suite
        .gates
        .iter()
        .find(|gate| gate.id == args.only)
        .ok_or_else(|| {
            let ids: Vec<&str> = suite.gates.iter().map(|gate| gate.id.as_str()).collect();
            super::missing(format!(
                "the suite {} has no gate {:?}; it has {}",
                suite.name,
                args.only,
                ids.join(", ")
            ))
        })?;
    let own = format!("{}: ", gate.id);
    if let Some(problem) = lint(&suite)
        .into_iter()
        .find(|problem| problem.starts_with(&own))
    {
        return Err(Ended {
            exit: Exit::Usage,
            told: format!("the linter refuses it: {problem}"),
        }
        .into());
    }
    let question = Question {
        parser: gate.parser.clone(),
        file: args.output_file,
        exit: args.exit,
        messages: args.messages,
    };
    let judged =
        judge(gate, &profile, &question).map_err(|failure| anyhow::anyhow!(failure.message))?;
    output.print_lines(&judged, || judged.lines())?;
    match judged.verdict {
        Verdict::Pass => Ok(()),
        verdict => {
            let told = format!(
                "{} would end with {} on such nodes",
                gate.id,
                verdict.as_str()
            );
            Err(Ended {
                exit: Exit::Failed,
                told,
            }
            .into())
        }
    }
}
