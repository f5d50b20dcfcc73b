//! Operations: the list, and one operation with steps and logs.

pub(super) mod progress; // Progress of a step
pub(super) mod step; // A job in readable form

use askama::Template;
use askama_web::WebTemplate;
use axum::extract::State;
use jiff::{SignedDuration, Timestamp};
use muster_api::operations::{OperationResult, ResultLink};
use muster_core::ids::OperationId;
use serde::Deserialize;
use sqlx::PgConnection;

use super::chips::{self, Chip};
use super::format::{self, Moment, member};
use super::frame::{Frame, Live, Section, Visit};
use crate::app::App;
use crate::auth::access::Named;
use crate::auth::{Actor, raw};
use crate::db;
use crate::db::filter::{self, OPERATIONS, Term};
use crate::db::operations::OperationRow;
use crate::error::Error;
use crate::http::extract::{Path, Query};
use crate::intents::operations::view;

const ROWS: usize = 50;
/// Most steps of one operation.
const STEPS: usize = 200;

#[derive(Template, WebTemplate)]
#[template(path = "operations.html")]
pub(super) struct ListPage {
    frame: Frame,
    states: Vec<Choice>,
    rows: Vec<Row>,
    next: String,
    filtered: bool,
}

struct Choice {
    word: &'static str,
    href: String,
    chosen: bool,
}

struct Row {
    id: String,
    kind: String,
    node: String,
    node_id: String,
    chip: Chip,
    message: String,
    actor: String,
    created: Moment,
    duration: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct OperationsQuery {
    state: String,
    before: Option<OperationId>,
}

/// Lists operations, newest first.
pub(super) async fn list_operations(
    State(app): State<App>,
    actor: Actor,
    visit: Visit,
    Query(query): Query<OperationsQuery>,
) -> Result<ListPage, Error> {
    let state = Some(query.state.clone()).filter(|state| !state.is_empty());
    let terms: Vec<Term> = state
        .iter()
        .map(|state| Term::equal("state", state))
        .collect();
    let before = query.before.map(|id| id.to_string());
    let limit = i64::try_from(ROWS + 1).unwrap_or(i64::MAX);
    let mut conn = app.pool.acquire().await?;
    let from = filter::Page {
        sort: OPERATIONS.sorts[0],
        after: before.as_deref(),
        limit,
    };
    let mut ids = filter::list_ids(&mut conn, &OPERATIONS, &terms, &actor.sight(), from).await?;
    let more = ids.len() > ROWS;
    ids.truncate(ROWS);
    let mut rows = db::operations::list_by_id(&mut conn, &ids).await?;
    rows.sort_by_key(|row| std::cmp::Reverse(row.id));
    let suffix = state
        .as_ref()
        .map(|state| format!("state={state}"))
        .unwrap_or_default();
    let next = rows
        .last()
        .filter(|_| more)
        .map(|last| format!("/operations?{suffix}&before={}", last.id))
        .unwrap_or_default();
    let cli = state
        .as_ref()
        .map_or("muster operation list".to_owned(), |state| {
            format!("muster operation list --state {state}")
        });
    let path = if suffix.is_empty() {
        "/v1/operations".to_owned()
    } else {
        format!("/v1/operations?{suffix}")
    };
    Ok(ListPage {
        frame: Frame::new(&visit, &actor, Section::Operations, "Operations").by_hand(cli, &path),
        states: list_choices(&query.state),
        filtered: state.is_some() || query.before.is_some(),
        rows: rows
            .into_iter()
            .map(|row| render_row(row, visit.now))
            .collect(),
        next,
    })
}

fn list_choices(chosen: &str) -> Vec<Choice> {
    let all = Choice {
        word: "all",
        href: "/operations".into(),
        chosen: chosen.is_empty(),
    };
    let states = [
        "queued",
        "running",
        "succeeded",
        "failed",
        "cancelled",
        "unknown",
    ];
    let one = |word: &'static str| Choice {
        word,
        href: format!("/operations?state={word}"),
        chosen: word == chosen,
    };
    std::iter::once(all)
        .chain(states.into_iter().map(one))
        .collect()
}

fn render_row(row: OperationRow, now: Timestamp) -> Row {
    Row {
        id: row.id.to_string(),
        kind: format::cut(&row.kind.replace('_', " "), 40),
        node_id: row.node.map(|id| id.to_string()).unwrap_or_default(),
        chip: chips::outcome(row.state.as_str()),
        message: format::cut(&describe_operation(&row), 160),
        actor: format::cut(&row.actor, 60),
        created: format::moment(row.created_at, now),
        duration: measure_duration(&row, now)
            .map(format::duration)
            .unwrap_or_default(),
        node: row.node_name.unwrap_or_default(),
    }
}

