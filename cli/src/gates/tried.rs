//! `muster gate try`: what a gate would make of an answer that was kept, without the node it came from.

use clap::Args;
use muster_core::gates::{PROFILES, SUITES, Suite, Verdict, lint};
use muster_core::profiles::HardwareProfile;
use muster_node::gates::{Question, judge};

use super::named;
use crate::client::exit::{Ended, Exit};
use crate::client::output::Output;

/// What to hold against what.
#[derive(Args, Clone, Debug)]
pub(crate) struct TryArgs {
    /// The suite: a file, or the name of one that comes with Muster.
    #[arg(long)]
    suite: String,
    /// The id of the gate in it.
    #[arg(long, value_name = "GATE")]
    only: String,
    /// The hardware profile: a file, or the name of one that comes with Muster.
    #[arg(long)]
    profile: String,
    /// The tool's stdout, or the file that it wrote.
    output_file: String,
    /// The tool's exit status.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    exit: i32,
    /// The tool's stderr, for parsers that look at it.
    #[arg(long, value_name = "FILE")]
    messages: Option<String>,
}

/// Reads the answer, and prints each value beside its limit.
///
/// # Errors
/// When something is not there or is refused, or the gate would not pass.
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
