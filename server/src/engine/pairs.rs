//! Runs of pairs: each open one is taken a step further, from idle nodes that are held to the nodes and paths that are blamed. What is measured next, and
//! what failures say, is `core/fabric`'s; a node gives itself back and leaves service by its own turns.
//!
//! Whoever decides holds the run's row, and locks nodes before anything of theirs. A turn holds its node and only reads of the run, or writes of that node.

use jiff::{SignedDuration, Timestamp};
use muster_core::fabric::{
    EndVerdict, Limits, Next, Pair, Trial, Verdicts, both_ways, next, one_way, verdicts,
};
use muster_core::gates::{GateResult, Judged, Verdict};
use muster_core::ids::OperationId;
use muster_core::lifecycle::pairing::Pairing;
use muster_core::recovery::Cause;
use muster_core::wire::pair::PairWay;
use muster_core::wire::result::JobResult;
use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::app::App;
use crate::db;
use crate::db::events::NewEvent;
use crate::db::lifecycle::EngineNode;
use crate::db::pairs::ends::EndRow;
use crate::db::pairs::runs::{Ended, OpenRun};
use crate::db::pairs::trials::{Settled, TrialRow};
use crate::error::Error;

/// Until a scheduler that did not take a node back is asked again.
const GIVE_BACK_AGAIN: SignedDuration = SignedDuration::from_secs(60);
/// Until a run's operation ends though a scheduler has not taken a node back; it is asked on.
const GIVEN_BACK_WITHIN: SignedDuration = SignedDuration::from_mins(10);
/// Names of nodes in such an operation's last word.
const NAMED: usize = 8;
/// Characters of what is wrong with one way of a pair.
const LONGEST_WHY: usize = 600;

/// What a run wants of a node in service now.
///
/// # Errors
/// When the database fails.
pub(super) async fn wanted(
    conn: &mut PgConnection,
    node: &EngineNode,
    now: Timestamp,
) -> Result<Option<Pairing>, Error> {
    let Some(part) = db::pairs::ends::find_part(conn, node.id).await? else {
        return Ok(None);
    };
    let under_way = |state: &Option<String>| matches!(state.as_deref(), Some("queued" | "leased"));
    Ok(Some(
        match (part.over, part.hold.as_deref(), part.back.as_deref()) {
            (true, _, Some("succeeded")) => Pairing::Back,
            (true, _, _) if under_way(&part.back) => {
                Pairing::Waits("the scheduler to use it again".into())
            }
            (true, _, Some(_)) => Pairing::GiveBack(
                part.back_failed_at
                    .map_or(now, |at| at.to_jiff() + GIVE_BACK_AGAIN),
            ),
            (true, _, None) => match (part.gate, part.blamed) {
                (Some(gate), Some(what)) => Pairing::Faulty(Cause::pairs(&gate, what)),
                (_, _) => Pairing::GiveBack(now),
            },
            (false, None, _) => Pairing::Hold,
            (false, Some("succeeded"), _) => match part.other {
                Some(_) if part.asks => Pairing::Measure,
                Some(other) => Pairing::Waits(format!("the measurement with {other}")),
                None => Pairing::Waits("the other nodes of its pool's pairs".into()),
            },
            (false, Some(_), _) => Pairing::Waits("the scheduler to hold back its jobs".into()),
        },
    ))
}

/// Takes every open run that nobody has in hand a step further; whether any went.
///
/// # Errors
/// When the database is away.
pub(super) async fn round(app: &App) -> Result<bool, Error> {
    let (mut after, mut moved) = (OperationId(Uuid::nil()), false);
    loop {
        let mut tx = app.pool.begin().await?;
        let Some(run) = db::pairs::runs::lock_open(&mut tx, after).await? else {
            return Ok(moved);
        };
        after = run.id;
        match step(&mut tx, &run, app.clock.now()).await {
            Ok(true) => {
                tx.commit().await?;
                moved = true;
            }
            Ok(false) => {}
            Err(error @ Error::Unavailable(_)) => return Err(error),
            // One run that goes wrong keeps no other waiting; it is tried again at the next poll.
            Err(error) => {
                tracing::error!(run = %run.id, error = ?error, "a run of pairs could not go on")
            }
        }
    }
}

