//! The page of agents, the processes acting for sites.

use askama::Template;
use askama_web::WebTemplate;
use axum::extract::State;
use jiff::{SignedDuration, Timestamp};
use muster_core::clock::WRONG;

use super::chips::{self, Chip};
use super::format::{self, Moment};
use super::frame::{Frame, Section, Visit};
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::agents::AgentRow;
use crate::db::filter;
use crate::error::Error;

/// Seconds without a poll until an agent counts as late. Polls arrive about every second, so a
/// longer gap means trouble.
const LATE_S: i64 = 60;
/// Seconds without a poll until an agent counts as away. By then all leases of the agent have
/// expired.
const AWAY_S: i64 = 300;

#[derive(Template, WebTemplate)]
#[template(path = "agents.html")]
pub(super) struct Page {
    frame: Frame,
    agents: Vec<AgentLine>,
    /// Whether the reader may open the list of people.
    people: bool,
}

/// An agent as one line of a table.
pub(super) struct AgentLine {
    pub name: String,
    pub site: String,
    pub chip: Chip,
    pub seen: Option<Moment>,
    pub clock: String,
    /// End of the newest certificate's validity.
    pub certificate: Option<Moment>,
    pub version: String,
    pub instance: String,
    pub epoch: i64,
}

/// Lists every agent in the reader's scope.
pub(super) async fn list_agents(
    State(app): State<App>,
    actor: Actor,
    visit: Visit,
) -> Result<Page, Error> {
    let mut conn = app.pool.acquire().await?;
    let sites =
        filter::list_visible(&mut conn, &filter::objects_of("site"), &actor.sight()).await?;
    let rows = db::agents::list(&mut conn, sites.as_deref()).await?;
    Ok(Page {
        frame: Frame::new(&visit, &actor, Section::Agents, "Agents")
            .by_hand("muster agent list SITE", "/v1/sites/SITE/agents"),
        people: actor.holding.everywhere("user.read"),
        agents: rows
            .into_iter()
            .map(|row| render_agent(row, visit.now))
            .collect(),
    })
}

pub(super) fn render_agent(row: AgentRow, now: Timestamp) -> AgentLine {
    let seen = row.last_seen.map(|at| at.to_jiff());
    let word = match seen.map(|at| now.duration_since(at).as_secs()) {
        _ if row.refused.is_some() => "refused",
        None => "never called",
        Some(seconds) if seconds >= AWAY_S => "away",
        Some(seconds) if seconds >= LATE_S => "late",
        Some(_) => "connected",
    };
    AgentLine {
        chip: chips::outcome(word),
        name: row.name,
        site: row.site_name,
        seen: seen.map(|at| format::moment(at, now)),
        clock: row
            .clock_offset_ms
            .map_or_else(|| "unknown".to_owned(), describe_clock),
        certificate: row
            .certified_until
            .map(|at| format::moment(at.to_jiff(), now)),
        version: format::cut(row.version.as_deref().unwrap_or("–"), 40),
        instance: format::cut(row.instance.as_deref().unwrap_or("–"), 60),
        epoch: row.epoch,
    }
}

/// Returns the clock offset of an agent's machine in words. Offsets below 2 s are `right`.
fn describe_clock(offset_ms: i64) -> String {
    let offset = SignedDuration::from_millis(offset_ms);
    let way = if offset.is_negative() {
        "behind"
    } else {
        "ahead"
    };
    match offset.abs() {
        by if by < SignedDuration::from_secs(2) => "right".to_owned(),
        by if by > WRONG => format!("wrong: {} s {way}", by.as_secs()),
        by => format!("{} s {way}", by.as_secs()),
    }
}
