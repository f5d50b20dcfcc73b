//! Observations of a node: facts, gate runs, events, timeline.

use axum::extract::State;
use muster_api::events::Events;
use muster_api::gate_runs::GateRun;
use muster_api::nodes::{NodeFacts, NodeInventory, Timeline, TimelineEntry};
use muster_api::problem::Problem;
use muster_core::gates::GateResult;
use muster_core::ids::NodeId;
use serde::Deserialize;
use sqlx::PgConnection;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::access::Sight;
use crate::app::App;
use crate::auth::access::Named;
use crate::auth::{Actor, raw};
use crate::db;
use crate::db::events::EventFilter;
use crate::db::filter::{GATE_RUNS, Term};
use crate::db::operations::StepRow;
use crate::error::Error;
use crate::http::extract::{Path, Query};
use crate::http::paging::{self, CountedPage, ListQuery};
use crate::intents::answer::Answer;
use crate::intents::events::render_event;

/// The default page size of gate runs, because runs with all results are large.
const RUNS: u32 = 20;
const EVENTS: i64 = 500;
const STEPS: i64 = 500;

async fn find(conn: &mut PgConnection, key: &str) -> Result<NodeId, Error> {
    db::nodes::find_id(conn, key)
        .await?
        .ok_or_else(|| Error::NotFound(format!("node {key:?}")))
}

/// Returns the facts from the latest inspection of a node.
#[utoipa::path(get, path = "/v1/nodes/{node}/facts",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "node={node}" }))),
    tag = "nodes", params(("node", description = "Name or id")), responses(
    (status = 200, description = "The facts, with the time and the source of the observation", body = NodeFacts),
    (status = 404, description = "No such node, or no inspection has reported so far", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn get_node_facts(
    State(app): State<App>,
    _: Actor,
    Path(node): Path<String>,
) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    let id = find(&mut conn, &node).await?;
    let seen = db::facts::latest(&mut conn, id).await?;
    let seen = seen.ok_or_else(|| Error::NotFound(format!("facts of node {node:?}")))?;
    let bmc = db::firmware::latest(&mut conn, id)
        .await?
        .map(|said| NodeInventory {
            since: said.first_seen,
            observed_at: said.last_seen,
            inventory: said.inventory,
        });
    Answer::ok(&NodeFacts {
        source: seen.source.to_string(),
        observed_at: seen.observed_at,
        facts: seen.facts,
        bmc,
    })
}

/// Lists runs of suites on a node, with the results of each gate.
///
/// Sorted newest first unless `created_at` is requested; 20 runs when `limit` is absent. Filter
/// fields: `suite`, `verdict` and `voided`. For a caller without `node.evidence` at the node, the
/// evidence holds no output of tools.
#[utoipa::path(get, path = "/v1/nodes/{node}/gate-runs",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "node={node}" }))),
    tag = "nodes", params(("node", description = "Name or id"), ListQuery), responses(
    (status = 200, description = "One page of gate runs", body = CountedPage<GateRun>),
))]
pub(super) async fn list_node_gate_runs(
    State(app): State<App>,
    actor: Actor,
    Path(node): Path<String>,
    Query(query): Query<ListQuery>,
) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    let id = find(&mut conn, &node).await?;
    let (kind, key, now) = ("node", node.as_str(), app.clock.now());
    let is_raw = actor
        .may_read_raw(&mut conn, raw::EVIDENCE, Named { kind, key }, now)
        .await?;
    let load = async |conn: &mut PgConnection, ids: &[Uuid]| {
        let mut items = Vec::with_capacity(ids.len());
        for run in db::gates::list_by_id(conn, ids).await? {
            let mut results = db::gates::list_results(conn, run.id).await?;
            if !is_raw {
                results = results.into_iter().map(GateResult::without_text).collect();
            }
            items.push(GateRun {
                id: run.id.0,
                node: id.0,
                suite: run.suite,
                verdict: run.verdict.to_string(),
                fingerprint: run.fingerprint,
                finished_at: run.finished_at,
                voided_at: run.voided_at.map(|at| at.to_jiff()),
                results,
                evidence_hidden: !is_raw,
            });
        }
        Ok(items)
    };
    let query = ListQuery {
        limit: query.limit.or(Some(RUNS)),
        ..query
    };
    let only = vec![Term::equal("node", id.to_string())];
    paging::build_page(
        &mut conn,
        &GATE_RUNS,
        &query,
        only,
        &Sight::new(),
        load,
        |run: &GateRun| (run.id, ""),
    )
    .await
}

