//! Gate results of a node: the newest run in full, older runs as one line each.

use jiff::{SignedDuration, Timestamp};
use muster_api::waivers::{Waiver as Waived, WaiverState};
use muster_core::gates::{Evidence, GateResult, Limit, Measured, SuiteVerdict, Verdict};
use muster_core::ids::NodeId;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::db;
use crate::db::gates::GateRun;
use crate::error::Error;
use crate::intents::waivers;
use crate::ui::chips::{self, Chip};
use crate::ui::format::{self, Moment};

/// Most runs listed on the page.
const RUNS: usize = 10;
/// Most results listed of a run.
const RESULTS: usize = 200;
/// Most tools named with their versions.
const VERSIONS: usize = 20;
/// Most values listed of a gate: a gate for every part has several values per part.
const VALUES: usize = 64;
/// Newest runs searched for the run to open.
const SEARCHED: i64 = 200;
/// Most characters of a tool's output shown on the page. The API returns all the kept output.
const EVIDENCE: usize = 4000;
/// Most files shown of one gate: a gate for every disk has one file per disk.
const FILES: usize = 64;

pub(super) struct Gates {
    pub runs: Vec<Run>,
    /// Number of further runs among the searched ones.
    pub more_runs: usize,
    /// The run with its results shown: the newest run, unless the request names another run.
    pub shown: Option<Run>,
    pub results: Vec<Gate>,
    /// Number of further results of the run.
    pub more_results: usize,
    /// Waivers in force for this node, or waiting for a second person.
    pub waivers: Vec<Waiver>,
    /// Whether the output of tools is hidden, because the reader has not `node.evidence`.
    pub hides_evidence: bool,
}

pub(super) struct Waiver {
    pub gate: String,
    pub chip: Chip,
    pub until: Moment,
    /// A sentence with the requester, the approver and the reason.
    pub told: String,
}

pub(super) struct Run {
    pub id: String,
    pub at: Moment,
    pub suite: String,
    pub step: String,
    pub chip: Chip,
    /// Since when the run is void, because parts were replaced.
    pub voided: Option<Moment>,
}

pub(super) struct Gate {
    pub id: String,
    pub title: String,
    pub chip: Chip,
    /// ` · shadow` or ` · optional`. Empty for a required gate.
    pub counts: &'static str,
    /// Why a failed gate counts as passed. Empty without a waiver.
    pub waived: String,
    pub reason: String,
    /// Meaning of the failure, from the suite. Empty for a passed gate.
    pub finding: String,
    pub duration: String,
    pub measured: Vec<Value>,
    /// Number of further values.
    pub more_values: usize,
    pub command: String,
    pub exit: String,
    /// Output of the tool, one block per stream and file.
    pub blocks: Vec<Block>,
    /// Number of further files of the evidence.
    pub more_files: usize,
    pub versions: String,
    /// Whether the gate is unfolded when the page opens, because failures matter most.
    pub open: bool,
}

pub(super) struct Block {
    pub name: String,
    /// The end of the output, where a tool prints its result.
    pub text: String,
}

pub(super) struct Value {
    pub what: String,
    pub value: String,
    pub limit: String,
    pub unit: String,
    pub chip: Chip,
}

/// Loads the runs of a node, with the results of one run. The output of tools is included only for
/// a reader with the right to raw text.
pub(super) async fn load(
    conn: &mut PgConnection,
    node: NodeId,
    asked: Option<Uuid>,
    is_raw: bool,
    now: Timestamp,
) -> Result<Gates, Error> {
    let mut runs = db::gates::list(conn, node, SEARCHED).await?;
    let shown = match asked {
        None => runs.first().cloned(),
        // Only runs of this node are searched, because the reader may have no access to other
        // nodes.
        Some(id) => {
            let found = runs.iter().find(|run| run.id.0 == id).cloned();
            Some(found.ok_or_else(|| {
                Error::NotFound(format!(
                    "gate run {id} among the newest {SEARCHED} of the node"
                ))
            })?)
        }
    };
    let mut results = match &shown {
        Some(run) => db::gates::list_results(conn, run.id).await?,
        None => Vec::new(),
    };
    if !is_raw {
        results = results.into_iter().map(GateResult::without_text).collect();
    }
    let more_results = format::cut_rows(&mut results, RESULTS);
    let more_runs = format::cut_rows(&mut runs, RUNS);
    let waivers = db::waivers::list(conn, node).await?;
    let waivers = waivers.into_iter().map(|row| waivers::object(row, now));
    Ok(Gates {
        waivers: waivers
            .filter_map(|waiver| render_waiver(waiver, now))
            .collect(),
        runs: runs.into_iter().map(|row| render_run(row, now)).collect(),
        more_runs,
        shown: shown.map(|row| render_run(row, now)),
        more_results,
        hides_evidence: !is_raw,
        results: results.into_iter().map(render_gate).collect(),
    })
}

