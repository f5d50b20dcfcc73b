//! Gates measured while the tools of other gates load the machine: throttling appears under load
//! only. Every sample is judged; the worst sample is
//! the gate's answer and the only stored sample.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use muster_core::facts::Facts;
use muster_core::gates::{Assessment, During, Evidence, Gate, Verdict};

use super::Bench;
use super::argv::collect_words;
use super::call::{
    Place, Stop, ToolAnswer, check_exit, classify_error, expand_argv, parse_answer, run_tool,
};
use super::evidence::keep_output;
use super::verdict::{judge_reading, judge_timeout, reference_of, unmeasured};

/// Interval for checking the end of a load.
const POLL: Duration = Duration::from_millis(50);
/// Minimum number of samples under a load.
const LEAST: u32 = 3;

/// The state of a gate's samples.
#[derive(Default)]
pub(super) struct Looks {
    count: u32,
    worst: Option<Look>,
    /// The gates with tools running meanwhile.
    during: BTreeSet<String>,
}

/// A sample.
struct Look {
    assessment: Assessment,
    evidence: Evidence,
    /// Time since the start of the gate's tool.
    at: Duration,
    during: String,
}

impl Look {
    /// Severity: a missed criterion is worse than a missing answer, and more missed criteria are
    /// worse than fewer.
    fn badness(&self) -> (u8, usize) {
        let worst = match self.assessment.verdict {
            Verdict::Fail => 3,
            Verdict::Error => 2,
            Verdict::Skipped => 1,
            Verdict::Pass => 0,
        };
        (
            worst,
            self.assessment
                .measured
                .iter()
                .filter(|value| value.verdict != Verdict::Pass)
                .count(),
        )
    }
}

impl Looks {
    fn add(&mut self, look: Look) {
        self.count = self.count.saturating_add(1);
        self.during.insert(look.during.clone());
        self.keep(look);
    }

    /// Returns the first of the worst samples.
    fn keep(&mut self, look: Look) {
        if self
            .worst
            .as_ref()
            .is_none_or(|worst| worst.badness() < look.badness())
        {
            self.worst = Some(look);
        }
    }

    /// Adds the samples of another load.
    pub(super) fn join(&mut self, others: Self) {
        self.count = self.count.saturating_add(others.count);
        self.during.extend(others.during);
        others.worst.into_iter().for_each(|look| self.keep(look));
    }
}

/// Runs the tool of a gate, and meanwhile samples the gates watching this load.
pub(super) fn run_watched<T>(load: &Gate, bench: &Bench<'_>, run: impl FnOnce() -> T) -> T {
    let looks_on = |gate: &&Gate| {
        gate.during
            .as_ref()
            .is_some_and(|during| during.gates.contains(&load.id))
    };
    let wanted = |gate: &&Gate| bench.plan.only.is_empty() || bench.plan.only.contains(&gate.id);
    let gates: Vec<&Gate> = bench
        .plan
        .suite
        .gates
        .iter()
        .filter(looks_on)
        .filter(wanted)
        .collect();
    if gates.is_empty() {
        return run();
    }
    let over = AtomicBool::new(false);
    let facts = bench.facts;
    let place = Place {
        plan: bench.plan,
        cx: bench.cx,
        guard: bench.guard,
        machine: &bench.machine,
    };
    std::thread::scope(|scope| {
        let start = |gate| {
            let over = &over;
            (
                gate,
                scope.spawn(move || watch_load(place, facts, gate, load, over)),
            )
        };
        let threads: Vec<_> = gates.into_iter().map(start).collect();
        let ends = Ends(&over);
        let result = run();
        drop(ends);
        for (gate, thread) in threads {
            // A panicked thread has no samples.
            if let Ok(looks) = thread.join() {
                bench.shared.add_looks(&gate.id, looks);
            }
        }
        result
    })
}

/// Signals the end of the load, also after a panic, so the sampling ends.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Samples the machine until the load ends.
fn watch_load(
    place: Place<'_>,
    facts: &Facts,
    gate: &Gate,
    load: &Gate,
    over: &AtomicBool,
) -> Looks {
    let mut looks = Looks::default();
    let every = Duration::from_secs(gate.during.as_ref().map_or(1, |during| during.every_s));
    let began = Instant::now();
    loop {
        let next = Instant::now() + every;
        while Instant::now() < next {
            if over.load(Ordering::SeqCst) {
                return looks;
            }
            std::thread::sleep(POLL);
        }
        let (at, mut evidence) = (
            began.elapsed(),
            Evidence {
                argv: gate.argv.clone(),
                ..Evidence::default()
            },
        );
        let assessment = match take_look(place, facts, gate, &mut evidence) {
            // An answer after the end of the load is dropped. A hanging tool hung under the load,
            // so the timeout counts.
            Ok(_) | Err(Stop::Unknown(_) | Stop::Limited(_) | Stop::Absent(_))
                if over.load(Ordering::SeqCst) =>
            {
                return looks;
            }
            Err(Stop::Cancelled) => return looks,
            Ok(assessment) => assessment,
            Err(Stop::TimedOut { hangs }) => judge_timeout(gate, hangs),
            Err(Stop::Unknown(why) | Stop::Limited(why) | Stop::Absent(why)) => {
                unmeasured(Verdict::Error, why)
            }
        };
        looks.add(Look {
            assessment,
            evidence,
            at,
            during: load.id.clone(),
        });
    }
}

/// Runs the gate's tool once and judges the answer.
fn take_look(
    place: Place<'_>,
    facts: &Facts,
    gate: &Gate,
    evidence: &mut Evidence,
) -> Result<Assessment, Stop> {
    let plan = place.plan;
    let argv = expand_argv(gate, &collect_words(plan, None, None))?;
    evidence.argv.clone_from(&argv);
    let finished = run_tool(gate, place, &argv, None)
        .map_err(|error| classify_error(error, gate, evidence))?;
    keep_output(evidence, None, &finished.stdout, &finished.stderr);
    evidence.exit = finished.status.code();
    let tool = ToolAnswer {
        exit: check_exit(gate, &argv[0], &finished)?,
        answer: &finished.stdout,
        messages: &finished.stderr,
    };
    let reading = parse_answer(gate, plan, &tool, None)?;
    let reference = reference_of(plan, facts);
    Ok(judge_reading(gate, &reference, reading, evidence))
}

/// Returns the worst look as the gate's answer, with the time of that look.
///
/// # Errors
/// The reason, where no gate loaded the machine.
pub(super) fn judge_looks(
    gate: &Gate,
    during: &During,
    bench: &Bench<'_>,
) -> Result<(Assessment, Evidence), String> {
    let looks = bench.shared.take_looks_of(&gate.id);
    let Some(Look {
        assessment,
        evidence,
        at,
        during: load,
    }) = looks.worst
    else {
        return Err(format!(
            "nothing loaded the machine for it to be looked at: none of {} ran",
            during.gates.join(", ")
        ));
    };
    let named = looks.during.into_iter().collect::<Vec<_>>().join(", ");
    let taken = format!(
        "{} looks while {named} ran, the worst {} s into {load}",
        looks.count,
        at.as_secs()
    );
    let assessment = match assessment.verdict {
        Verdict::Pass if looks.count < LEAST => unmeasured(
            Verdict::Error,
            format!("{taken}: fewer than {LEAST} say nothing of a load"),
        ),
        _ => Assessment {
            reason: format!("{}; {taken}", assessment.reason),
            ..assessment
        },
    };
    Ok((assessment, evidence))
}
