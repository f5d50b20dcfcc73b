//! The list of rollouts, and the lines about open rollouts on other pages.

use askama::Template;
use askama_web::WebTemplate;
use axum::extract::State;
use jiff::Timestamp;
use muster_api::rollouts::{Rollout, RolloutState};
use sqlx::PgConnection;

use super::bar::{self, Bar};
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::rollouts::RolloutRow;
use crate::error::Error;
use crate::intents::rollouts::view;
use crate::ui::chips::{self, Chip};
use crate::ui::format::{self, Moment};
use crate::ui::frame::{Frame, Section, Visit};

/// Most lines on the first page.
const LINES: usize = 8;
/// Most former revisions named in a row.
const FORMER: usize = 3;

#[derive(Template, WebTemplate)]
#[template(path = "rollouts.html")]
pub(in crate::ui) struct Page {
    frame: Frame,
    rows: Vec<Row>,
}

struct Row {
    name: String,
    pool: String,
    /// `3 → 4`.
    revisions: String,
    chip: Chip,
    bar: Bar,
    /// The start; of a plan not started, the planning.
    at: Moment,
    actor: String,
    why: String,
}

/// Lists the newest hundred rollouts.
pub(in crate::ui) async fn list_rollouts(
    State(app): State<App>,
    actor: Actor,
    visit: Visit,
) -> Result<Page, Error> {
    let mut conn = app.pool.acquire().await?;
    let rollouts = view::list(&mut conn, &actor, None, visit.now).await?;
    Ok(Page {
        frame: Frame::new(&visit, &actor, Section::Rollouts, "Rollouts")
            .by_hand("muster rollout list", "/v1/rollouts"),
        rows: rollouts
            .into_iter()
            .map(|rollout| render_row(rollout, visit.now))
            .collect(),
    })
}

fn render_row(rollout: Rollout, now: Timestamp) -> Row {
    Row {
        revisions: name_revisions(&rollout.from, rollout.revision),
        chip: chips::rollout(rollout.state),
        bar: bar::draw(&rollout.marks),
        at: format::moment(rollout.started_at.unwrap_or(rollout.created_at), now),
        why: format::cut(&describe(&rollout, now), 300),
        actor: format::cut(&rollout.actor, 60),
        name: rollout.name,
        pool: rollout.pool,
    }
}

/// Returns the sentence of a row: the reason of a halt, or the rule in force.
fn describe(rollout: &Rollout, now: Timestamp) -> String {
    let binding = || {
        let seen = rollout.now.as_ref()?.binding.as_ref()?;
        Some(seen.sentence.clone())
    };
    match rollout.state {
        RolloutState::Planned => {
            let end = format::moment(rollout.expires_at, now);
            format!("waits for a start; the plan ends {}", end.relative)
        }
        RolloutState::Running => binding().unwrap_or_default(),
        RolloutState::Halted => rollout
            .halt
            .as_ref()
            .map(|halt| halt.sentence.clone())
            .unwrap_or_default(),
        RolloutState::Done | RolloutState::Superseded | RolloutState::Expired => String::new(),
    }
}

/// Returns the former revisions and the target: `3 → 4`.
pub(super) fn name_revisions(from: &[i32], to: i32) -> String {
    let mut known: Vec<String> = from.iter().take(FORMER).map(i32::to_string).collect();
    if from.len() > FORMER {
        known.push("…".to_owned());
    }
    format!("{} → {to}", known.join(", "))
        .trim_start()
        .to_owned()
}

/// A line about an open rollout.
pub(in crate::ui) struct Line {
    pub name: String,
    pub pool: String,
    pub revision: i32,
    pub chip: Chip,
    pub bar: Bar,
    /// The reason of a halt. Empty while the rollout runs.
    pub why: String,
}

/// Lists the rollouts that run or are halted, within the reader's scope, and the number of further
/// ones.
pub(in crate::ui) async fn list_running(
    conn: &mut PgConnection,
    actor: &Actor,
) -> Result<(Vec<Line>, usize), Error> {
    let mut lines = Vec::new();
    let mut more = 0;
    for id in db::rollouts::list_open(conn).await? {
        let Some(row) = db::rollouts::find(conn, &id.to_string()).await? else {
            continue;
        };
        let place = db::access::find_place(conn, "rollout", &id.to_string()).await?;
        let is_seen = place.is_some_and(|place| actor.holding.there("fleet.read", &place));
        let is_open = matches!(row.state, RolloutState::Running | RolloutState::Halted);
        match is_seen && is_open {
            true if lines.len() < LINES => lines.push(render_line(conn, row).await?),
            true => more += 1,
            false => {}
        }
    }
    Ok((lines, more))
}

/// Renders a line about a rollout.
pub(super) async fn render_line(conn: &mut PgConnection, row: RolloutRow) -> Result<Line, Error> {
    let marks = db::rollout_nodes::count_marks(conn, row.id).await?;
    let halt = row.halt.map(|halt| halt.0.to_string());
    Ok(Line {
        bar: bar::draw(&marks.into_iter().collect()),
        chip: chips::rollout(row.state),
        why: format::cut(&halt.unwrap_or_default(), 240),
        revision: row.number,
        name: row.name,
        pool: row.pool_name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn former_revisions_are_bounded() {
        assert_eq!(name_revisions(&[3], 4), "3 → 4");
        assert_eq!(name_revisions(&[], 4), "→ 4");
        assert_eq!(name_revisions(&[1, 2, 3, 5], 6), "1, 2, 3, … → 6");
    }
}