/// The position to read from.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct NodeEventsQuery {
    /// The sequence number of the last event seen; 0 for the beginning.
    #[serde(default)]
    after: i64,
}

/// Lists the events of a node, oldest first.
#[utoipa::path(get, path = "/v1/nodes/{node}/events",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "node={node}" }))),
    tag = "nodes", params(("node", description = "Name or id"), NodeEventsQuery), responses(
    (status = 200, description = "The events, at most 500", body = Events),
    (status = 410, description = "The history ends before this number, for example after a restore; start again from 0", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn list_node_events(
    State(app): State<App>,
    _: Actor,
    Path(node): Path<String>,
    Query(query): Query<NodeEventsQuery>,
) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    let filter = EventFilter {
        node: Some(find(&mut conn, &node).await?),
        ..EventFilter::default()
    };
    let rows = db::events::list_on(&mut conn, &filter, query.after, EVENTS).await?;
    let last_seq = rows.last().map_or(query.after, |row| row.seq);
    Answer::ok(&Events {
        items: rows.into_iter().map(render_event).collect(),
        last_seq,
    })
}

/// Returns the timeline of a node: its newest events, and the steps of its operations with the
/// duration of each, oldest first.
#[utoipa::path(get, path = "/v1/nodes/{node}/timeline",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "node={node}" }))),
    tag = "nodes", params(("node", description = "Name or id")), responses(
    (status = 200, description = "The timeline", body = Timeline),
))]
pub(super) async fn get_node_timeline(
    State(app): State<App>,
    _: Actor,
    Path(node): Path<String>,
) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    let id = find(&mut conn, &node).await?;
    timeline(&mut conn, id)
        .await
        .and_then(|timeline| Answer::ok(&timeline))
}

/// Builds the timeline of a node, also for the pages.
///
/// # Errors
/// When the database fails.
pub(in crate::http) async fn timeline(
    conn: &mut PgConnection,
    node: NodeId,
) -> Result<Timeline, Error> {
    let filter = EventFilter {
        node: Some(node),
        ..EventFilter::default()
    };
    let events = db::events::latest(conn, &filter, EVENTS).await?;
    let steps = db::operations::list_node_steps(conn, node, STEPS).await?;
    let mut items: Vec<TimelineEntry> = events
        .into_iter()
        .map(|row| TimelineEntry {
            at: row.at,
            entry: "event".into(),
            kind: row.kind,
            summary: row.summary,
            actor: Some(row.actor),
            duration_ms: None,
            operation: row.operation.map(|id| id.0),
        })
        .collect();
    items.extend(steps.into_iter().filter_map(render_step));
    items.sort_by_key(|item| item.at);
    Ok(Timeline { items })
}

/// Renders a started step; `None` for a step not yet started.
fn render_step(row: StepRow) -> Option<TimelineEntry> {
    let started = row.started_at?.to_jiff();
    let finished = row.finished_at.map(|at| at.to_jiff());
    let failure = row
        .failure
        .as_ref()
        .and_then(|failure| failure["message"].as_str());
    let outcome = match failure {
        Some(message) => format!("{}: {message}", row.state),
        None => row.state.to_string(),
    };
    Some(TimelineEntry {
        at: started,
        entry: "step".into(),
        kind: row.kind.to_string(),
        summary: format!("{} {outcome}", row.step.as_str().replace('_', " ")),
        actor: None,
        duration_ms: finished
            .map(|at| i64::try_from(at.duration_since(started).as_millis()).unwrap_or(i64::MAX)),
        operation: row.operation.map(|id| id.0),
    })
}