/// A run with all that is known of it.
struct State<'a> {
    run: &'a OpenRun,
    ends: Vec<EndRow>,
    trials: Vec<TrialRow>,
    now: Timestamp,
}

/// One step; whether there was one to take.
async fn step(conn: &mut PgConnection, run: &OpenRun, now: Timestamp) -> Result<bool, Error> {
    let ends = db::pairs::ends::list(conn, run.id).await?;
    let trials = db::pairs::trials::list(conn, run.id).await?;
    let state = State {
        run,
        ends,
        trials,
        now,
    };
    if let Some(ended) = &run.ended {
        return state.give_back(conn, ended).await;
    }
    let leaving: Vec<(&str, String)> = state.ends.iter().filter_map(leaves).collect();
    if !leaving.is_empty() {
        db::pairs::ends::wake(conn, run.id, now).await?;
        for (name, why) in leaving {
            db::pairs::ends::leave_out(conn, run.id, name, &why, now).await?;
        }
        return Ok(true);
    }
    if state.settle(conn).await? {
        return Ok(true);
    }
    if run.stop {
        state.stop(conn, "stopped").await
    } else if now >= run.deadline_at {
        state.stop(conn, "overdue").await
    } else if state.measured().is_empty() {
        state.gather(conn).await
    } else {
        state.measure(conn).await
    }
}

/// Why a node that takes part does so no more.
fn leaves(end: &EndRow) -> Option<(&str, String)> {
    let why = match (&end.left_out, end.node, end.hold.as_deref()) {
        (Some(_), _, _) => return None,
        (None, None, _) => "it was removed".to_owned(),
        (None, Some(_), _) if end.stop => "stopped on request".to_owned(),
        (None, Some(_), Some("cancelled")) => "something else was asked of it".to_owned(),
        (None, Some(_), Some("failed")) => {
            format!(
                "its scheduler did not hold it: {}",
                end.failure.as_deref().unwrap_or("without a reason")
            )
        }
        (None, Some(_), _) => return None,
    };
    Some((&end.name, why))
}

