//! The first page: nodes stuck or in need of a person, failing gates, the map of racks, and recent
//! transitions.

mod map; // The map of racks and nodes

use std::collections::BTreeMap;

use askama::Template;
use askama_web::WebTemplate;
use axum::extract::State;
use jiff::{SignedDuration, Timestamp};
use muster_core::lifecycle::state::State as NodeState;
use muster_core::lifecycle::wait::describe_wait;
use sqlx::PgConnection;
use uuid::Uuid;

use self::map::Rack;
use super::agents::{self, AgentLine};
use super::chips::{self, Chip};
use super::format::{self, Moment, member};
use super::frame::{Frame, Section, Visit};
use super::rollouts::list::{Line, list_running};
use crate::access::Sight;
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::breakers::BreakerRow;
use crate::db::filter::{self, Term};
use crate::db::pages::fleet::{AttentionRow, FailingGate, TransitionRow};
use crate::error::Error;

/// Most rows of a list, before "and N more".
const ROWS: i64 = 8;
const TRANSITIONS: i64 = 30;
const GATES: i64 = 8;
const AGENTS: usize = 8;

#[derive(Template, WebTemplate)]
#[template(path = "fleet.html")]
pub(super) struct Page {
    frame: Frame,
    total: String,
    tiles: Vec<Tile>,
    /// Count of nodes in service with drift. Empty for zero.
    drifted: String,
    stuck: Vec<Attention>,
    stuck_more: bool,
    helpless: Vec<Attention>,
    helpless_more: String,
    gates: Vec<Gate>,
    /// Open circuit breakers. Automatic recovery stays blocked until a person has checked the
    /// cause.
    breakers: Vec<Breaker>,
    breakers_more: bool,
    /// Rollouts that run or are halted.
    rollouts: Vec<Line>,
    rollouts_more: usize,
    racks: Vec<Rack>,
    racks_more: bool,
    legend: Vec<Chip>,
    transitions: Vec<Transition>,
    agents: Vec<AgentLine>,
    agents_more: usize,
}

struct Tile {
    chip: Chip,
    count: String,
    href: String,
}

struct Attention {
    name: String,
    id: String,
    chip: Chip,
    /// Age in the state, such as `overdue by 12 min`, or the time of entry.
    age: String,
    why: String,
    next: String,
}

struct Gate {
    name: String,
    told: String,
    example: String,
}

struct Breaker {
    id: String,
    signature: String,
    because: String,
    opened: Moment,
    /// When the breaker closes automatically. `None` for a breaker closed only by a person.
    closes: Option<Moment>,
}

struct Transition {
    at: Moment,
    node: String,
    from: Chip,
    to: Chip,
    reason: String,
}

/// Shows the state of the fleet.
pub(super) async fn show_fleet(
    State(app): State<App>,
    actor: Actor,
    visit: Visit,
) -> Result<Page, Error> {
    let mut conn = app.pool.acquire().await?;
    let sight = actor.sight();
    let seen = filter::list_visible(&mut conn, &filter::NODES, &sight).await?;
    let nodes = seen.as_deref();
    let counts: BTreeMap<NodeState, i64> = db::monitoring::count_by_state(&mut conn, nodes)
        .await?
        .into_iter()
        .collect();
    let total: i64 = counts.values().sum();
    let drifted = db::drift::count_drifted(&mut conn, nodes).await?;
    let now = visit.now;
    let (stuck, stuck_more) = list_stuck(&mut conn, nodes, now).await?;
    let (helpless, helpless_more) = list_helpless(&mut conn, nodes, &counts, now).await?;
    let gates = list_failing_gates(&mut conn, nodes, now).await?;
    let (breakers, breakers_more) = list_breakers(&mut conn, nodes, now).await?;
    let (rollouts, rollouts_more) = list_running(&mut conn, &actor).await?;
    let (racks, racks_more) = map::draw(&mut conn, nodes, &sight, total).await?;
    let transitions = list_transitions(&mut conn, nodes, now).await?;
    let (agents, agents_more) = list_agents(&mut conn, &sight, now).await?;
    Ok(Page {
        frame: Frame::new(&visit, &actor, Section::Fleet, "Fleet")
            .by_hand("muster node list", "/v1/nodes"),
        total: format::count(total),
        tiles: render_tiles(&counts),
        drifted: count_or_empty(drifted),
        stuck,
        stuck_more,
        helpless,
        helpless_more: count_or_empty(helpless_more),
        gates,
        breakers,
        breakers_more,
        rollouts,
        rollouts_more,
        racks,
        racks_more,
        legend: NodeState::ALL
            .iter()
            .map(|state| chips::state(*state))
            .collect(),
        transitions,
        agents,
        agents_more,
    })
}

