//! A pool: the claims made automatically, the revisions with the open rollouts, the disruption budget,
//! and the last pair run, as a matrix of node pairs with the blamed parts.

use crate::db::pairs::runs::Ending;
use askama::Template;
use askama_web::WebTemplate;
use axum::extract::State;
use jiff::Timestamp;
use muster_api::disruption::{BudgetAccount, Disruption};
use muster_api::pairs::{MeasuredPair, PairRun};
use muster_api::pools::PoolReplicas;
use serde::Deserialize;
use uuid::Uuid;

use super::chips::{self, Chip};
use super::format::{self, Moment};
use super::frame::{Frame, Live, Section, Visit};
use super::rollouts::revisions::{self, Revisions};
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::error::Error;
use crate::http::extract::{Path, Query};
use crate::intents::claims::replicas;
use crate::intents::disruption;
use crate::intents::pairs;

/// Most runs offered for choice.
const RUNS: i64 = 10;
/// Most nodes of the picture. A larger run is shown only in tables.
const PICTURED: usize = 32;
/// Most rows of a table.
const ROWS: usize = 600;

#[derive(Template, WebTemplate)]
#[template(path = "pool.html")]
pub(super) struct Page {
    frame: Frame,
    pool: String,
    replicas: Option<Replicas>,
    budget: Budget,
    revisions: Revisions,
    run: Option<Run>,
    runs: Vec<Earlier>,
    /// Whether the reader may start a pair run, and no run is under way.
    may_measure: bool,
}

/// The disruption budget: nodes out of service against the allowed number.
struct Budget {
    accounts: Vec<Account>,
    /// Number of further accounts of failure domains.
    more_accounts: usize,
    out: Vec<Out>,
    /// Number of nodes out of service that are not shown.
    unlisted: usize,
    waiting: Vec<Waiting>,
    /// Number of further requests.
    more_waiting: usize,
}

/// The account of the pool, or of a failure domain.
struct Account {
    of: String,
    chip: Chip,
    out: u32,
    max: u32,
    counted: u32,
    /// The budget as declared.
    declared: String,
}

/// A node out of service.
struct Out {
    node: String,
    chip: Chip,
    since: Moment,
    why: String,
    /// The write-off, as a sentence. Empty if the node counts.
    written_off: String,
}

/// A request waiting for a slot.
struct Waiting {
    node: String,
    action: String,
    since: Option<Moment>,
    why: String,
}

/// The claims made automatically to fill the pool's replica count.
struct Replicas {
    chip: Chip,
    wanted: u32,
    claimed: u32,
    in_service: u32,
    because: String,
    /// Since when the pool finds no free nodes.
    since: Option<Moment>,
}

struct Run {
    id: String,
    chip: Chip,
    suite: String,
    actor: String,
    begun: Moment,
    beyond: u32,
    findings: Vec<String>,
    ends: Vec<End>,
    /// Number of further nodes of the run.
    more_ends: usize,
    /// A row for each measured node, with one cell for each other measured node.
    picture: Vec<Vec<Cell>>,
    pairs: Vec<Pair>,
    /// Number of pairs with measurements, also of pairs that are not shown.
    measured: usize,
}

struct End {
    /// Position in the picture, from 1. Empty for a node without a measurement.
    number: String,
    node: String,
    chip: Chip,
    why: String,
}

struct Cell {
    /// CSS class of the colour. Empty without a measurement.
    tone: &'static str,
    letter: &'static str,
    title: String,
}

struct Pair {
    round: u32,
    a: String,
    b: String,
    chip: Chip,
    /// Finding about the path between the two nodes, for a failed pair.
    edge: String,
    why: String,
    values: Vec<String>,
}

