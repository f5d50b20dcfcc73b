//! Two nodes measure the connection between them in both directions. One end listens and the other
//! asks. The job changes no state, so another attempt repeats the measurement.
//!
//! The listener ends with the connection of the agent, and at the latest at its own deadline. The
//! asking end ends by the time limit of the gate. Each end holds the lock of its node, so leftovers
//! of a crashed attempt are waited for.

use std::time::Duration;

use bytes::Bytes;
use muster_core::gates::{Evidence, Gate, GateResult, Mode, Verdict};
use muster_core::values::Digest;
use muster_core::wire::PROTOCOL;
use muster_core::wire::node::{Failure, FailureCode, GatePlan};
use muster_core::wire::pair::{PairAnswer, PairEnd, PairLine, PairOrder, PairPlan, PairWay};
use muster_core::wire::result::JobResult;
use tokio::time::Instant;

use super::node_job::ensure_node;
use super::reach::{TRY, pause_after};
use crate::ssh::command::Command;
use crate::ssh::lines::Lines;
use crate::ssh::{Session, SshError};
use crate::work::context::{JobContext, failed, fatal};

/// Time limit for the login. A node held for the measurement is up. A node without an answer in
/// this time is reported and not waited for.
const LOG_IN_WITHIN: Duration = Duration::from_secs(60);
/// Extra time for both ends beyond the times of the gate, for work on the node and the network.
const MARGIN: Duration = Duration::from_secs(30);
/// Pause before asking a node again while another job holds its lock.
const BUSY_AGAIN: Duration = Duration::from_secs(2);
/// Time limit for the end of the listener after its input was closed.
const HANG_UP: Duration = Duration::from_secs(10);

/// An end of the pair with its session.
struct At<'a> {
    end: &'a PairEnd,
    session: Session,
}

pub(super) async fn run(context: &JobContext, order: &PairOrder) -> Result<JobResult, Failure> {
    let [one, other] = &order.ends;
    let (one, other) = tokio::try_join!(log_in(context, one), log_in(context, other))?;
    let ways = vec![
        way(context, &one, &other).await?,
        way(context, &other, &one).await?,
    ];
    Ok(JobResult::Paired { ways })
}

async fn log_in<'a>(context: &JobContext, end: &'a PairEnd) -> Result<At<'a>, Failure> {
    let until = Instant::now() + LOG_IN_WITHIN;
    loop {
        let error = match Session::connect(&end.login, TRY).await {
            Ok(session) => {
                ensure_node(context, &session, &end.login)
                    .await
                    .map_err(|error| of(end, error))?;
                return Ok(At { end, session });
            }
            Err(error) => error,
        };
        if !error.connection() || Instant::now() >= until {
            return Err(of(end, error));
        }
        context
            .voice
            .waiting_for(format!("SSH on {} ({error})", end.name));
        tokio::time::sleep(pause_after(&error)).await;
    }
}

/// Returns the failure with the name of the node.
fn of(end: &PairEnd, error: SshError) -> Failure {
    let failure = Failure::from(error);
    Failure {
        message: format!("{}: {}", end.name, failure.message),
        ..failure
    }
}

/// Runs every pair gate of the suite in a single direction.
async fn way(context: &JobContext, asks: &At<'_>, listens: &At<'_>) -> Result<PairWay, Failure> {
    let (mut results, mut fingerprint) = (Vec::new(), None);
    for gate in asks
        .end
        .plan
        .suite
        .gates
        .iter()
        .filter(|gate| gate.peer.is_some())
    {
        context.voice.waiting_for(format!(
            "the measurement from {} to {}: {}",
            asks.end.name, listens.end.name, gate.title
        ));
        let mut former = Vec::new();
        let ended = loop {
            let (ended, of_now) = once(context, gate, asks, listens).await?;
            fingerprint = of_now.or(fingerprint);
            let Some(why) = erred(&ended).filter(|_| former.len() < gate.retries as usize) else {
                break ended;
            };
            context
                .voice
                .log(format!("{}: run again after: {why}", gate.id));
            former.push(why);
        };
        results.extend(ended.into_iter().map(|result| GateResult {
            former: former.clone(),
            ..result
        }));
    }
    context.voice.moving();
    Ok(PairWay {
        from: asks.end.node,
        to: listens.end.node,
        results,
        fingerprint,
    })
}

/// Runs a gate once. Returns the results and the hardware fingerprint of the asking node.
async fn once(
    context: &JobContext,
    gate: &Gate,
    asks: &At<'_>,
    listens: &At<'_>,
) -> Result<(Vec<GateResult>, Option<Digest>), Failure> {
    match measure(context, gate, asks, listens).await {
        Ok(answer) => Ok((answer.results, Some(answer.fingerprint))),
        // A broken connection gives no result for the gate.
        Err(failure) if failure.code.is_of_connection() => Err(failure),
        Err(failure) => Ok((
            vec![unmeasured(context, gate, &asks.end.plan, failure)],
            None,
        )),
    }
}