/// A count as text; empty for none.
fn count_or_empty(count: i64) -> String {
    match count > 0 {
        true => format::count(count),
        false => String::new(),
    }
}

/// The nodes that are overdue in a state, the longest overdue first; and whether there are more.
async fn list_stuck(
    conn: &mut PgConnection,
    nodes: Option<&[Uuid]>,
    now: Timestamp,
) -> Result<(Vec<Attention>, bool), Error> {
    let mut rows = db::pages::fleet::list_stuck(conn, nodes, now, ROWS + 1).await?;
    let more = cut(&mut rows, ROWS);
    Ok((
        rows.into_iter()
            .map(|row| render_overdue(row, now))
            .collect(),
        more,
    ))
}

/// The quarantined and failed nodes, the newest first; and how many more there are.
async fn list_helpless(
    conn: &mut PgConnection,
    nodes: Option<&[Uuid]>,
    counts: &BTreeMap<NodeState, i64>,
    now: Timestamp,
) -> Result<(Vec<Attention>, i64), Error> {
    let rows = db::pages::fleet::list_helpless(conn, nodes, ROWS).await?;
    let all: i64 = [NodeState::Quarantined, NodeState::Failed]
        .iter()
        .filter_map(|state| counts.get(state))
        .sum();
    let more = all - i64::try_from(rows.len()).unwrap_or(0);
    let helpless = rows
        .into_iter()
        .map(|row| helpless_since(row, now))
        .collect();
    Ok((helpless, more))
}

/// Returns the gates with the most failures in the last 7 days.
async fn list_failing_gates(
    conn: &mut PgConnection,
    nodes: Option<&[Uuid]>,
    now: Timestamp,
) -> Result<Vec<Gate>, Error> {
    let since = now - SignedDuration::from_hours(7 * 24);
    let rows = db::pages::fleet::list_failing_gates(conn, nodes, since, GATES).await?;
    Ok(rows.into_iter().map(render_gate).collect())
}

/// Returns the newest state transitions of the last 24 hours.
async fn list_transitions(
    conn: &mut PgConnection,
    nodes: Option<&[Uuid]>,
    now: Timestamp,
) -> Result<Vec<Transition>, Error> {
    let since = now - SignedDuration::from_hours(24);
    let rows = db::pages::fleet::list_transitions(conn, nodes, since, TRANSITIONS).await?;
    Ok(rows
        .into_iter()
        .map(|row| render_transition(row, now))
        .collect())
}

/// The agents of the sites that the reader may see; and how many more there are.
async fn list_agents(
    conn: &mut PgConnection,
    sight: &Sight,
    now: Timestamp,
) -> Result<(Vec<AgentLine>, usize), Error> {
    let sites = filter::list_visible(conn, &filter::objects_of("site"), sight).await?;
    let mut rows = db::agents::list(conn, sites.as_deref()).await?;
    let more = format::cut_rows(&mut rows, AGENTS);
    let agents = rows
        .into_iter()
        .map(|row| agents::render_agent(row, now))
        .collect();
    Ok((agents, more))
}

