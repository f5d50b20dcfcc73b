//! Recoveries of a failed node: the newest recovery with its runbook steps, older recoveries as one
//! line each.

use jiff::Timestamp;
use muster_core::ids::NodeId;
use muster_core::recovery::{Ended, Rung};
use sqlx::PgConnection;

use crate::db;
use crate::db::recoveries::RecoveryRow;
use crate::error::Error;
use crate::ui::chips::{self, Chip};
use crate::ui::format::{self, Moment};

const SHOWN: i64 = 10;

pub(super) struct Recovery {
    pub chip: Chip,
    pub because: String,
    pub signature: String,
    pub at: Moment,
    pub under_way: bool,
    /// Whether the fleet's circuit breaker or the limit of attempts holds the recovery back.
    pub held_back: bool,
    pub rungs: Vec<Step>,
}

pub(super) struct Step {
    pub title: String,
    pub chip: Chip,
    pub why: String,
}

/// Loads the newest recoveries of a node, newest first.
pub(super) async fn load(
    conn: &mut PgConnection,
    node: NodeId,
    now: Timestamp,
) -> Result<Vec<Recovery>, Error> {
    let rows = db::recoveries::list(conn, node, SHOWN).await?;
    Ok(rows
        .into_iter()
        .map(|row| render_recovery(row, now))
        .collect())
}

fn render_recovery(row: RecoveryRow, now: Timestamp) -> Recovery {
    let rung = |at: usize, word: &String| {
        let title = word
            .parse::<Rung>()
            .map_or_else(|_| word.clone(), |rung| rung.title().to_owned());
        match row.went.0.get(at) {
            Some(tried) => Step {
                title,
                chip: chips::outcome(tried.outcome.as_str()),
                why: format::cut(tried.why.as_deref().unwrap_or_default(), 300),
            },
            None => Step {
                title,
                chip: chips::outcome("not tried"),
                why: String::new(),
            },
        }
    };
    Recovery {
        chip: chips::outcome(row.ended.map_or("running", Ended::as_str)),
        because: format::cut(&row.what, 300),
        signature: format::cut(&row.signature, 100),
        at: format::moment(row.begun_at, now),
        under_way: row.ended.is_none(),
        held_back: row.ended == Some(Ended::HeldBack),
        rungs: row
            .rungs
            .iter()
            .enumerate()
            .map(|(at, word)| rung(at, word))
            .collect(),
    }
}
