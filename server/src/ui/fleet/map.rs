//! The map of the fleet: the racks with a cell for each node, or with a bar for the states of their
//! nodes.

use muster_core::lifecycle::state::State;
use sqlx::PgConnection;
use uuid::Uuid;

use super::cut;
use crate::access::Sight;
use crate::db;
use crate::db::filter;
use crate::db::pages::racks::RackRow;
use crate::error::Error;
use crate::ui::chips::{self, Chip};

const RACKS: i64 = 64;
/// The largest fleet whose map shows each node. The map of a larger fleet shows the states of each
/// rack.
const NODES_ON_MAP: i64 = 640;

/// A rack on the map.
pub(super) struct Rack {
    pub name: String,
    pub href: String,
    pub cells: Vec<Cell>,
    /// Bars for a map without single nodes. Position and width count the rack's nodes.
    pub bars: Vec<Bar>,
    pub told: String,
    /// Count of nodes in need of a person. Empty for zero.
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

/// The racks that the reader may see, with these nodes, or with all nodes.
pub(super) async fn draw(
    conn: &mut PgConnection,
    nodes: Option<&[Uuid]>,
    sight: &Sight,
    total: i64,
) -> Result<(Vec<Rack>, bool), Error> {
    let from = filter::Page {
        sort: filter::BY_NAME[0],
        after: None,
        limit: RACKS + 1,
    };
    let mut racks = filter::list_ids(conn, &filter::objects_of("rack"), &[], sight, from).await?;
    let more = cut(&mut racks, RACKS);
    let rows = db::pages::racks::list(conn, nodes, &racks).await?;
    let racks = match total <= NODES_ON_MAP {
        true => draw_cells(conn, nodes, rows).await?,
        false => draw_bars(conn, nodes, rows).await?,
    };
    Ok((racks, more))
}

/// The racks with a cell for each node.
async fn draw_cells(
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
            .map(|node| render_cell(&node.name, node.state))
            .collect::<Vec<_>>()
    };
    let mut racks: Vec<Rack> = rows
        .into_iter()
        .map(|row| render_rack(row.name, cells(row.id)))
        .collect();
    if !unplaced.is_empty() {
        let cells = unplaced
            .iter()
            .map(|node| render_cell(&node.name, node.state))
            .collect();
        racks.push(Rack {
            href: "/nodes".into(),
            ..render_rack("no rack".into(), cells)
        });
    }
    Ok(racks)
}

fn render_rack(name: String, cells: Vec<Cell>) -> Rack {
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

fn render_cell(name: &str, state: State) -> Cell {
    let chip = chips::state(state);
    Cell {
        href: format!("/nodes/{name}"),
        title: format!("{name}: {}", chip.word),
        chip,
    }
}

/// The order of the parts of a bar: healthy nodes first, nodes that need a person last.
const TONES: [&str; 6] = ["ok", "idle", "move", "off", "warn", "bad"];

/// The racks with a bar for the states of their nodes.
async fn draw_bars(
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
                .filter(|count| chips::state(count.state).tone == tone)
                .map(|count| count.count)
                .sum();
            if nodes > 0 {
                // The width of the picture is the rack's node count, so a small count is never
                // rounded away.
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
            .filter(|count| chips::state(count.state).tone == "bad")
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
