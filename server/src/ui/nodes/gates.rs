//! What was measured on a node: the newest run in full, older ones as a line.

use jiff::{SignedDuration, Timestamp};
use muster_api::waivers::{Waiver as Waived, WaiverState};
use muster_core::gates::{GateResult, Limit, Measured};
use muster_core::ids::NodeId;
use sqlx::PgConnection;

use crate::db;
use crate::db::gates::GateRun;
use crate::error::Error;
use crate::http::waivers;
use crate::ui::chips::{self, Chip};
use crate::ui::format::{self, Moment};

const RUNS: i64 = 10;
/// Characters of a tool's output that a page shows; the API has all that was kept.
const EVIDENCE: usize = 4000;

pub(super) struct Gates {
    pub runs: Vec<Run>,
    pub results: Vec<Gate>,
    /// Those that count here, or wait for a second person.
    pub waivers: Vec<Waiver>,
}

pub(super) struct Waiver {
    pub gate: String,
    pub chip: Chip,
    pub until: Moment,
    /// Who asked, who agreed, and why.
    pub told: String,
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
    /// ` · shadow`, ` · optional`; empty where it must pass.
    pub counts: &'static str,
    /// Why it counts as passed all the same; empty where it does not.
    pub waived: String,
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
    let waivers = db::waivers::list(conn, node).await?;
    let waivers = waivers.into_iter().map(|row| waivers::object(row, now)).collect::<Result<Vec<_>, _>>()?;
    Ok(Gates {
        waivers: waivers.into_iter().filter_map(|waiver| waived(waiver, now)).collect(),
        runs: runs.into_iter().map(|row| run(row, now)).collect(),
        results: results.into_iter().take(200).map(gate).collect(),
    })
}

/// A waiver that counts, or may soon.
fn waived(waiver: Waived, now: Timestamp) -> Option<Waiver> {
    let state = match waiver.state {
        WaiverState::Active => "waived",
        WaiverState::Asked => "asked",
        WaiverState::Denied | WaiverState::Over | WaiverState::Ended => return None,
    };
    let agreed = waiver.decided_by.map(|by| format!(", {by} agreed")).unwrap_or_default();
    Some(Waiver {
        gate: format::cut(&waiver.gate, 80),
        chip: chips::outcome(state),
        until: format::moment(waiver.until, now),
        told: format::cut(&format!("{} asked{agreed}: {}", waiver.requested_by, waiver.reason), 400),
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
    let files = evidence.files.iter().map(|(name, text)| format!("== {name}\n{text}"));
    let kernel =
        Some(&evidence.kernel_log).filter(|log| !log.is_empty() && !passed).map(|log| format!("== kernel log\n{log}"));
    let stdout = Some(evidence.stdout.clone()).filter(|text| !text.is_empty());
    let said = stdout.into_iter().chain(files).chain(kernel).collect::<Vec<_>>().join("\n");
    Gate {
        id: format::cut(&result.gate, 80),
        title: format::cut(&result.title, 120),
        chip: chips::outcome(match (&result.waived, result.verdict.as_str()) {
            (Some(_), _) => "waived",
            (None, verdict) => verdict,
        }),
        counts: match (result.shadow, result.required) {
            (true, _) => " · shadow",
            (false, true) => "",
            (false, false) => " · optional",
        },
        waived: result.waived.map(|waived| waiver_told(&waived, result.verdict.as_str())).unwrap_or_default(),
        reason: format::cut(&result.reason, 600),
        duration: format::duration(SignedDuration::from_millis(i64::try_from(result.duration_ms).unwrap_or(i64::MAX))),
        measured: result.measured.iter().take(64).map(value).collect(),
        command: format::cut(&command.join(" "), 1000),
        exit: evidence.exit.map(|code| code.to_string()).unwrap_or_default(),
        stdout: format::cut(&said, EVIDENCE),
        stderr: format::cut(&evidence.stderr, EVIDENCE),
        versions: format::cut(&versions.collect::<Vec<_>>().join(", "), 400),
        open: !passed,
    }
}

fn waiver_told(waived: &muster_core::gates::Waived, verdict: &str) -> String {
    let until = waived.until.strftime("%F %H:%M UTC");
    let told = format!(
        "It ends as {verdict} and counts as passed until {until}: {} ({} asked, {} agreed)",
        waived.reason, waived.requested_by, waived.agreed_by
    );
    format::cut(&told, 600)
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
