//! The page of racks: front views and power.

use std::collections::BTreeMap;

use askama::Template;
use askama_web::WebTemplate;
use axum::extract::State;
use muster_core::cabling::{Cable, findings, sentences};
use muster_core::facts::Neighbour;
use serde::Deserialize;

use super::chips::{self, Chip};
use super::format::{self, member};
use super::frame::{Frame, Live, Section, Visit};
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::cabling::HeardRow;
use crate::db::filter::{self, Term};
use crate::db::pages::racks::{PlacedRow, RackRow};
use crate::error::Error;
use crate::http::extract::Query;

const ROWS: usize = 12;
/// A rack has at most 60 U; machines of less than 1 U share one.
const NODES: i64 = 12 * 120;
/// Most cabling sentences shown for a rack.
const CABLES: usize = 20;
/// Height of one rack unit in the picture, in SVG units.
const UNIT_HEIGHT: i64 = 16;

#[derive(Template, WebTemplate)]
#[template(path = "racks.html")]
pub(super) struct Page {
    frame: Frame,
    racks: Vec<Rack>,
    only: String,
    next: String,
    after: bool,
}

struct Rack {
    name: String,
    site: String,
    height: i64,
    units: Vec<Unit>,
    nodes: Vec<Placed>,
    unplaced: Vec<Placed>,
    power: Power,
    told: String,
    /// Differences between planned and observed cables, one sentence each.
    cabling: Vec<String>,
}

/// A rack unit of the picture, with the number of the unit.
struct Unit {
    y: i64,
    number: i64,
}

struct Placed {
    name: String,
    chip: Chip,
    y: i64,
    unit: String,
    why: String,
}

struct Power {
    committed: i64,
    budget: i64,
    told: String,
    /// CSS class of the power meter: `off`, `ok`, `warn` or `bad`.
    tone: &'static str,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RacksQuery {
    rack: String,
    after: String,
}

/// Lists the racks by name, `ROWS` on a page.
pub(super) async fn list_racks(
    State(app): State<App>,
    actor: Actor,
    visit: Visit,
    Query(query): Query<RacksQuery>,
) -> Result<Page, Error> {
    let mut conn = app.pool.acquire().await?;
    let only = Some(query.rack.trim()).filter(|name| !name.is_empty());
    let limit = i64::try_from(ROWS + 1).unwrap_or(i64::MAX);
    let sight = actor.sight();
    let terms: Vec<Term> = only
        .map(|name| Term::equal("name", name))
        .into_iter()
        .collect();
    let from = filter::Page {
        sort: filter::BY_NAME[0],
        after: Some(query.after.as_str()),
        limit,
    };
    let mut racks =
        filter::list_ids(&mut conn, &filter::objects_of("rack"), &terms, &sight, from).await?;
    let more = racks.len() > ROWS;
    racks.truncate(ROWS);
    let nodes = filter::list_visible(&mut conn, &filter::NODES, &sight).await?;
    let rows = db::pages::racks::list(&mut conn, nodes.as_deref(), &racks).await?;
    let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
    let placed = db::pages::racks::list_placed(&mut conn, nodes.as_deref(), &ids, NODES).await?;
    let heard = db::cabling::list_heard(&mut conn, nodes.as_deref(), &ids).await?;
    let next = rows
        .last()
        .filter(|_| more)
        .map(|last| format!("/racks?after={}", last.name))
        .unwrap_or_default();
    let (cli, path) = match only {
        Some(name) => (
            format!("muster rack get {}", format::shell(name)),
            format!("/v1/racks/{}", format::escape(name)),
        ),
        None => ("muster rack list".to_owned(), "/v1/racks".to_owned()),
    };
    Ok(Page {
        frame: Frame::new(&visit, &actor, Section::Racks, "Racks")
            .by_hand(cli, &path)
            .live(Live::Any),
        racks: rows
            .into_iter()
            .map(|row| rack(row, &placed, &heard))
            .collect(),
        only: query.rack,
        next,
        after: !query.after.is_empty(),
    })
}

