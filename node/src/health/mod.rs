//! `muster-node health`: decides whether the node is fit for the next job. A scheduler's prolog and
//! health check run the verb. The verb runs the pool's smoke suite, received with the last gates
//! run by the server, in bounded time. A fresh verdict is reported again without a new run.
//!
//! Only a measured failure takes a node out. A crashed tool, a verdict missing in time, or a node
//! without a suite let jobs continue, and the output names the reason. Admission and sweeps pass
//! only measured nodes.

mod slurm; // Drains the node in its scheduler

use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use muster_core::gates::{Gate, GateResult, Judged, OnTimeout, SuiteVerdict, Verdict, judge};
use muster_core::recovery::Unfit;
use muster_core::values::Digest;
use muster_core::wire::node::{Failure, FailureCode, GatePlan};
use serde::{Deserialize, Serialize};

use crate::failure::fatal;
use crate::gates::{self, Kept, Shared};
use crate::job::JobContext;
use crate::machine::Machine;
use crate::tool::Guard;
use crate::{files, inventory, paths};

const USAGE: &str = "\
muster-node health [--max-age S] [--within S] [--drain] [--strict]

Reports whether this node is fit for the next job, by the smoke suite of its pool.

  --max-age S   reuse a verdict younger than S seconds; default 60; 0 always measures again
  --within S    seconds until the answer; 1 to 55, default 10
  --drain       drain the node in Slurm when unfit, with the gate as the reason, unless another reason already
                keeps the node from jobs. For Prolog, and for HealthCheckProgram, whose exit code Slurm ignores
  --strict      also treat a missing verdict as unfit

Exit codes: 0 fit, or no verdict; 1 not fit; 64 usage error.";

/// The plan with the pool's smoke suite, as sent by the server.
const PLAN: &str = "/var/lib/muster/health.json";
/// The last verdict, valid for one boot: a reboot removes the file.
const LAST: &str = "/run/muster/health.json";
const PLAN_MAX: u64 = 8 << 20;
const LAST_MAX: u64 = 64 << 10;
/// Extra wait for a killed tool after its timeout. A tool hanging in the kernel cannot be killed
/// and is not waited for any longer.
const GRACE: Duration = Duration::from_millis(500);
/// A tool given less time than this, near the end of the verb's time, counts as slow rather than
/// failed.
const FAIR: Duration = Duration::from_secs(5);
/// A tool killed less than this ago may still be ending.
const SLOW: Duration = Duration::from_secs(1);
/// Exit code of a usage error (EX_USAGE of sysexits).
const NOT_UNDERSTOOD: u8 = 64;

/// The options of the command line.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    max_age_s: u64,
    within: Duration,
    drain: bool,
    strict: bool,
}

/// A stored verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Last {
    /// Seconds since the boot.
    at_s: u64,
    /// Digest of the plan used for the verdict.
    plan: Digest,
    verdict: String,
    reason: String,
}

/// Stores the pool's smoke suite for later health checks. Removes the stored suite when the pool
/// has no smoke suite.
///
/// # Errors
/// `io`.
pub(crate) fn keep(plan: &GatePlan) -> Result<(), Failure> {
    let path = paths::at(PLAN);
    match &plan.health {
        Some(suite) => {
            let (suite, only, health) = (suite.clone(), Vec::new(), None);
            // Without the member, an earlier version of this program reads the file.
            let protected = false;
            // The plan's profile and stack may hold text readable by root only.
            files::write_json(
                &path,
                0o600,
                &GatePlan {
                    suite,
                    only,
                    health,
                    in_use: true,
                    protected,
                    ..plan.clone()
                },
            )
        }
        None => match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(crate::failure::io(path.display())(error))
            }
            _ => Ok(()),
        },
    }
}

