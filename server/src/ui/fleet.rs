//! The first page: who is stuck, who needs a person, what fails, where, and what moved.

use std::collections::BTreeMap;

use askama::Template;
use askama_web::WebTemplate;
use axum::extract::State;
use jiff::{SignedDuration, Timestamp};
use muster_core::lifecycle::decision::waits_for;
use muster_core::lifecycle::state::State as NodeState;
use sqlx::PgConnection;
use uuid::Uuid;

use super::agents::{self, AgentLine};
use super::chips::{self, Chip};
use super::format::{self, Moment, member};
use super::frame::{Frame, Section, Visit};
use crate::app::App;
use crate::auth::Actor;
use crate::auth::access::Sight;
use crate::db;
use crate::db::breakers::BreakerRow;
use crate::db::filter::{self, Term};
use crate::db::pages::fleet::{AttentionRow, FailingGate, TransitionRow};
use crate::db::pages::racks::RackRow;
use crate::error::Error;

/// Rows of a list before "and N more".
const ROWS: i64 = 8;
const TRANSITIONS: i64 = 30;
const RACKS: i64 = 64;
/// Up to here the map shows every node; above, the states of each rack.
const NODES_ON_MAP: i64 = 640;

#[derive(Template, WebTemplate)]
#[template(path = "fleet.html")]
pub(super) struct Page {
    frame: Frame,
    total: String,
    tiles: Vec<Tile>,
    /// How many serve and differ from their stack; empty for none.
    drifted: String,
    stuck: Vec<Attention>,
    stuck_more: bool,
    helpless: Vec<Attention>,
    helpless_more: String,
    gates: Vec<Gate>,
    /// What nothing is done about by itself until somebody has looked.
    breakers: Vec<Breaker>,
    racks: Vec<Rack>,
    racks_more: bool,
    legend: Vec<Chip>,
    transitions: Vec<Transition>,
    agents: Vec<AgentLine>,
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
    /// `overdue by 12 min`, or since when.
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
    /// When it closes by itself; none where a person must say so.
    closes: Option<Moment>,
}

/// A rack on the map.
pub(super) struct Rack {
    pub name: String,
    pub href: String,
    pub cells: Vec<Cell>,
    /// Where the map shows no single nodes: bars, in percent of the rack's nodes.
    pub bars: Vec<Bar>,
    pub told: String,
    /// How many need a person; empty for none.
    pub bad: String,
}

/// A node on the map.
pub(super) struct Cell {
    pub href: String,
    pub title: String,
    pub chip: Chip,
}

/// A stretch of a rack's bar.
pub(super) struct Bar {
    pub x: i64,
    pub width: i64,
    pub tone: &'static str,
}

struct Transition {
    at: Moment,
    node: String,
    from: Chip,
    to: Chip,
    reason: String,
}

/// The fleet.
pub(super) async fn show_fleet(
    State(app): State<App>,
    actor: Actor,
    visit: Visit,
) -> Result<Page, Error> {
    let mut conn = app.pool.acquire().await?;
    let sight = actor.sight();
    let seen = filter::seen(&mut conn, &filter::NODES, &sight).await?;
    let nodes = seen.as_deref();
    let counts: BTreeMap<String, i64> = db::monitoring::count_by_state(&mut conn, nodes)
        .await?
        .into_iter()
        .collect();
    let total: i64 = counts.values().sum();
    let drifted = db::drift::count_drifted(&mut conn, nodes).await?;
    let now = visit.now;
    let mut stuck = db::pages::fleet::list_stuck(&mut conn, nodes, now, ROWS + 1).await?;
    let stuck_more = cut(&mut stuck, ROWS);
    let helpless = db::pages::fleet::list_helpless(&mut conn, nodes, ROWS).await?;
    let helpless_all = ["quarantined", "failed"]
        .iter()
        .filter_map(|state| counts.get(*state))
        .sum::<i64>();
    let helpless_more = helpless_all - i64::try_from(helpless.len()).unwrap_or(0);
    let since_week = now - SignedDuration::from_hours(7 * 24);
    let gates = db::pages::fleet::list_failing_gates(&mut conn, nodes, since_week, 8).await?;
    let breakers = breakers(&mut conn, nodes.is_none(), now).await?;
    let (racks, racks_more) = map(&mut conn, (nodes, &sight), total).await?;
    let since_day = now - SignedDuration::from_hours(24);
    let transitions =
        db::pages::fleet::list_transitions(&mut conn, nodes, since_day, TRANSITIONS).await?;
    let sites = filter::seen(&mut conn, &filter::objects("site"), &sight).await?;
    let agents = db::agents::list(&mut conn, sites.as_deref()).await?;
    Ok(Page {
        frame: Frame::new(&visit, &actor, Section::Fleet, "Fleet")
            .by_hand("muster node list", "/v1/nodes"),
        total: format::count(total),
        tiles: tiles(&counts),
        drifted: if drifted > 0 {
            format::count(drifted)
        } else {
            String::new()
        },
        stuck: stuck.into_iter().map(|row| overdue(row, now)).collect(),
        stuck_more,
        helpless: helpless
            .into_iter()
            .map(|row| helpless_since(row, now))
            .collect(),
        helpless_more: if helpless_more > 0 {
            format::count(helpless_more)
        } else {
            String::new()
        },
        gates: gates.into_iter().map(gate).collect(),
        breakers,
        racks,
        racks_more,
        legend: NodeState::ALL
            .iter()
            .map(|state| chips::state(state.as_str()))
            .collect(),
        transitions: transitions
            .into_iter()
            .map(|row| transition(row, now))
            .collect(),
        agents: agents
            .into_iter()
            .take(8)
            .map(|row| agents::line(row, now))
            .collect(),
    })
}