/// Returns one sentence about an operation: the error of a failed operation, the awaited condition
/// of a running operation, or the last message.
fn describe_operation(row: &OperationRow) -> String {
    let running = !row.state.done();
    let error = row
        .error
        .as_ref()
        .map(|error| member(error, "message").to_owned())
        .filter(|text| !text.is_empty());
    let waiting = row
        .waiting_for
        .as_deref()
        .filter(|_| running)
        .map(|thing| format!("waits for {thing}"));
    error.or(waiting).unwrap_or_else(|| row.message.clone())
}

fn measure_duration(row: &OperationRow, now: Timestamp) -> Option<SignedDuration> {
    let started = row.started_at?.to_jiff();
    Some(
        row.finished_at
            .map_or(now, |at| at.to_jiff())
            .duration_since(started),
    )
}

#[derive(Template, WebTemplate)]
#[template(path = "operation.html")]
pub(super) struct Page {
    frame: Frame,
    id: String,
    kind: String,
    node: String,
    node_id: String,
    chip: Chip,
    message: String,
    actor: String,
    asked_by: String,
    created: Moment,
    duration: String,
    deadline: String,
    /// Kind of the blocking object or person, such as `rack power` or `agent`. Empty when free.
    blocked: String,
    /// Results of the operation, as sentences.
    results: Vec<String>,
    steps: Vec<step::Step>,
    /// Number of further steps.
    more_steps: usize,
    /// Whether the logs are hidden, because the reader has not `node.evidence`.
    hides_logs: bool,
}

/// Shows one operation with all steps.
pub(super) async fn show_operation(
    State(app): State<App>,
    actor: Actor,
    visit: Visit,
    Path(id): Path<OperationId>,
) -> Result<Page, Error> {
    let mut conn = app.pool.acquire().await?;
    let row = db::operations::find(&mut conn, id)
        .await?
        .ok_or_else(|| Error::NotFound(format!("operation {id}")))?;
    let mut steps = db::operations::list_steps(&mut conn, &[id]).await?;
    let more_steps = format::cut_rows(&mut steps, STEPS);
    let stands = view::load(&mut conn, id).await?;
    let now = visit.now;
    let is_raw = may_read_logs(&mut conn, &actor, id, now).await?;
    let running = !row.state.done();
    let deadline = row
        .deadline_at
        .filter(|_| running)
        .map(|at| at.to_jiff().duration_since(now));
    let live = if running { Live::Any } else { Live::Never };
    let kind = format::cut(&row.kind.replace('_', " "), 40);
    Ok(Page {
        frame: Frame::new(
            &visit,
            &actor,
            Section::Operations,
            format!("Operation: {kind}"),
        )
        .by_hand(
            format!("muster operation get {id}"),
            &format!("/v1/operations/{id}"),
        )
        .live(live),
        id: id.to_string(),
        node_id: row.node.map(|id| id.to_string()).unwrap_or_default(),
        chip: chips::outcome(row.state.as_str()),
        message: format::cut(&describe_operation(&row), 600),
        blocked: stands
            .blocked_by
            .map(|blocked| format::cut(&blocked.by.replace('_', " "), 40))
            .unwrap_or_default(),
        results: describe_results(stands.result.unwrap_or_default()),
        asked_by: format::cut(row.request_id.as_deref().unwrap_or_default(), 80),
        created: format::moment(row.created_at, now),
        duration: measure_duration(&row, now)
            .map(format::duration)
            .unwrap_or_default(),
        deadline: match deadline {
            None => String::new(),
            Some(left) if left.is_negative() => {
                format!("overdue by {}", format::duration(left.abs()))
            }
            Some(left) => format!(
                "{} left before the step counts as stuck",
                format::duration(left)
            ),
        },
        actor: format::cut(&row.actor, 80),
        node: row.node_name.unwrap_or_default(),
        kind,
        more_steps,
        hides_logs: !is_raw,
        steps: steps
            .into_iter()
            .map(|row| step::render_step(row, now).with_log(is_raw))
            .collect(),
    })
}

async fn may_read_logs(
    conn: &mut PgConnection,
    actor: &Actor,
    id: OperationId,
    now: Timestamp,
) -> Result<bool, Error> {
    let (kind, key) = ("operation", id.to_string());
    let operation = Named { kind, key: &key };
    actor
        .may_read_raw(conn, raw::EVIDENCE, operation, now)
        .await
}

/// Returns the results as sentences. A link without a text is skipped.
fn describe_results(result: OperationResult) -> Vec<String> {
    let told = |link: ResultLink| {
        link.told
            .map(|told| format::cut(&format!("{}: {told}", link.of.replace('_', " ")), 200))
    };
    result.links.into_iter().filter_map(told).collect()
}