/// Open breakers, the oldest first; and whether there are more. Only a reader of the whole fleet
/// gets them, as by the API.
async fn list_breakers(
    conn: &mut PgConnection,
    nodes: Option<&[Uuid]>,
    now: Timestamp,
) -> Result<(Vec<Breaker>, bool), Error> {
    if nodes.is_some() {
        return Ok((Vec::new(), false));
    }
    let open = [Term::equal("state", "open")];
    let from = filter::Page {
        sort: filter::OLDEST_FIRST,
        after: None,
        limit: ROWS + 1,
    };
    let breakers = filter::breakers_at(now);
    let mut ids = filter::list_ids(conn, &breakers, &open, &Sight::new(), from).await?;
    let more = cut(&mut ids, ROWS);
    let mut rows = db::breakers::list_by_id(conn, &ids).await?;
    rows.sort_by_key(|row| row.opened_at);
    let one = |row: BreakerRow| Breaker {
        id: row.id.to_string(),
        signature: format::cut(&row.signature, 100),
        because: format::cut(&row.because, 300),
        opened: format::moment(row.opened_at, now),
        closes: row.closes_at.map(|at| format::moment(at.to_jiff(), now)),
    };
    Ok((rows.into_iter().map(one).collect(), more))
}

/// Shortens a list read with one row more than the limit. Returns whether more rows exist.
fn cut<T>(rows: &mut Vec<T>, most: i64) -> bool {
    let most = usize::try_from(most).unwrap_or(0);
    let more = rows.len() > most;
    rows.truncate(most);
    more
}

/// Returns a tile for every state with nodes. `available` and `in_service` always get a tile,
/// because operators check both counts first.
fn render_tiles(counts: &BTreeMap<NodeState, i64>) -> Vec<Tile> {
    let always = [NodeState::Available, NodeState::InService];
    let shown = NodeState::ALL
        .iter()
        .filter(|state| counts.contains_key(state) || always.contains(state));
    shown
        .map(|state| Tile {
            chip: chips::state(*state),
            count: format::count(counts.get(state).copied().unwrap_or(0)),
            href: format!("/nodes?state={state}"),
        })
        .collect()
}

fn render_overdue(row: AttentionRow, now: Timestamp) -> Attention {
    let late = row.deadline_at.map(|at| now.duration_since(at.to_jiff()));
    let age = late
        .map(|late| format!("overdue by {}", format::duration(late)))
        .unwrap_or_default();
    let why = describe_wait(row.waiting_reason.as_deref(), row.waiting_for.as_deref());
    render_attention(&row, age, why.or_else(|| row.reason.clone()))
}

fn helpless_since(row: AttentionRow, now: Timestamp) -> Attention {
    let age = format!(
        "for {}",
        format::duration(now.duration_since(row.entered_at))
    );
    let why = row.reason.clone().or_else(|| row.waiting_for.clone());
    render_attention(&row, age, why)
}

fn render_attention(row: &AttentionRow, age: String, why: Option<String>) -> Attention {
    let owner = row
        .waiting_owner
        .as_deref()
        .map(|owner| format!("{owner}: "))
        .unwrap_or_default();
    let next = row
        .next_action
        .as_deref()
        .map(|next| format!("{owner}{next}"))
        .unwrap_or_default();
    Attention {
        chip: chips::state(row.state),
        id: row.id.to_string(),
        name: row.name.clone(),
        age,
        why: format::cut(&why.unwrap_or_default(), 240),
        next: format::cut(&next, 160),
    }
}

fn render_gate(row: FailingGate) -> Gate {
    let plural = |count: i64, one: &str, many: &str| {
        format!(
            "{} {}",
            format::count(count),
            if count == 1 { one } else { many }
        )
    };
    let fails = plural(row.fails, "failure", "failures");
    let errors = if row.errors > 0 {
        format!(", {} without an answer", format::count(row.errors))
    } else {
        String::new()
    };
    let told = format!("{fails}{errors} on {}", plural(row.nodes, "node", "nodes"));
    Gate {
        name: format::cut(&row.gate, 80),
        told,
        example: row.example,
    }
}

fn render_transition(row: TransitionRow, now: Timestamp) -> Transition {
    Transition {
        at: format::moment(row.at, now),
        node: row.node.unwrap_or_else(|| "unregistered".to_owned()),
        from: chips::state_word(member(&row.detail, "from")),
        to: chips::state_word(member(&row.detail, "to")),
        reason: format::cut(member(&row.detail, "reason"), 160),
    }
}