impl State<'_> {
    /// The nodes that are measured, by position.
    fn measured(&self) -> Vec<&EndRow> {
        self.ends
            .iter()
            .filter(|end| end.position.is_some())
            .collect()
    }

    fn end(&self, position: i32) -> Option<&EndRow> {
        self.ends.iter().find(|end| end.position == Some(position))
    }

    /// The rounds that are settled, as `core/fabric` takes them.
    fn rounds(&self) -> Vec<Vec<Trial>> {
        let mut rounds: Vec<Vec<Trial>> = Vec::new();
        for trial in &self.trials {
            let Some(verdict) = trial.verdict.as_deref() else {
                continue;
            };
            let verdict = match verdict {
                "pass" => Verdict::Pass,
                "fail" => Verdict::Fail,
                _ => Verdict::Error,
            };
            let at = usize::try_from(trial.round).unwrap_or(0);
            rounds.resize(rounds.len().max(at + 1), Vec::new());
            rounds[at].push(Trial {
                pair: pair(trial),
                verdict,
            });
        }
        rounds
    }

    /// Keeps what came of measurements that are over; whether any was.
    async fn settle(&self, conn: &mut PgConnection) -> Result<bool, Error> {
        let mut any = false;
        for trial in self.trials.iter().filter(|trial| trial.verdict.is_none()) {
            let Some(settled) = self.outcome(trial) else {
                continue;
            };
            db::pairs::trials::settle(conn, self.run.id, trial, &settled, self.now).await?;
            any = true;
        }
        Ok(any)
    }

    /// What came of a measurement; nothing while it is under way. Nothing that was lost, stopped or answered by halves is a pass or a failure.
    fn outcome(&self, trial: &TrialRow) -> Option<Settled> {
        let left = [trial.a, trial.b]
            .into_iter()
            .find_map(|at| match self.end(at) {
                Some(EndRow {
                    name,
                    left_out: Some(why),
                    ..
                }) => Some(format!("{name} is not measured any more: {why}")),
                _ => None,
            });
        let error = |why: String| Some(unknown(&why));
        match (trial.job, trial.state.as_deref(), &trial.result) {
            (Some(_), Some("queued" | "leased"), _) => None,
            (None, _, _) => left.and_then(error),
            // Whatever was measured while one of the two was taken for something else says nothing of their path.
            (Some(_), Some("succeeded"), Some(result)) => match (left, &result.0) {
                (Some(why), _) => error(why),
                (None, JobResult::Paired { ways }) => Some(self.judge(trial, ways)),
                (None, _) => error("the agent answered with something else".into()),
            },
            (Some(_), Some("failed"), _) => error(trial.failure.clone().unwrap_or_default()),
            (Some(_), _, _) => error("it was stopped".into()),
        }
    }

    fn judge(&self, trial: &TrialRow, ways: &[PairWay]) -> Settled {
        let ways: Vec<PairWay> = ways.iter().map(|way| self.known(way)).collect();
        let (Some(a), Some(b), [there, back]) = (self.end(trial.a), self.end(trial.b), &ways[..])
        else {
            return unknown("the agent's answer is not both ways of the two");
        };
        let asked = |from: &EndRow, to: &EndRow, way: &PairWay| {
            Some(way.from) == from.node && Some(way.to) == to.node
        };
        if !(asked(a, b, there) && asked(b, a, back)) {
            return unknown("the agent's answer is of other nodes");
        }
        let one = |end: &EndRow, way: &PairWay| {
            let profile = end.profile.as_ref().map(|json| &json.0);
            let by = Judged {
                suite: &self.run.suite,
                profile,
                wanted: &[],
                now: self.now,
            };
            one_way(&by, &way.results)
        };
        let Trial { verdict, .. } = both_ways(pair(trial), [one(a, there), one(b, back)]);
        let told = [tell(a, b, there), tell(b, a, back)].concat();
        let mut results = there.results.iter().chain(&back.results);
        let failed = results.find(|result| counts(result) && result.verdict == Verdict::Fail);
        let gate = failed.map(|result| result.gate.clone());
        let why = (verdict != Verdict::Pass).then(|| cut(&told.join("; ")));
        Settled {
            verdict,
            gate,
            why,
            ways,
        }
    }

    /// What of an answer was asked for. That something is waived is the server's alone to say, and of pairs nothing is.
    fn known(&self, way: &PairWay) -> PairWay {
        let gates = &self.run.suite.gates;
        let result = |id: &str| way.results.iter().find(|result| result.gate == id);
        let asked = gates.iter().filter_map(|gate| result(&gate.id));
        let results = asked
            .map(|result| GateResult {
                waived: None,
                ..result.clone()
            })
            .collect();
        PairWay {
            results,
            ..way.clone()
        }
    }

    /// Waits until it is known of everybody whether they could be held, and numbers those that were.
    async fn gather(&self, conn: &mut PgConnection) -> Result<bool, Error> {
        let taking_part: Vec<&EndRow> = self
            .ends
            .iter()
            .filter(|end| end.left_out.is_none())
            .collect();
        if taking_part.len() < 2 {
            return self.finish(conn, "too_few").await;
        }
        if taking_part
            .iter()
            .any(|end| end.hold.as_deref() != Some("succeeded"))
        {
            return Ok(false);
        }
        db::pairs::ends::number(conn, self.run.id).await?;
        Ok(true)
    }

    /// Begins the next round once the one before it is settled.
    async fn measure(&self, conn: &mut PgConnection) -> Result<bool, Error> {
        if self.trials.iter().any(|trial| trial.verdict.is_none()) {
            return Ok(false);
        }
        let rounds = self.rounds();
        let ends = self.measured().len();
        match next(ends, &Limits::of(ends), &rounds) {
            Next::Done => self.finish(conn, "done").await,
            Next::Measure(pairs) => {
                db::pairs::trials::insert(conn, self.run.id, rounds.len(), &pairs, self.now)
                    .await?;
                db::pairs::ends::wake(conn, self.run.id, self.now).await?;
                let told = format!("round {}: {} pairs", rounds.len() + 1, pairs.len());
                db::operations::run(conn, self.run.id, &told, self.now).await?;
                Ok(true)
            }
        }
    }

    /// Ends what is under way, and then the run: nobody gets jobs again while they are still measured.
    async fn stop(&self, conn: &mut PgConnection, how: &'static str) -> Result<bool, Error> {
        let open: Vec<&TrialRow> = self
            .trials
            .iter()
            .filter(|trial| trial.verdict.is_none())
            .collect();
        if open.is_empty() {
            return self.finish(conn, how).await;
        }
        // One whose worker went silent lies in the queue again, and is over at once.
        let queued = |trial: &TrialRow| trial.state.as_deref() == Some("queued");
        let untold: Vec<&TrialRow> = open
            .into_iter()
            .filter(|trial| trial.job.is_none() || !trial.cancel || queued(trial))
            .collect();
        if untold.is_empty() {
            return Ok(false);
        }
        db::pairs::ends::wake(conn, self.run.id, self.now).await?;
        for trial in untold {
            match trial.job {
                Some(job) => db::jobs::cancel(conn, job, self.now).await?,
                None => {
                    let settled = unknown("the run ended before it began");
                    db::pairs::trials::settle(conn, self.run.id, trial, &settled, self.now).await?;
                }
            }
        }
        Ok(true)
    }

    /// Ends the measurements: verdicts, blame, and everybody's turn.
    async fn finish(&self, conn: &mut PgConnection, how: &'static str) -> Result<bool, Error> {
        let (run, now, names) = (self.run, self.now, self.names());
        let found = verdicts(names.len(), &Limits::of(names.len()), &self.rounds());
        db::pairs::ends::wake(conn, run.id, now).await?;
        // Whoever stopped a run has it in hand: what it found is shown, and nothing is done about it.
        if how != "stopped" {
            self.blame(conn, &found, &names).await?;
        }
        db::pairs::runs::end(conn, run.id, how, &found, now).await?;
        db::pairs::ends::let_go(conn, run.id, now).await?;
        let told = self.told(how, &found);
        db::operations::run(
            conn,
            run.id,
            &format!("{told}; its nodes are given back"),
            now,
        )
        .await?;
        let summary = format!("pairs of {}: {told}", run.pool_name);
        let event = NewEvent::new(now, "muster", "pairs.ended", summary)
            .about(run.pool)
            .under(Some(run.id));
        let (count, sentences) = (self.trials.len(), found.sentences(&names));
        let detail = json!({ "pool": run.pool_name, "ended": how, "nodes": names, "pairs": count, "findings": sentences });
        db::events::insert(conn, event.with(detail)).await?;
        Ok(true)
    }

    /// Ends the operation once nobody is held any more: who waited for it may ask for the next run. A scheduler that takes no node back keeps it open for
    /// a bounded time.
    async fn give_back(&self, conn: &mut PgConnection, ended: &Ended) -> Result<bool, Error> {
        let held: Vec<&str> = self
            .ends
            .iter()
            .filter(|end| !end.back)
            .map(|end| end.name.as_str())
            .collect();
        if !held.is_empty() && self.now < ended.at + GIVEN_BACK_WITHIN {
            return Ok(false);
        }
        let state = match ended.how.as_str() {
            "done" => "succeeded",
            "stopped" => "cancelled",
            _ => "failed",
        };
        let mut told = self.told(&ended.how, &ended.verdicts);
        if !held.is_empty() {
            let named = held[..held.len().min(NAMED)].join(", ");
            told = format!(
                "{told}; {} not taken back by their scheduler, which is asked on: {named}",
                held.len()
            );
        }
        db::operations::end(conn, self.run.id, state, &told, self.now).await?;
        db::pairs::runs::close(conn, self.run.id, self.now).await?;
        Ok(true)
    }

    /// What came of the run, in a sentence.
    fn told(&self, how: &str, found: &Verdicts) -> String {
        let (count, names) = (self.trials.len(), self.names());
        let sentences = found.sentences(&names);
        let told = match (how, sentences.is_empty()) {
            ("too_few", _) => {
                "fewer than two idle nodes could be held: pool pairs shows why".to_owned()
            }
            (_, true) if count == 0 => "nothing was measured".to_owned(),
            (_, true) => format!("{count} pairs of {} nodes: nothing to blame", names.len()),
            (_, false) => sentences.join("; "),
        };
        cut(&if how == "overdue" {
            format!("its time was over; {told}")
        } else {
            told
        })
    }

    /// Of the nodes that are measured, by position.
    fn names(&self) -> Vec<String> {
        self.measured().iter().map(|end| end.name.clone()).collect()
    }

    /// Hands each blamed end to its own next turn, with the gate and the sentence. A blamed edge is only shown.
    async fn blame(
        &self,
        conn: &mut PgConnection,
        found: &Verdicts,
        names: &[String],
    ) -> Result<(), Error> {
        for (at, end) in self.measured().into_iter().enumerate() {
            let (EndVerdict::Blamed { with }, Some(node)) = (&found.ends[at], end.node) else {
                continue;
            };
            let mut own = self.trials.iter().filter(|trial| pair(trial).has(at));
            let gate = own
                .find_map(|trial| trial.gate.as_deref())
                .unwrap_or("pairs");
            let partners: Vec<&str> = with
                .iter()
                .filter_map(|end| names.get(*end))
                .map(String::as_str)
                .collect();
            let what = format!(
                "gate {gate}: it fails with {}, who pass with others",
                partners.join(", ")
            );
            if end.left_out.is_none() {
                db::pairs::ends::blame(conn, self.run.id, &end.name, gate, &what).await?;
            }
            let summary = format!("{}: {what}", end.name);
            let event = NewEvent::node(self.now, "muster", "pairs.blamed", node, summary)
                .under(Some(self.run.id));
            let detail = json!({ "run": self.run.id, "pool": self.run.pool_name, "gate": gate, "with": partners });
            db::events::insert(conn, event.with(detail)).await?;
        }
        Ok(())
    }
}

/// A measurement without an answer: it blames nobody.
fn unknown(why: &str) -> Settled {
    Settled {
        verdict: Verdict::Error,
        gate: None,
        why: Some(cut(why)),
        ways: Vec::new(),
    }
}

fn pair(trial: &TrialRow) -> Pair {
    let place = |at: i32| usize::try_from(at).unwrap_or(0);
    Pair::of(place(trial.a), place(trial.b))
}

fn counts(result: &GateResult) -> bool {
    !result.shadow
}

/// What is not a pass on one way.
fn tell(from: &EndRow, to: &EndRow, way: &PairWay) -> Vec<String> {
    let wrong = way
        .results
        .iter()
        .filter(|result| counts(result) && result.verdict != Verdict::Pass);
    wrong
        .map(|result| {
            format!(
                "{} to {}: gate {}: {}",
                from.name, to.name, result.gate, result.reason
            )
        })
        .collect()
}

fn cut(text: &str) -> String {
    text.chars().take(LONGEST_WHY).collect()
}
