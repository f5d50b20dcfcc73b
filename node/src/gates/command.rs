//! `muster-node gate --suite FILE --profile FILE [--only ID]... [--set NAME=VALUE]... [--json]`: gates by hand, on any machine this binary is carried to.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use muster_core::gates::{GateResult, SuiteVerdict, judge};
use muster_core::wire::node::{Failure, GatePlan};
use serde::de::DeserializeOwned;

use crate::failure::fatal;
use crate::job::JobContext;
use crate::{cli, files};

const USAGE: &str = "muster-node gate --suite FILE --profile FILE [--only ID]... [--set NAME=VALUE]... [--json]";
const FILE_MAX: u64 = 4 << 20;
/// By hand there is no job with a deadline; each gate has its own.
const TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// Runs the verb. Exit codes: 0 every required gate passed, 1 one failed, 2 not understood, 3 one has no answer that counts.
pub fn command(arguments: &[String]) -> ExitCode {
    if let Some(("parse", arguments)) = arguments.split_first().map(|(verb, rest)| (verb.as_str(), rest)) {
        return super::read::command(arguments);
    }
    let (plan, as_json) = match parse(arguments) {
        Ok(parsed) => parsed,
        Err(failure) => return cli::report(&failure),
    };
    match super::run(&plan, &JobContext::foreground(TIMEOUT)) {
        Ok((results, _)) => {
            print(&results, as_json);
            match judge(&plan.suite, &plan.only, &results) {
                SuiteVerdict::Pass => ExitCode::SUCCESS,
                SuiteVerdict::Fail => ExitCode::from(1),
                SuiteVerdict::Unknown => ExitCode::from(3),
            }
        }
        Err(failure) => cli::report(&failure),
    }
}

fn parse(arguments: &[String]) -> Result<(GatePlan, bool), Failure> {
    let (mut suite, mut profile, mut only, mut as_json) = (None, None, Vec::new(), false);
    let mut variables = BTreeMap::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().cloned().ok_or_else(|| usage(&format!("{argument} needs a value")));
        match argument.as_str() {
            "--suite" => suite = Some(value()?),
            "--profile" => profile = Some(value()?),
            "--only" => only.push(value()?),
            "--set" => {
                let pair = value()?;
                let (name, value) = pair.split_once('=').ok_or_else(|| usage("--set takes NAME=VALUE"))?;
                variables.insert(name.to_owned(), value.to_owned());
            }
            "--json" => as_json = true,
            other => return Err(usage(&format!("{other:?} is not an option"))),
        }
    }
    let suite = read(&suite.ok_or_else(|| usage("--suite is missing"))?)?;
    let profile = read(&profile.ok_or_else(|| usage("--profile is missing"))?)?;
    Ok((GatePlan { suite, profile, only, stack: None, variables }, as_json))
}

fn usage(what: &str) -> Failure {
    fatal("usage", format!("{what}; {USAGE}"))
}

fn read<T: DeserializeOwned>(path: &str) -> Result<T, Failure> {
    let wrong = |why: String| fatal("usage", format!("{path}: {why}"));
    let bytes = files::read_capped(Path::new(path), FILE_MAX).map_err(|error| wrong(error.to_string()))?;
    let text = std::str::from_utf8(&bytes).map_err(|error| wrong(error.to_string()))?;
    toml::from_str(text).map_err(|error| wrong(error.to_string()))
}

fn print(results: &[GateResult], as_json: bool) {
    match as_json {
        true => println!("{}", serde_json::to_string_pretty(results).unwrap_or_default()),
        false => {
            for result in results {
                println!(
                    "{:<8} {:<20} {} ({} ms)",
                    result.verdict.as_str(),
                    result.gate,
                    result.reason,
                    result.duration_ms
                );
            }
        }
    }
}