/// Breakers that are open, the oldest first; for who may read the whole fleet, as the API has it.
async fn breakers(
    conn: &mut PgConnection,
    whole: bool,
    now: Timestamp,
) -> Result<Vec<Breaker>, Error> {
    if !whole {
        return Ok(Vec::new());
    }
    let open = [Term::equal("state", "open")];
    let from = filter::Page {
        sort: filter::OLDEST_FIRST,
        after: None,
        limit: ROWS,
    };
    let ids = filter::list_ids(conn, &filter::breakers(now), &open, &Sight::new(), from).await?;
    let mut rows = db::breakers::list_by_id(conn, &ids).await?;
    rows.sort_by_key(|row| row.opened_at);
    let one = |row: BreakerRow| Breaker {
        id: row.id.to_string(),
        signature: format::cut(&row.signature, 100),
        because: format::cut(&row.because, 300),
        opened: format::moment(row.opened_at, now),
        closes: row.closes_at.map(|at| format::moment(at.to_jiff(), now)),
    };
    Ok(rows.into_iter().map(one).collect())
}

/// Drops what only showed that there is more.
fn cut<T>(rows: &mut Vec<T>, most: i64) -> bool {
    let most = usize::try_from(most).unwrap_or(0);
    let more = rows.len() > most;
    rows.truncate(most);
    more
}

/// A tile for every state that has nodes, and always for those that a fleet is asked for first.
fn tiles(counts: &BTreeMap<String, i64>) -> Vec<Tile> {
    let always = [NodeState::Available, NodeState::InService];
    let shown = NodeState::ALL
        .iter()
        .filter(|state| counts.contains_key(state.as_str()) || always.contains(state));
    shown
        .map(|state| Tile {
            chip: chips::state(state.as_str()),
            count: format::count(counts.get(state.as_str()).copied().unwrap_or(0)),
            href: format!("/nodes?state={state}"),
        })
        .collect()
}

fn overdue(row: AttentionRow, now: Timestamp) -> Attention {
    let late = row.deadline_at.map(|at| now.duration_since(at.to_jiff()));
    let age = late
        .map(|late| format!("overdue by {}", format::duration(late)))
        .unwrap_or_default();
    let why = row.waiting_for.as_deref().map(waits_for);
    attention(&row, age, why.or_else(|| row.reason.clone()))
}

fn helpless_since(row: AttentionRow, now: Timestamp) -> Attention {
    let age = format!(
        "for {}",
        format::duration(now.duration_since(row.entered_at))
    );
    let why = row.reason.clone().or_else(|| row.waiting_for.clone());
    attention(&row, age, why)
}

fn attention(row: &AttentionRow, age: String, why: Option<String>) -> Attention {
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
        chip: chips::state(&row.state),
        id: row.id.to_string(),
        name: row.name.clone(),
        age,
        why: format::cut(&why.unwrap_or_default(), 240),
        next: format::cut(&next, 160),
    }
}

