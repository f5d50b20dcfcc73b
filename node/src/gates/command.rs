//! `muster-node gate --suite SUITE --profile PROFILE …`: runs gates by hand, on any machine with
//! this binary. Shipped suites and profiles have
//! names.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use muster_core::gates::{
    Judged, PROFILES, SUITES, Shipped, SuiteVerdict, judge, lint_profile, lint_with,
};
use muster_core::ids::{ClaimId, NodeId};
use muster_core::stacks::{ConvergePlan, StackSpec};
use muster_core::wire::PROTOCOL;
use muster_core::wire::node::{Failure, FailureCode, GatePlan, Marker};
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::report::{self, Report};
use crate::failure::fatal;
use crate::files;
use crate::inventory;
use crate::job::JobContext;

const USAGE: &str = "\
muster-node gate --suite SUITE --profile PROFILE [--stack STACK] [--only ID]... [--set NAME=VALUE]... [--drained] [--json]

Runs gates on this machine. SUITE and PROFILE are files, or names of what comes with Muster (--list shows them).

  --stack STACK      a locked stack, as `muster stack lock` writes it: what its packages, services, mounts and kernel are held against. Without it
                     gates of stage software have no answer, and those of later stages are not run
  --only ID          run this gate alone; again for more
  --set NAME=VALUE   what gates name as ${NAME}: rdma_device, agent_address…
  --drained          nobody's jobs run here: gates that load the machine are run as well
  --json             the whole report with its evidence, as one document
  --list             suites and profiles that come with Muster

Exit codes: 0 nothing blocks; 1 a gate failed; 2 none failed, and one has no answer that counts; 64 not understood, or refused by the linter.";
const FILE_MAX: u64 = 4 << 20;
/// Maximum size of a lock; locks list some thousand packages.
const STACK_MAX: u64 = 16 << 20;
/// Without a job there is no deadline; each gate has its own.
const TIMEOUT: Duration = Duration::from_secs(24 * 3600);
/// EX_USAGE of sysexits: no verdict exists.
const NOT_UNDERSTOOD: u8 = 64;

/// The parsed command line.
pub(super) enum Wanted {
    Help,
    List,
    Run { plan: Box<GatePlan>, as_json: bool },
}

/// Executes the subcommand. The exit codes are the codes of [`SuiteVerdict`].
pub fn command(arguments: &[String]) -> ExitCode {
    if let Some(("parse", arguments)) = arguments
        .split_first()
        .map(|(verb, rest)| (verb.as_str(), rest))
    {
        return super::read::command(arguments);
    }
    let (plan, as_json) = match parse(arguments) {
        Ok(Wanted::Help) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Ok(Wanted::List) => {
            list();
            return ExitCode::SUCCESS;
        }
        Ok(Wanted::Run { plan, as_json }) => (plan, as_json),
        Err(failure) => return refuse(&failure),
    };
    for problem in doubts(&plan) {
        eprintln!("muster-node: {problem}");
    }
    let cx = JobContext::foreground(TIMEOUT);
    // A run by hand keeps no place in the kernel's log, so the next run reports the same records.
    let super::Ran {
        results,
        fingerprint,
        ..
    } = match super::run(&plan, &cx) {
        Ok(ended) => ended,
        Err(failure) => return refuse(&failure),
    };
    let by = Judged {
        suite: &plan.suite,
        profile: Some(&plan.profile),
        wanted: &plan.only,
        now: cx.clock().now(),
    };
    let verdict = judge(&by, &results);
    let report = Report {
        suite: &plan.suite,
        profile: &plan.profile,
        verdict,
        fingerprint,
        results: &results,
    };
    let text = match as_json {
        true => report.json(),
        false => report.table(report::width(), std::io::stdout().is_terminal()),
    };
    println!("{text}");
    ExitCode::from(match verdict {
        SuiteVerdict::Pass => 0,
        SuiteVerdict::Fail => 1,
        SuiteVerdict::Unknown => 2,
    })
}

/// Problems of the profile, and misfits with the suite. Printed as notes, because a person
/// measuring for thresholds has no limits yet.
fn doubts(plan: &GatePlan) -> Vec<String> {
    let own = lint_profile(&plan.profile)
        .into_iter()
        .map(|(part, text)| format!("profile, {part}: {text}"));
    let mut suite = plan.suite.clone();
    suite
        .gates
        .retain(|gate| plan.only.is_empty() || plan.only.contains(&gate.id));
    own.chain(lint_with(&suite, &plan.profile)).collect()
}