/// Returns the reason of the first result with an error.
fn erred(results: &[GateResult]) -> Option<String> {
    results
        .iter()
        .find(|result| result.verdict == Verdict::Error)
        .map(|result| result.reason.clone())
}

/// Measures a gate in a single direction. The listener ends before the function returns, with
/// success or error. When the job is dropped, the closed connection ends the listener.
async fn measure(
    context: &JobContext,
    gate: &Gate,
    asks: &At<'_>,
    listens: &At<'_>,
) -> Result<PairAnswer, Failure> {
    let until = Instant::now() + times(gate);
    let (port, listener) = loop {
        match listen(context, gate, listens).await {
            Err(failure) if failure.code == FailureCode::Busy && Instant::now() < until => {
                tokio::time::sleep(BUSY_AGAIN).await
            }
            listening => break listening?,
        }
    };
    let answer = loop {
        match ask(context, gate, asks, port).await {
            Err(failure) if failure.code == FailureCode::Busy && Instant::now() < until => {
                tokio::time::sleep(BUSY_AGAIN).await
            }
            answer => break answer,
        }
    };
    listener.hang_up(HANG_UP).await;
    answer
}

/// Returns the maximum running time of either end of a gate.
fn times(gate: &Gate) -> Duration {
    let ready_s = gate.peer.as_ref().map_or(0, |peer| peer.ready_s);
    Duration::from_secs(gate.timeout_s + ready_s) + MARGIN
}

/// Starts the listener and waits for its port.
async fn listen(context: &JobContext, gate: &Gate, at: &At<'_>) -> Result<(u16, Lines), Failure> {
    let plan = input(context, gate, &at.end.plan, None);
    let ready = Duration::from_secs(gate.peer.as_ref().map_or(0, |peer| peer.ready_s)) + MARGIN;
    let mut lines = at
        .session
        .held_lines(Command::PairServe, plan)
        .await
        .map_err(|error| of(at.end, error))?;
    let line = tokio::time::timeout(ready, lines.next())
        .await
        .map_err(|_| {
            failed(
                FailureCode::NotListening,
                format!("{}: nothing was heard of its listener", at.end.name),
            )
        })?
        .map_err(|error| of(at.end, error))?;
    match line.as_deref().map(serde_json::from_slice::<PairLine>) {
        Some(Ok(PairLine::Listening { port })) => Ok((port, lines)),
        Some(Ok(PairLine::Ended { said, .. })) => Err(failed(
            FailureCode::NotListening,
            format!("{}: its listener ended at once: {said}", at.end.name),
        )),
        Some(Err(error)) => Err(fatal(
            FailureCode::NodeProtocol,
            format!("{}: its line cannot be read: {error}", at.end.name),
        )),
        None => Err(failed(
            FailureCode::NotListening,
            format!("{}: its listener ended without a word", at.end.name),
        )),
    }
}

async fn ask(
    context: &JobContext,
    gate: &Gate,
    at: &At<'_>,
    port: u16,
) -> Result<PairAnswer, Failure> {
    let within_s = times(gate).as_secs();
    let plan = input(context, gate, &at.end.plan, Some(port));
    let said = at
        .session
        .exec(Command::PairAsk { within_s }, plan)
        .await
        .map_err(|error| of(at.end, error))?;
    serde_json::from_slice(&said).map_err(|error| {
        fatal(
            FailureCode::NodeProtocol,
            format!("{}: its answer cannot be read: {error}", at.end.name),
        )
    })
}

/// Returns the first input line of an end.
fn input(context: &JobContext, gate: &Gate, plan: &GatePlan, port: Option<u16>) -> Bytes {
    let mut plan = GatePlan {
        only: vec![gate.id.clone()],
        ..plan.clone()
    };
    // The listener chooses the port.
    plan.variables.remove("pair_port");
    plan.variables
        .extend(port.map(|port| ("pair_port".to_owned(), port.to_string())));
    let given = PairPlan {
        protocol: PROTOCOL,
        job: context.job.id,
        plan,
    };
    let mut line = serde_json::to_vec(&given).expect("a plan is plain data");
    line.push(b'\n');
    line.into()
}

/// Returns the result of a gate without an answer: an error, or skipped if the gate is optional and
/// the tool is missing.
fn unmeasured(context: &JobContext, gate: &Gate, plan: &GatePlan, failure: Failure) -> GateResult {
    let mode = gate.mode(Some(&plan.profile));
    let absent = matches!(
        failure.code,
        FailureCode::ToolMissing | FailureCode::NoVariable
    ) && mode != Mode::Required;
    GateResult {
        gate: gate.id.clone(),
        title: gate.title.clone(),
        stage: gate.stage,
        required: mode == Mode::Required,
        shadow: mode == Mode::Shadow,
        verdict: if absent {
            Verdict::Skipped
        } else {
            Verdict::Error
        },
        reason: failure.message,
        measured: Vec::new(),
        started_at: context.agent.clock.now(),
        duration_ms: 0,
        former: Vec::new(),
        finding: String::new(),
        waived: None,
        evidence: Evidence::default(),
    }
}