/// Returns the gate run that led to the state since `entered`. The result is the last failed run
/// before `entered`, if the run moved the node or began the present recovery.
pub(super) async fn cause(
    conn: &mut PgConnection,
    node: NodeId,
    entered: Timestamp,
) -> Result<Option<String>, Error> {
    let runs = db::gates::list(conn, node, SEARCHED).await?;
    let Some(run) = runs
        .into_iter()
        .find(|run| run.finished_at <= entered && run.verdict != SuiteVerdict::Pass)
    else {
        return Ok(None);
    };
    if run.finished_at == entered {
        return Ok(Some(run.id.to_string()));
    }
    let recovery = db::recoveries::list(conn, node, 1).await?.pop();
    let under_way = recovery.filter(|recovery| {
        recovery
            .ended_at
            .is_none_or(|ended| ended.to_jiff() >= entered)
    });
    let Some(recovery) = under_way else {
        return Ok(None);
    };
    let results = db::gates::list_results(conn, run.id).await?;
    let named = results.iter().any(|result| {
        result.verdict != Verdict::Pass && recovery.signature == format!("gate:{}", result.gate)
    });
    Ok(named.then(|| run.id.to_string()))
}

/// Returns a waiver in force, or one waiting for approval.
fn render_waiver(waiver: Waived, now: Timestamp) -> Option<Waiver> {
    let state = match waiver.state {
        WaiverState::Active => "waived",
        WaiverState::Asked => "asked",
        WaiverState::Denied | WaiverState::Over | WaiverState::Ended => return None,
    };
    let agreed = waiver
        .decided_by
        .map(|by| format!(", {by} agreed"))
        .unwrap_or_default();
    Some(Waiver {
        gate: format::cut(&waiver.gate, 80),
        chip: chips::outcome(state),
        until: format::moment(waiver.until, now),
        told: format::cut(
            &format!("{} asked{agreed}: {}", waiver.requested_by, waiver.reason),
            400,
        ),
    })
}

fn render_run(row: GateRun, now: Timestamp) -> Run {
    Run {
        id: row.id.to_string(),
        voided: row.voided_at.map(|at| format::moment(at.to_jiff(), now)),
        at: format::moment(row.finished_at, now),
        suite: format::cut(&row.suite, 80),
        step: row.step.as_str().replace('_', " "),
        chip: chips::outcome(row.verdict.as_str()),
    }
}

fn render_gate(result: GateResult) -> Gate {
    let evidence = result.evidence;
    let versions = evidence
        .versions
        .iter()
        .map(|(tool, version)| format!("{tool} {version}"));
    let versions = format::cut_sentences(versions.collect(), VERSIONS);
    let command: Vec<String> = evidence
        .argv
        .iter()
        .take(200)
        .map(|word| format::shell(word))
        .collect();
    let passed = result.verdict == Verdict::Pass;
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
        waived: result
            .waived
            .map(|waived| waiver_told(&waived, result.verdict.as_str()))
            .unwrap_or_default(),
        reason: format::cut(&result.reason, 600),
        finding: format::cut(&result.finding, 600),
        duration: format::duration(SignedDuration::from_millis(
            i64::try_from(result.duration_ms).unwrap_or(i64::MAX),
        )),
        measured: result
            .measured
            .iter()
            .take(VALUES)
            .map(render_value)
            .collect(),
        more_values: result.measured.len().saturating_sub(VALUES),
        command: format::cut(&command.join(" "), 1000),
        exit: evidence
            .exit
            .map(|code| code.to_string())
            .unwrap_or_default(),
        more_files: evidence.files.len().saturating_sub(FILES),
        blocks: list_blocks(&evidence, passed),
        versions: format::cut(&versions.join(", "), 400),
        open: !passed,
    }
}

/// Returns the evidence to show. The kernel log is included only for a failed gate.
fn list_blocks(evidence: &Evidence, passed: bool) -> Vec<Block> {
    let kernel = if passed {
        ""
    } else {
        evidence.kernel_log.as_str()
    };
    let streams = [
        ("Output", evidence.stdout.as_str()),
        ("Errors", evidence.stderr.as_str()),
    ];
    let files = evidence
        .files
        .iter()
        .take(FILES)
        .map(|(name, text)| (name.as_str(), text.as_str()));
    let all = streams
        .into_iter()
        .chain(files)
        .chain([("Kernel log", kernel)]);
    let told = all.filter(|(_, text)| !text.is_empty());
    told.map(|(name, text)| Block {
        name: format::cut(name, 120),
        text: format::tail(text, EVIDENCE),
    })
    .collect()
}

fn waiver_told(waived: &muster_core::gates::Waived, verdict: &str) -> String {
    let until = waived.until.strftime("%F %H:%M UTC");
    let told = format!(
        "It ends as {verdict} and counts as passed until {until}: {} ({} asked, {} agreed)",
        waived.reason, waived.requested_by, waived.agreed_by
    );
    format::cut(&told, 600)
}

fn render_value(measured: &Measured) -> Value {
    let what = match measured.entity.as_str() {
        "" => measured.metric.clone(),
        entity => format!("{} · {entity}", measured.metric),
    };
    Value {
        what: format::cut(&what, 120),
        value: format_limit(&measured.value),
        limit: format!("{} {}", measured.op, format_limit(&measured.limit)),
        unit: format::cut(&measured.unit, 20),
        chip: chips::outcome(measured.verdict.as_str()),
    }
}

fn format_limit(limit: &Limit) -> String {
    match limit {
        Limit::Number(number) if number.fract() == 0.0 && number.abs() < 1e15 => {
            format!("{number:.0}")
        }
        Limit::Number(number) => format!("{number:.3}"),
        Limit::Text(text) => format::cut(text, 120),
    }
}