fn refuse(failure: &Failure) -> ExitCode {
    eprintln!("muster-node: {}", failure.message);
    ExitCode::from(NOT_UNDERSTOOD)
}

pub(super) fn parse(arguments: &[String]) -> Result<Wanted, Failure> {
    let (mut suite, mut profile, mut only, mut as_json) = (None, None, Vec::new(), false);
    let (mut variables, mut in_use, mut stack) = (BTreeMap::new(), true, None);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || {
            rest.next()
                .cloned()
                .ok_or_else(|| usage(&format!("{argument} needs a value")))
        };
        match argument.as_str() {
            "--suite" => suite = Some(value()?),
            "--profile" => profile = Some(value()?),
            "--stack" => stack = Some(locked(&value()?)?),
            "--only" => only.push(value()?),
            "--set" => {
                let pair = value()?;
                let (name, value) = pair
                    .split_once('=')
                    .ok_or_else(|| usage("--set takes NAME=VALUE"))?;
                variables.insert(name.to_owned(), value.to_owned());
            }
            "--drained" => in_use = false,
            "--json" => as_json = true,
            "--list" => return Ok(Wanted::List),
            "--help" | "-h" => return Ok(Wanted::Help),
            other => return Err(usage(&format!("{other:?} is not an option"))),
        }
    }
    let suite = read(SUITES, &suite.ok_or_else(|| usage("--suite is missing"))?)?;
    let profile = read(
        PROFILES,
        &profile.ok_or_else(|| usage("--profile is missing"))?,
    )?;
    let mut plan = GatePlan {
        suite,
        profile,
        only,
        stack,
        variables,
        in_use,
        protected: false,
        waived: Vec::new(),
        waived_until: [].into(),
        health: None,
        xid: None,
        firmware: None,
    };
    plan.set_former_gates(&[]);
    Ok(Wanted::Run {
        plan: Box::new(plan),
        as_json,
    })
}

/// The requirements of a locked stack for the machine, without files and identity of a node.
fn locked(path: &str) -> Result<ConvergePlan, Failure> {
    let wrong = |why: String| fatal(FailureCode::Usage, format!("{path}: {why}"));
    let bytes =
        files::read_capped(Path::new(path), STACK_MAX).map_err(|error| wrong(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|error| wrong(error.to_string()))?;
    let stack: StackSpec = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let stack = stack
        .for_node(Some(&inventory::look()))
        .map_err(&wrong)?
        .into_owned();
    let cdi = stack.needs_cdi_specification();
    let lock = stack
        .lock
        .ok_or_else(|| wrong("it has no lock: make one with `muster stack lock`".into()))?;
    Ok(ConvergePlan {
        lock: lock.digest(),
        repository: String::new(),
        marker: Marker {
            protocol: PROTOCOL,
            node: NodeId(Uuid::nil()),
            claim: ClaimId(Uuid::nil()),
            epoch: 0,
            image: lock.image_digest,
        },
        packages: lock.packages,
        absent: stack.absent,
        files: Vec::new(),
        sysctl: stack.sysctl,
        modules_load: stack.modules_load,
        modules_blacklist: stack.modules_blacklist,
        kernel_args: stack.kernel_args,
        limits: stack.limits,
        services: stack.services,
        cdi,
        principal: String::new(),
        user_ca: String::new(),
        dry_run: true,
    })
}

fn usage(what: &str) -> Failure {
    fatal(FailureCode::Usage, format!("{what}\n\n{USAGE}"))
}

/// Reads a file, or a shipped document.
fn read<T: DeserializeOwned>(shipped: &[Shipped], word: &str) -> Result<T, Failure> {
    let wrong = |why: String| fatal(FailureCode::Usage, format!("{word}: {why}"));
    let text = match Shipped::find(shipped, word) {
        Some(shipped) if !Path::new(word).exists() => shipped.text.to_owned(),
        _ => {
            let bytes = files::read_capped(Path::new(word), FILE_MAX).map_err(|error| {
                let names: Vec<&str> = shipped.iter().map(|shipped| shipped.name).collect();
                wrong(format!("{error}; with Muster come {}", names.join(", ")))
            })?;
            String::from_utf8(bytes).map_err(|error| wrong(error.to_string()))?
        }
    };
    toml::from_str(&text).map_err(|error| wrong(error.to_string()))
}

fn list() {
    for (what, shipped) in [("suite", SUITES), ("profile", PROFILES)] {
        for one in shipped {
            let said = one
                .text
                .lines()
                .next()
                .and_then(|line| line.strip_prefix("# "))
                .unwrap_or_default();
            println!("{what:<8} {:<14} {said}", one.name);
        }
    }
}