/// Runs the verb.
pub fn command(arguments: &[String]) -> ExitCode {
    let wanted = match parse(arguments) {
        Ok(Some(wanted)) => wanted,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(failure) => {
            eprintln!("muster-node: {}", failure.message);
            return ExitCode::from(NOT_UNDERSTOOD);
        }
    };
    let (verdict, reason, looks) = answer(wanted);
    println!("{}: {reason}", verdict.as_str());
    let unfit = match verdict {
        SuiteVerdict::Pass => false,
        SuiteVerdict::Fail => true,
        SuiteVerdict::Unknown => wanted.strict,
    };
    let drained = unfit && wanted.drain && slurm::drain(&reason);
    // A failure is reported again until a person acts: the drain shows the reason to the person, an
    // exit code alone does not.
    if verdict != SuiteVerdict::Fail || drained {
        keep_looks(&looks);
    }
    if unfit && wanted.drain && !drained {
        // Slurm has not drained the node for this failure, so the next check measures again.
        let _none_to_forget = std::fs::remove_file(paths::at(LAST));
    }
    if unfit {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// Stores the position in the kernel log, so that a reported line is not reported again.
fn keep_looks(looks: &[Kept]) {
    for look in looks {
        if let Err(failure) = look.write() {
            eprintln!(
                "muster-node: the position in the kernel log could not be saved: {}",
                failure.message
            );
        }
    }
}

fn parse(arguments: &[String]) -> Result<Option<Wanted>, Failure> {
    let mut wanted = Wanted {
        max_age_s: 60,
        within: Duration::from_secs(10),
        drain: false,
        strict: false,
    };
    let usage = |what: &str| fatal(FailureCode::Usage, format!("{what}\n\n{USAGE}"));
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut seconds = || -> Result<u64, Failure> {
            let value = rest.next().and_then(|value| value.parse().ok());
            value.ok_or_else(|| usage(&format!("{argument} takes a number of seconds")))
        };
        match argument.as_str() {
            "--max-age" => wanted.max_age_s = seconds()?,
            "--within" => match seconds()? {
                within @ 1..=55 => wanted.within = Duration::from_secs(within),
                _ => {
                    return Err(usage(
                        "--within takes 1 to 55: Slurm ends a health check after 60 seconds",
                    ));
                }
            },
            "--drain" => wanted.drain = true,
            "--strict" => wanted.strict = true,
            "--help" | "-h" => return Ok(None),
            other => return Err(usage(&format!("{other:?} is not an option"))),
        }
    }
    Ok(Some(wanted))
}

/// Returns the last verdict while fresh, otherwise a new verdict.
fn answer(wanted: Wanted) -> (SuiteVerdict, String, Vec<Kept>) {
    let unknown = |why: String| (SuiteVerdict::Unknown, why, Vec::new());
    let plan: GatePlan = match files::read_json(&paths::at(PLAN), PLAN_MAX) {
        Ok(Some(plan)) => plan,
        Ok(None) => return unknown("this node has no smoke suite".into()),
        Err(failure) => return unknown(failure.message),
    };
    let of = Digest::of(&serde_json::to_vec(&plan).unwrap_or_default());
    let now_s = up_s();
    if let Some((verdict, reason)) = now_s.and_then(|now_s| fresh(of, now_s, wanted.max_age_s)) {
        return (verdict, reason, Vec::new());
    }
    let (verdict, reason, looks) = measure(plan, wanted.within);
    if let Some(at_s) = now_s {
        let last = Last {
            at_s,
            plan: of,
            verdict: verdict.as_str().into(),
            reason: reason.clone(),
        };
        // A verdict that cannot be stored is measured again; no other code depends on the file.
        let _told_again = files::write_json(&paths::at(LAST), 0o644, &last);
    }
    (verdict, reason, looks)
}

/// Returns the last verdict of the same plan and the same boot, when younger than `max_age_s`.
fn fresh(plan: Digest, now_s: u64, max_age_s: u64) -> Option<(SuiteVerdict, String)> {
    let last: Last = files::read_json(&paths::at(LAST), LAST_MAX).ok()??;
    let age_s = now_s.checked_sub(last.at_s)?;
    if last.plan != plan || age_s >= max_age_s {
        return None;
    }
    let verdict = match last.verdict.as_str() {
        "pass" => SuiteVerdict::Pass,
        "fail" => SuiteVerdict::Fail,
        _ => return None,
    };
    Some((verdict, format!("{} ({age_s} s ago)", last.reason)))
}

/// Returns the seconds since the boot, a clock that no person sets.
fn up_s() -> Option<u64> {
    let text = files::read_capped(&paths::at("/proc/uptime"), 128).ok()?;
    String::from_utf8_lossy(&text)
        .split('.')
        .next()?
        .trim()
        .parse()
        .ok()
}

/// A message of the measuring thread.
enum Said {
    /// A gate began; the gate carries its own timeout.
    Begun(Box<Gate>),
    Ended(Vec<GateResult>, Vec<Kept>),
}

/// Runs the suite, gate by gate, in a thread. A thread that does not return is left behind.
fn measure(plan: GatePlan, within: Duration) -> (SuiteVerdict, String, Vec<Kept>) {
    let deadline = Instant::now() + within;
    let (said, heard) = mpsc::channel();
    let asked = plan.clone();
    std::thread::spawn(move || run_all(&asked, within, &said));
    let (mut results, mut looks, mut running) = (Vec::new(), Vec::new(), None);
    loop {
        match heard.recv_timeout((deadline + GRACE).saturating_duration_since(Instant::now())) {
            Ok(Said::Begun(gate)) => running = Some((gate, Instant::now())),
            Ok(Said::Ended(more, looked)) => {
                results.extend(more);
                looks = looked;
                running = None;
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let fails = |gate: &Gate, begun: &Instant| {
                    hangs(gate, begun.elapsed()) && !waived(&plan, &gate.id)
                };
                if let Some((gate, _)) = running.as_ref().filter(|(gate, begun)| fails(gate, begun))
                {
                    let unfit = Unfit {
                        gate: gate.id.clone(),
                        action: None,
                        message: "the tool hangs and cannot be killed".into(),
                    };
                    return (SuiteVerdict::Fail, unfit.to_string(), looks);
                }
                break;
            }
        }
    }
    let (verdict, reason) = told(&plan, &results);
    (verdict, reason, looks)
}

/// Runs gate by gate and reports each begin and end. Facts are read without running a tool, so the
/// first program started is a gate's own. A hanging program is therefore assigned to its gate.
fn run_all(plan: &GatePlan, within: Duration, said: &mpsc::Sender<Said>) {
    let cx = JobContext::foreground(within);
    let (facts, shared) = (inventory::look(), Shared::default());
    // A scheduler runs this verb in its own cgroup, and ends the verb by that cgroup. The first
    // program started is a gate's own, so systemd makes no scope.
    let guard = Guard::files_only();
    for at in 0..plan.suite.gates.len() {
        let one = one_gate(plan, at, cx.remaining());
        let begun = one
            .suite
            .gates
            .iter()
            .try_for_each(|gate| said.send(Said::Begun(Box::new(gate.clone()))));
        if begun.is_err() {
            return;
        }
        let bench = gates::Bench {
            machine: Machine::host(),
            plan: &one,
            facts: &facts,
            cx: &cx,
            guard: Some(&guard),
            shared: &shared,
        };
        let settles = plan_gate(plan, at).map_or(0, |gate| gate.settle_s);
        let results = gates::run_on(&bench).unwrap_or_default();
        let results = results
            .into_iter()
            .map(|result| settled(result, settles, up_s()))
            .collect();
        if said.send(Said::Ended(results, shared.looks())).is_err() {
            return;
        }
    }
}

/// Turns a failure within the settle time after a boot into an error: `health` does not wait for
/// settling, so a missed value is not a verdict yet.
fn settled(result: GateResult, settles_s: u64, up_s: Option<u64>) -> GateResult {
    match up_s.filter(|up_s| *up_s < settles_s && result.verdict == Verdict::Fail) {
        Some(up_s) => {
            let reason = format!(
                "{}; the node booted {up_s} s ago, and the gate may need {settles_s} s after a boot",
                result.reason
            );
            GateResult {
                verdict: Verdict::Error,
                reason,
                ..result
            }
        }
        None => result,
    }
}

/// Whether a gate's tool was killed after its timeout and still exists.
fn hangs(gate: &Gate, running: Duration) -> bool {
    gate.on_timeout == OnTimeout::Fail && running >= Duration::from_secs(gate.timeout_s) + SLOW
}

/// Returns the plan for a single gate of the suite, in the order of stages, with no more time than
/// is left.
fn one_gate(plan: &GatePlan, at: usize, left: Duration) -> GatePlan {
    let mut one = plan.clone();
    one.suite.gates = plan_gate(plan, at).into_iter().collect();
    for gate in &mut one.suite.gates {
        // The gate's timeout ends before the verb's time, so that a hang is detected as a hang.
        let ours = left.as_secs().saturating_sub(1).max(1);
        if ours < gate.timeout_s {
            gate.timeout_s = ours;
            if ours < FAIR.as_secs() {
                gate.on_timeout = OnTimeout::Error;
            }
        }
        (gate.retries, gate.settle_s) = (0, 0);
    }
    one
}

/// Returns a gate of the suite by its place in the order of stages.
fn plan_gate(plan: &GatePlan, at: usize) -> Option<Gate> {
    let mut gates: Vec<&Gate> = plan.suite.gates.iter().collect();
    gates.sort_by_key(|gate| gate.stage);
    gates.get(at).map(|gate| (*gate).clone())
}

/// Whether a waiver replaces the gate's verdict now. A waiver without a known end does not count.
fn waived(plan: &GatePlan, gate: &str) -> bool {
    plan.waived_until
        .get(gate)
        .is_some_and(|until| *until > muster_core::clock::Clock::System.now())
}

fn told(plan: &GatePlan, results: &[GateResult]) -> (SuiteVerdict, String) {
    let now = muster_core::clock::Clock::System.now();
    let by = Judged {
        suite: &plan.suite,
        profile: Some(&plan.profile),
        wanted: &[],
        now,
    };
    let counts = |result: &GateResult| match waived(plan, &result.gate) {
        true => GateResult {
            verdict: Verdict::Pass,
            ..result.clone()
        },
        false => result.clone(),
    };
    let results: Vec<GateResult> = results.iter().map(counts).collect();
    let verdict = judge(&by, &results);
    let wanted = |result: &&GateResult| match verdict {
        SuiteVerdict::Pass => false,
        SuiteVerdict::Fail => result.verdict == Verdict::Fail && !result.shadow,
        SuiteVerdict::Unknown => result.verdict != Verdict::Pass && !result.shadow,
    };
    let worst = results
        .iter()
        .find(wanted)
        .map(|result| Unfit::of(result).to_string());
    let reason = worst.unwrap_or_else(|| match verdict {
        SuiteVerdict::Pass => format!("{} gates pass", results.len()),
        SuiteVerdict::Fail | SuiteVerdict::Unknown => {
            format!(
                "{} of {} gates finished in time",
                results.len(),
                plan.suite.gates.len()
            )
        }
    });
    (verdict, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gates::tests::bench::plan_of;

    #[test]
    fn a_tool_hangs_that_had_a_fair_time_and_does_not_die_of_its_end() {
        let suite: muster_core::gates::Suite =
            toml::from_str(include_str!("../../../suites/smoke.toml")).expect("a shipped suite");
        let plan = GatePlan {
            in_use: true,
            ..plan_of(suite)
        };
        let at = plan
            .suite
            .gates
            .iter()
            .position(|gate| gate.id == "gpu.inventory")
            .expect("a gate");
        let with = |left_s: u64, ran_s: u64| {
            let gate = one_gate(&plan, at, Duration::from_secs(left_s))
                .suite
                .gates
                .remove(0);
            hangs(&gate, Duration::from_secs(ran_s))
        };
        assert_eq!(
            (with(10, 9), with(10, 10)),
            (false, true),
            "killed after 9 seconds"
        );
        assert_eq!(
            (with(4, 4), with(4, 9)),
            (false, false),
            "3 seconds are too few to say anything"
        );
        assert_eq!(
            (with(6, 5), with(6, 6), with(5, 9)),
            (false, true, false),
            "5 seconds are enough, and 4 are not"
        );
    }
}
