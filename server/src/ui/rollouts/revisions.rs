//! The revisions of a pool, and the pool's open rollouts, for the page of the pool.

use jiff::Timestamp;
use muster_api::rollouts::RolloutState;
use sqlx::PgConnection;

use super::list::{Line, render_line};
use crate::auth::Actor;
use crate::db;
use crate::db::objects::ObjectRow;
use crate::db::revisions::RevisionRow;
use crate::error::Error;
use crate::ui::format::{self, Moment};

/// Most revisions shown.
const ROWS: i64 = 20;
/// Newest rollouts of the pool in which open ones are looked for.
const ROLLOUTS: i64 = 20;

/// The revisions of a pool, newest first.
pub(in crate::ui) struct Revisions {
    pub rows: Vec<Row>,
    /// The pool has older revisions.
    pub more: bool,
    /// Plans that wait for a start, and the rollout that runs or is halted.
    pub open: Vec<Line>,
    /// Whether the reader may plan a rollout.
    pub may_plan: bool,
}

/// A revision.
pub(in crate::ui) struct Row {
    pub number: i32,
    /// New claims get this revision.
    pub present: bool,
    pub created: Moment,
    pub actor: String,
    /// `stack base 2, image debian-12`.
    pub told: String,
    pub assigned: i64,
    pub running: i64,
}

/// Loads the revisions and the open rollouts of a pool.
pub(in crate::ui) async fn load(
    conn: &mut PgConnection,
    actor: &Actor,
    pool: &ObjectRow,
    now: Timestamp,
) -> Result<Revisions, Error> {
    let mut rows = db::revisions::list(conn, pool.id, None, ROWS + 1).await?;
    let most = usize::try_from(ROWS).unwrap_or_default();
    let more = rows.len() > most;
    rows.truncate(most);
    let mut open = Vec::new();
    for row in db::rollouts::list(conn, Some(pool.id), ROLLOUTS).await? {
        let is_open = match row.state {
            RolloutState::Planned => row.expires_at > now,
            RolloutState::Running | RolloutState::Halted => true,
            RolloutState::Done | RolloutState::Superseded | RolloutState::Expired => false,
        };
        if is_open {
            open.push(render_line(conn, row).await?);
        }
    }
    let place = db::access::find_place(conn, "pool", &pool.id.to_string()).await?;
    Ok(Revisions {
        rows: rows.into_iter().map(|row| render_row(row, now)).collect(),
        more,
        open,
        may_plan: place.is_some_and(|place| actor.holding.there("rollout.plan", &place)),
    })
}

fn render_row(row: RevisionRow, now: Timestamp) -> Row {
    let network = row
        .network_profile
        .map(|name| format!(", network {name}"))
        .unwrap_or_default();
    let told = format!(
        "stack {} {}, image {}{network}",
        row.stack, row.stack_version, row.image
    );
    Row {
        number: row.number,
        present: row.present,
        created: format::moment(row.created_at, now),
        actor: format::cut(&row.actor, 60),
        told: format::cut(&told, 200),
        assigned: row.assigned,
        running: row.running,
    }
}
