//! What is looked at while the tools of other gates load the machine: throttling shows under load, and is over with it. Every look is judged, the worst is
//! the gate's answer, and it alone is kept.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use muster_core::facts::Facts;
use muster_core::gates::{Assessment, During, Evidence, Gate, Verdict};
use muster_core::wire::node::GatePlan;

use super::Bench;
use super::execute::{self, Stop};
use crate::job::JobContext;

/// How soon it is seen that a load is over.
const POLL: Duration = Duration::from_millis(50);
/// Fewer looks say nothing of a load.
const LEAST: u32 = 3;

/// What the looks of one gate came to until now.
#[derive(Default)]
pub(super) struct Looks {
    count: u32,
    worst: Option<Look>,
    /// The gates whose tools ran meanwhile.
    during: BTreeSet<String>,
}

/// One look.
struct Look {
    assessment: Assessment,
    evidence: Evidence,
    /// Since the tool of this gate was started.
    at: Duration,
    during: String,
}

impl Look {
    /// The greater the worse: a value that missed before no answer, and more of them before fewer.
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

    /// The first of those that are as bad.
    fn keep(&mut self, look: Look) {
        if self
            .worst
            .as_ref()
            .is_none_or(|worst| worst.badness() < look.badness())
        {
            self.worst = Some(look);
        }
    }

    /// Those of another load, too.
    pub(super) fn join(&mut self, others: Self) {
        self.count = self.count.saturating_add(others.count);
        self.during.extend(others.during);
        others.worst.into_iter().for_each(|look| self.keep(look));
    }
}

/// Runs what a gate runs, with the gates that look on meanwhile.
pub(super) fn watched<T>(load: &Gate, bench: &Bench<'_>, run: impl FnOnce() -> T) -> T {
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
    let (cx, plan, facts) = (bench.cx, bench.plan, bench.facts);
    std::thread::scope(|scope| {
        let start = |gate| {
            let over = &over;
            (
                gate,
                scope.spawn(move || look_on((cx, plan, facts), gate, load, over)),
            )
        };
        let threads: Vec<_> = gates.into_iter().map(start).collect();
        let ends = Ends(&over);
        let result = run();
        drop(ends);
        for (gate, thread) in threads {
            // One that panicked saw nothing.
            if let Ok(looks) = thread.join() {
                bench.shared.looked_on(&gate.id, looks);
            }
        }
        result
    })
}

/// Says that the load is over, however it ended: nobody looks on for ever.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn look_on(
    (cx, plan, facts): (&JobContext, &GatePlan, &Facts),
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
        let assessment = match once(cx, (plan, facts), gate, &mut evidence) {
            // What was said of a machine that nothing loads any more; a tool that hung did so under load.
            Ok(_) | Err(Stop::Unknown(_) | Stop::Absent(_)) if over.load(Ordering::SeqCst) => {
                return looks;
            }
            Err(Stop::Cancelled) => return looks,
            Ok(assessment) => assessment,
            Err(Stop::TimedOut { hangs }) => execute::timed_out(gate, hangs),
            Err(Stop::Unknown(why) | Stop::Absent(why)) => execute::without(Verdict::Error, why),
        };
        looks.add(Look {
            assessment,
            evidence,
            at,
            during: load.id.clone(),
        });
    }
}

fn once(
    cx: &JobContext,
    (plan, facts): (&GatePlan, &Facts),
    gate: &Gate,
    evidence: &mut Evidence,
) -> Result<Assessment, Stop> {
    let words = execute::words(plan, None, None);
    let expanded = |argument: &String| execute::expand(argument, &words).map_err(Stop::Absent);
    let argv = gate
        .argv
        .iter()
        .map(expanded)
        .collect::<Result<Vec<_>, _>>()?;
    evidence.argv.clone_from(&argv);
    let finished = execute::called(gate, cx, &argv)
        .map_err(|error| execute::stopped(error, gate, evidence))?;
    execute::keep(evidence, None, &finished.stdout, &finished.stderr);
    evidence.exit = finished.status.code();
    let exit = execute::exit_of(gate, &argv[0], &finished)?;
    let reading =
        execute::understand(gate, plan, (exit, &finished.stdout, &finished.stderr), None)?;
    Ok(execute::judge(
        gate,
        &execute::reference_of(plan, facts),
        reading,
        evidence,
    ))
}

/// The gate's answer: the worst look, with when it was taken.
///
/// # Errors
/// The reason where nothing loaded the machine.
pub(super) fn seen(
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
    let told = format!(
        "{} looks while {named} ran, the worst {} s into {load}",
        looks.count,
        at.as_secs()
    );
    let assessment = match assessment.verdict {
        Verdict::Pass if looks.count < LEAST => execute::without(
            Verdict::Error,
            format!("{told}: fewer than {LEAST} say nothing of a load"),
        ),
        _ => Assessment {
            reason: format!("{}; {told}", assessment.reason),
            ..assessment
        },
    };
    Ok((assessment, evidence))
}