struct Earlier {
    id: String,
    chip: Chip,
    begun: Moment,
    chosen: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PoolQuery {
    run: Option<Uuid>,
}

/// Shows a pool with one pair run: the run named by the query, or the newest run.
pub(super) async fn show_pool(
    State(app): State<App>,
    actor: Actor,
    visit: Visit,
    Path(key): Path<String>,
    Query(query): Query<PoolQuery>,
) -> Result<Page, Error> {
    let mut conn = app.pool.acquire().await?;
    let missing = || Error::NotFound(format!("pool {key:?}"));
    let pool = db::objects::find(&mut conn, "pool", &key)
        .await?
        .ok_or_else(missing)?;
    let rows = db::pairs::runs::list(&mut conn, pool.id, RUNS).await?;
    let chosen = query.run.or_else(|| rows.first().map(|row| row.id));
    let earlier = rows.iter().map(|row| Earlier {
        id: row.id.to_string(),
        chip: chips::outcome(row.ended.map_or("running", Ending::as_str)),
        begun: format::moment(row.begun_at, visit.now),
        chosen: Some(row.id) == chosen,
    });
    let runs: Vec<Earlier> = earlier.collect();
    let row = match chosen {
        Some(id) => db::pairs::runs::find(&mut conn, pool.id, id).await?,
        None => None,
    };
    let run = match row {
        Some(row) => {
            let found = row.verdicts.as_ref().map(|json| json.0.clone());
            let run = pairs::view::load_run(&mut conn, &pool.name, row).await?;
            let measured = pairs::view::load_pairs(&mut conn, &run, found.as_ref()).await?;
            Some(render_run(run, measured, visit.now))
        }
        None => None,
    };
    let replicas = replicas::describe(&mut conn, &pool, visit.now)
        .await?
        .map(|standing| render_replicas(standing, visit.now));
    let budget = disruption::describe(&mut conn, &actor, &pool, visit.now).await?;
    let budget = render_budget(budget, visit.now);
    let revisions = revisions::load(&mut conn, &actor, &pool, visit.now).await?;
    let name = format::shell(&pool.name);
    let running = runs.iter().any(|run| run.chip.word == "running");
    let moves = !(budget.out.is_empty() && budget.waiting.is_empty());
    let live = if running || replicas.is_some() || moves || !revisions.open.is_empty() {
        Live::Any
    } else {
        Live::Never
    };
    Ok(Page {
        frame: Frame::new(&visit, &actor, Section::Claims, pool.name.clone())
            .by_hand(
                format!("muster pool pairs {name}"),
                &format!("/v1/pools/{}/pair-runs", format::escape(&pool.name)),
            )
            .live(live),
        may_measure: !running && actor.holding.somewhere("pool.run-pairs"),
        replicas,
        budget,
        revisions,
        run,
        runs,
        pool: pool.name,
    })
}

fn render_replicas(standing: PoolReplicas, now: Timestamp) -> Replicas {
    let chip = match (standing.short, standing.coming, standing.surplus) {
        (1.., ..) => "short",
        (0, 1.., _) => "claiming",
        (0, 0, 1..) => "surplus",
        (0, 0, 0) => "complete",
    };
    Replicas {
        chip: chips::outcome(chip),
        wanted: standing.wanted,
        claimed: standing.claimed,
        in_service: standing.in_service,
        because: format::cut(standing.because.as_deref().unwrap_or_default(), 400),
        since: standing.short_since.map(|at| format::moment(at, now)),
    }
}

fn render_budget(seen: Disruption, now: Timestamp) -> Budget {
    let listed = seen.nodes_out.len().min(ROWS);
    let pool = render_account("This pool".to_owned(), seen.account);
    let domains = seen.domains.iter().take(ROWS).map(|domain| {
        let of = format!("{} at {}", domain.id, domain.site);
        render_account(of, domain.account)
    });
    let out = seen.nodes_out.iter().take(ROWS).map(|out| Out {
        node: out.node.clone(),
        chip: chips::state_word(&out.state),
        since: format::moment(out.since, now),
        why: format::cut(out.reason.as_deref().unwrap_or_default(), 300),
        written_off: out.written_off.as_ref().map_or(String::new(), |off| {
            let sentence = format!(
                "Written off by {} until {:.0}: {}",
                off.by, off.until, off.reason
            );
            format::cut(&sentence, 300)
        }),
    });
    let waiting = seen.waiting.iter().take(ROWS).map(|wait| Waiting {
        node: wait.node.clone(),
        action: wait.action.clone().unwrap_or_else(|| "recover".to_owned()),
        since: wait.since.map(|at| format::moment(at, now)),
        why: format::cut(&wait.detail, 300),
    });
    Budget {
        more_accounts: seen.domains.len().saturating_sub(ROWS),
        more_waiting: seen.waiting.len().saturating_sub(ROWS),
        accounts: [pool].into_iter().chain(domains).collect(),
        out: out.collect(),
        unlisted: seen.unlisted as usize + seen.nodes_out.len() - listed,
        waiting: waiting.collect(),
    }
}

fn render_account(of: String, account: BudgetAccount) -> Account {
    let word = match account.out >= account.max {
        true => "full",
        false => "free",
    };
    Account {
        of,
        chip: chips::outcome(word),
        out: account.out,
        max: account.max,
        counted: account.counted,
        declared: account.max_unavailable.to_string(),
    }
}

fn render_run(run: PairRun, measured: Vec<MeasuredPair>, now: Timestamp) -> Run {
    let ends: Vec<&str> = run
        .ends
        .iter()
        .map(|end| end.node.as_str())
        .filter(|node| measured.iter().any(|pair| has_node(pair, node)))
        .collect();
    let number = |node: &str| {
        ends.iter()
            .position(|end| *end == node)
            .map(|at| (at + 1).to_string())
    };
    Run {
        id: run.id.to_string(),
        chip: chips::outcome(&run.state),
        suite: format::cut(&run.suite, 80),
        actor: format::cut(&run.actor, 80),
        begun: format::moment(run.begun_at, now),
        beyond: run.beyond,
        findings: run
            .findings
            .iter()
            .map(|told| format::cut(told, 400))
            .collect(),
        picture: picture(&ends, &measured),
        more_ends: run.ends.len().saturating_sub(ROWS),
        measured: measured.len(),
        ends: run
            .ends
            .iter()
            .take(ROWS)
            .map(|end| End {
                number: number(&end.node).unwrap_or_default(),
                chip: chips::outcome(&end.verdict),
                why: format::cut(end.why.as_deref().unwrap_or_default(), 300),
                node: end.node.clone(),
            })
            .collect(),
        pairs: measured.into_iter().take(ROWS).map(render_pair).collect(),
    }
}

fn has_node(pair: &MeasuredPair, node: &str) -> bool {
    pair.a == node || pair.b == node
}

/// Returns the matrix of measured pairs. A cell shows the latest measurement of the two nodes. More
/// than `PICTURED` nodes give an empty matrix.
fn picture(ends: &[&str], measured: &[MeasuredPair]) -> Vec<Vec<Cell>> {
    if ends.len() > PICTURED {
        return Vec::new();
    }
    let cell = |one: &str, other: &str| {
        let met = measured
            .iter()
            .rfind(|pair| one != other && has_node(pair, one) && has_node(pair, other));
        let verdict = met.map(|pair| pair.verdict.as_deref().unwrap_or("running"));
        let (tone, letter) = match verdict {
            None => ("", ""),
            Some("pass") => ("ok", "✓"),
            Some("fail") => ("bad", "✕"),
            Some("running") => ("move", "…"),
            Some(_) => ("warn", "?"),
        };
        Cell {
            tone,
            letter,
            title: verdict
                .map(|verdict| format!("{one} and {other}: {verdict}"))
                .unwrap_or_default(),
        }
    };
    ends.iter()
        .map(|one| ends.iter().map(|other| cell(one, other)).collect())
        .collect()
}

fn render_pair(pair: MeasuredPair) -> Pair {
    let way = |way: &muster_api::pairs::MeasuredWay| {
        let measured = way.results.iter().flat_map(|result| &result.measured);
        let values: Vec<String> = measured
            .take(6)
            .map(|one| format!("{} {}", format_value(&one.value), one.unit))
            .collect();
        (!values.is_empty()).then(|| format!("{} → {}: {}", way.from, way.to, values.join(", ")))
    };
    Pair {
        round: pair.round,
        chip: chips::outcome(pair.verdict.as_deref().unwrap_or("running")),
        edge: match pair.edge.as_deref() {
            Some("blamed") => "the path between the two".to_owned(),
            Some("explained") => "one of the two".to_owned(),
            Some(_) => "not told apart".to_owned(),
            None => String::new(),
        },
        why: format::cut(pair.why.as_deref().unwrap_or_default(), 400),
        values: pair
            .ways
            .iter()
            .filter_map(way)
            .map(|told| format::cut(&told, 300))
            .collect(),
        a: pair.a,
        b: pair.b,
    }
}

fn format_value(value: &muster_core::gates::Value) -> String {
    match value {
        muster_core::gates::Limit::Number(number) => format!("{number:.1}"),
        muster_core::gates::Limit::Text(text) => format::cut(text, 60),
    }
}
