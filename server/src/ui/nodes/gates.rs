//! What was measured on a node: the newest run in full, older ones as a line.

use jiff::{SignedDuration, Timestamp};
use muster_core::gates::{GateResult, Limit, Measured};
use muster_core::ids::NodeId;
use sqlx::PgConnection;

use crate::db;
use crate::db::gates::GateRun;
use crate::error::Error;
use crate::ui::chips::{self, Chip};
use crate::ui::format::{self, Moment};

const RUNS: i64 = 10;
/// Characters of a tool's output that a page shows; the API has all that was kept.
const EVIDENCE: usize = 4000;

pub(super) struct Gates {
    pub runs: Vec<Run>,
    pub results: Vec<Gate>,
}

pub(super) struct Run {
    pub at: Moment,
    pub suite: String,
    pub step: String,
    pub chip: Chip,
}

pub(super) struct Gate {
    pub id: String,
    pub title: String,
    pub chip: Chip,
    pub required: bool,
    pub reason: String,
    pub duration: String,
    pub measured: Vec<Value>,
    pub command: String,
    pub exit: String,
    pub stdout: String,
    pub stderr: String,
    pub versions: String,
    /// Whether it opens by itself: somebody came to see this.
    pub open: bool,
}

pub(super) struct Value {
    pub what: String,
    pub value: String,
    pub limit: String,
    pub unit: String,
    pub chip: Chip,
}

/// The runs of a node.
pub(super) async fn load(conn: &mut PgConnection, node: NodeId, now: Timestamp) -> Result<Gates, Error> {
    let runs = db::gates::list(conn, node, RUNS).await?;
    let results = match runs.first() {
        Some(newest) => db::gates::results(conn, newest.id).await?,
        None => Vec::new(),
    };
    Ok(Gates {
        runs: runs.into_iter().map(|row| run(row, now)).collect(),
        results: results.into_iter().take(200).map(gate).collect(),
    })
}

fn run(row: GateRun, now: Timestamp) -> Run {
    Run {
        at: format::moment(row.finished_at, now),
        suite: format::cut(&row.suite, 80),
        step: row.step.replace('_', " "),
        chip: chips::outcome(&row.verdict),
    }
}

fn gate(result: GateResult) -> Gate {
    let evidence = result.evidence;
    let versions = evidence.versions.iter().take(20).map(|(tool, version)| format!("{tool} {version}"));
    let command: Vec<String> = evidence.argv.iter().take(200).map(|word| format::shell(word)).collect();
    let passed = result.verdict.as_str() == "pass";
    Gate {
        id: format::cut(&result.gate, 80),
        title: format::cut(&result.title, 120),
        chip: chips::outcome(result.verdict.as_str()),
        required: result.required,
        reason: format::cut(&result.reason, 600),
        duration: format::duration(SignedDuration::from_millis(i64::try_from(result.duration_ms).unwrap_or(i64::MAX))),
        measured: result.measured.iter().take(64).map(value).collect(),
        command: format::cut(&command.join(" "), 1000),
        exit: evidence.exit.map(|code| code.to_string()).unwrap_or_default(),
        stdout: format::cut(&evidence.stdout, EVIDENCE),
        stderr: format::cut(&evidence.stderr, EVIDENCE),
        versions: format::cut(&versions.collect::<Vec<_>>().join(", "), 400),
        open: !passed,
    }
}

fn value(measured: &Measured) -> Value {
    let what = match measured.entity.as_str() {
        "" => measured.metric.clone(),
        entity => format!("{} · {entity}", measured.metric),
    };
    Value {
        what: format::cut(&what, 120),
        value: limit(&measured.value),
        limit: format!("{} {}", measured.op, limit(&measured.limit)),
        unit: format::cut(&measured.unit, 20),
        chip: chips::outcome(measured.verdict.as_str()),
    }
}

fn limit(limit: &Limit) -> String {
    match limit {
        Limit::Number(number) if number.fract() == 0.0 && number.abs() < 1e15 => format!("{number:.0}"),
        Limit::Number(number) => format!("{number:.3}"),
        Limit::Text(text) => format::cut(text, 120),
    }
}
