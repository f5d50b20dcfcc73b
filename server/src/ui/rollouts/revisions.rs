//! The revisions of a pool, and the pool's open rollouts, for the page of the pool.

use jiff::Timestamp;
use muster_api::pools::OnChange;
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
/// Newest rollouts of the pool, searched for open ones.
const ROLLOUTS: i64 = 20;

/// The revisions of a pool, newest first.
pub(in crate::ui) struct Revisions {
    pub rows: Vec<Row>,
    /// The effect of a changed document, as a sentence.
    pub rule: &'static str,
    /// The pool is on hold, and a document has changed.
    pub is_held: bool,
    /// The automatic rollout, before the start.
    pub due: Option<Due>,
    /// The pool has older revisions.
    pub more: bool,
    /// Plans before a start, and the running or halted rollout.
    pub open: Vec<Line>,
    /// Whether the reader may plan a rollout.
    pub may_plan: bool,
}

/// An automatic rollout before the start.
pub(in crate::ui) struct Due {
    pub number: i32,
    pub since: Moment,
    /// The last refusal. Empty before the first attempt.
    pub why: String,
}

/// A revision.
pub(in crate::ui) struct Row {
    pub number: i32,
    /// New claims get this revision.
    pub present: bool,
    pub created: Moment,
    pub actor: String,
    pub stack: String,
    /// Version of the stack.
    pub version: String,
    /// The other documents: `image debian-12, network bonded`.
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
    let on_change = db::revisions::find_on_change(conn, pool.id).await?;
    let is_held = on_change == OnChange::Hold && db::revisions::has_change(conn, pool.id).await?;
    let due = db::due_rollouts::find(conn, pool.id).await?;
    let place = db::access::find_place(conn, "pool", &pool.id.to_string()).await?;
    Ok(Revisions {
        rows: rows.into_iter().map(|row| render_row(row, now)).collect(),
        rule: match on_change {
            OnChange::Propose => {
                "A changed image, stack or network profile adds a revision and changes no node"
            }
            OnChange::Start => {
                "A changed image, stack or network profile adds a revision, and its rollout starts by itself a minute later"
            }
            OnChange::Hold => {
                "The pool is on hold: a changed image, stack or network profile adds no revision"
            }
        },
        is_held,
        due: due.map(|due| Due {
            number: due.number,
            since: format::moment(due.created_at, now),
            why: format::cut(due.reason.as_deref().unwrap_or_default(), 400),
        }),
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
    let told = format!("image {}{network}", row.image);
    Row {
        number: row.number,
        present: row.present,
        created: format::moment(row.created_at, now),
        actor: format::cut(&row.actor, 60),
        version: format::cut(&row.stack_version, 60),
        told: format::cut(&told, 200),
        stack: row.stack,
        assigned: row.assigned,
        running: row.running,
    }
}