fn gate(row: FailingGate) -> Gate {
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

/// The racks that a reader may see, with these nodes, or all.
async fn map(
    conn: &mut PgConnection,
    (nodes, sight): (Option<&[Uuid]>, &Sight),
    total: i64,
) -> Result<(Vec<Rack>, bool), Error> {
    let from = filter::Page {
        sort: filter::BY_NAME[0],
        after: None,
        limit: RACKS + 1,
    };
    let mut racks = filter::list_ids(conn, &filter::objects("rack"), &[], sight, from).await?;
    let more = cut(&mut racks, RACKS);
    let rows = db::pages::racks::list(conn, nodes, &racks).await?;
    let racks = match total <= NODES_ON_MAP {
        true => every_node(conn, nodes, rows).await?,
        false => bars(conn, nodes, rows).await?,
    };
    Ok((racks, more))
}

async fn every_node(
    conn: &mut PgConnection,
    nodes: Option<&[Uuid]>,
    rows: Vec<RackRow>,
) -> Result<Vec<Rack>, Error> {
    let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
    let placed = db::pages::racks::list_placed(conn, nodes, &ids, NODES_ON_MAP).await?;
    let unplaced = db::pages::racks::list_unplaced(conn, nodes, NODES_ON_MAP).await?;
    let cells = |rack| {
        let standing = placed.iter().filter(|node| node.rack == Some(rack));
        standing
            .map(|node| cell(&node.name, &node.state))
            .collect::<Vec<_>>()
    };
    let mut racks: Vec<Rack> = rows
        .into_iter()
        .map(|row| rack(row.name, cells(row.id)))
        .collect();
    if !unplaced.is_empty() {
        let cells = unplaced
            .iter()
            .map(|node| cell(&node.name, &node.state))
            .collect();
        racks.push(Rack {
            href: "/nodes".into(),
            ..rack("no rack".into(), cells)
        });
    }
    Ok(racks)
}

fn rack(name: String, cells: Vec<Cell>) -> Rack {
    let told = match cells.len() {
        0 => "empty".to_owned(),
        1 => "1 node".to_owned(),
        many => format!("{many} nodes"),
    };
    Rack {
        href: format!("/racks?rack={name}"),
        name,
        cells,
        bars: Vec::new(),
        told,
        bad: String::new(),
    }
}

fn cell(name: &str, state: &str) -> Cell {
    let chip = chips::state(state);
    Cell {
        href: format!("/nodes/{name}"),
        title: format!("{name}: {}", chip.word),
        chip,
    }
}

/// The order of a bar: what is well first, what needs a person last, where the eye ends.
const TONES: [&str; 6] = ["ok", "idle", "move", "off", "warn", "bad"];

async fn bars(
    conn: &mut PgConnection,
    nodes: Option<&[Uuid]>,
    rows: Vec<RackRow>,
) -> Result<Vec<Rack>, Error> {
    let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
    let counts = db::pages::racks::count_states(conn, nodes, &ids).await?;
    let one = |row: RackRow| {
        let own: Vec<_> = counts.iter().filter(|count| count.rack == row.id).collect();
        let mut x = 0;
        let mut bars = Vec::new();
        for tone in TONES {
            let nodes: i64 = own
                .iter()
                .filter(|count| chips::state(&count.state).tone == tone)
                .map(|count| count.count)
                .sum();
            if nodes > 0 {
                // The picture is as wide as the rack has nodes, so nothing is rounded away.
                bars.push(Bar {
                    x,
                    width: nodes,
                    tone,
                });
                x += nodes;
            }
        }
        let bad: i64 = own
            .iter()
            .filter(|count| chips::state(&count.state).tone == "bad")
            .map(|count| count.count)
            .sum();
        Rack {
            href: format!("/racks?rack={}", row.name),
            name: row.name,
            cells: Vec::new(),
            bars,
            told: row.nodes.to_string(),
            bad: if bad > 0 {
                bad.to_string()
            } else {
                String::new()
            },
        }
    };
    Ok(rows.into_iter().map(one).collect())
}

fn transition(row: TransitionRow, now: Timestamp) -> Transition {
    Transition {
        at: format::moment(row.at, now),
        node: row.node.unwrap_or_else(|| "unregistered".to_owned()),
        from: chips::state(member(&row.detail, "from")),
        to: chips::state(member(&row.detail, "to")),
        reason: format::cut(member(&row.detail, "reason"), 160),
    }
}
