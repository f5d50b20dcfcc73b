//! The events of rotations.

use jiff::Timestamp;
use serde_json::json;
use sqlx::PgConnection;

use crate::db;
use crate::db::events::NewEvent;
use crate::db::key_rotations::NewRotation;

/// The present act.
#[derive(Clone, Copy, Debug)]
pub struct Act<'a> {
    /// `host:USER@HOST`.
    pub actor: &'a str,
    pub now: Timestamp,
}

/// Writes the event of an act.
pub(super) async fn tell(
    conn: &mut PgConnection,
    act: Act<'_>,
    kind: &'static str,
    summary: String,
    rotation: NewRotation<'_>,
) -> anyhow::Result<()> {
    let NewRotation { key, former, next } = rotation;
    let event = NewEvent::new(act.now, act.actor, kind, summary)
        .with(json!({ "key": key, "former": former, "next": next }));
    Ok(db::events::insert(conn, event).await?)
}