fn rack(row: RackRow, placed: &[PlacedRow], heard: &[HeardRow]) -> Rack {
    let units = row
        .spec
        .get("units")
        .and_then(serde_json::Value::as_i64)
        .unwrap_or(42)
        .clamp(1, 60);
    let own = placed.iter().filter(|node| node.rack == Some(row.id));
    let (nodes, unplaced): (Vec<_>, Vec<_>) = own
        .map(|node| place_node(node, units))
        .partition(|node| node.y >= 0);
    let budget = row
        .spec
        .get("power_budget_w")
        .and_then(serde_json::Value::as_i64)
        .unwrap_or(0);
    Rack {
        site: format::cut(member(&row.spec, "site"), 63),
        height: units * UNIT_HEIGHT,
        units: (1..=units)
            .map(|number| Unit {
                y: (units - number) * UNIT_HEIGHT,
                number,
            })
            .collect(),
        told: if row.nodes == 1 {
            "1 node".to_owned()
        } else {
            format!("{} nodes", row.nodes)
        },
        nodes,
        unplaced,
        power: render_power(row.committed_w, budget),
        cabling: cabling(&row, heard),
        name: row.name,
    }
}

/// Returns the cabling findings of a rack. Cables of nodes outside the reader's scope are skipped.
fn cabling(row: &RackRow, heard: &[HeardRow]) -> Vec<String> {
    let cables = row.spec.get("cables").cloned().unwrap_or_default();
    let mut plan: Vec<Cable> = serde_json::from_value(cables).unwrap_or_default();
    let heard: BTreeMap<String, Vec<Neighbour>> = heard
        .iter()
        .filter(|seen| seen.rack == row.id)
        .map(|seen| (seen.node.clone(), seen.neighbours.clone()))
        .collect();
    plan.retain(|cable| heard.contains_key(&cable.node));
    let told = sentences(&findings(&plan, &heard));
    let told = told.iter().map(|told| format::cut(told, 300)).collect();
    format::cut_sentences(told, CABLES)
}

/// Returns the position of a node in the picture. A node without a unit of the rack gets a negative
/// `y` and is listed above the picture.
fn place_node(node: &PlacedRow, units: i64) -> Placed {
    let unit = node
        .unit
        .map(i64::from)
        .filter(|unit| (1..=units).contains(unit));
    let why = node
        .reason
        .as_deref()
        .or(node.waiting_for.as_deref())
        .unwrap_or_default();
    Placed {
        name: node.name.clone(),
        chip: chips::state(node.state),
        y: unit.map_or(-1, |unit| (units - unit) * UNIT_HEIGHT),
        unit: unit.map_or_else(String::new, |unit| format!("U{unit}")),
        why: format::cut(why, 120),
    }
}

fn render_power(committed: i64, budget: i64) -> Power {
    let told = match budget {
        0 => format!(
            "{} W committed, no budget declared",
            format::count(committed)
        ),
        _ => format!(
            "{} of {} W committed",
            format::count(committed),
            format::count(budget)
        ),
    };
    let tone = match budget {
        0 => "off",
        _ if committed > budget => "bad",
        // Less than 10 % of the budget is left: the next power-on will wait.
        _ if committed * 10 > budget * 9 => "warn",
        _ => "ok",
    };
    Power {
        committed: committed.min(budget.max(1)),
        budget: budget.max(1),
        told,
        tone,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use muster_core::ids::ObjectId;
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn findings_about_cables_are_cut_with_their_number() {
        let cables: Vec<_> = (0..CABLES + 5)
            .map(|number| {
                json!({ "node": "n1", "nic": format!("eth{number}"), "switch": "leaf1",
                        "port": format!("Ethernet1/{number}") })
            })
            .collect();
        // Each cable is in another port.
        let neighbours = (0..CABLES + 5).map(|number| Neighbour {
            nic: format!("eth{number}"),
            chassis: "leaf1".to_owned(),
            port: format!("Ethernet2/{number}"),
            ..Neighbour::default()
        });
        let id = ObjectId(Uuid::nil());
        let row = RackRow {
            id,
            name: "r1".to_owned(),
            spec: json!({ "cables": cables }),
            committed_w: 0,
            nodes: 1,
        };
        let heard = HeardRow {
            rack: id,
            node: "n1".to_owned(),
            observed_at: Timestamp::UNIX_EPOCH,
            neighbours: neighbours.collect(),
        };
        let told = cabling(&row, &[heard]);
        assert_eq!(told.len(), CABLES + 1, "{told:?}");
        assert_eq!(told.last().map(String::as_str), Some("and 5 more"));
    }
}
