//! Caution mode. The database lacks an event remembered elsewhere, so the database was restored to
//! an earlier state, or a failover lost the last commits. The recorded state of nodes may be old.
//! Power and disk writes stay blocked until an administrator has checked and confirmed.
//!
//! Events are never removed, and event ids are random. A witness stores the id of an event: an
//! agent with each permitted act, or a replica in the data directory. A witness can therefore
//! distinguish a database with the event from one without. The test works for every kind of backup,
//! even after the restored database has written new events.

use jiff::Timestamp;
use muster_core::ids::EventId;
use muster_core::wire::node::{Failure, FailureCode};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::auth::Actor;
use crate::db;
use crate::db::events::NewEvent;
use crate::error::Error;

/// Records a witness with a newer memory than the database. The first witness opens the caution.
/// Returns the id of the new event, which the witness may store from now on.
///
/// # Errors
///
/// When the database fails.
pub async fn notice(
    conn: &mut PgConnection,
    because: &str,
    now: Timestamp,
) -> Result<EventId, Error> {
    let opened = db::cautions::open(conn, because, now).await?;
    let kind = if opened {
        "caution.entered"
    } else {
        "caution.seen"
    };
    tracing::error!(
        because,
        "caution mode: the database is older than the records of an agent or a node"
    );
    db::events::insert_noted(conn, NewEvent::new(now, "muster", kind, because.to_owned())).await
}

/// Closes the caution checked by an administrator. Pending work begins again, under new permits.
///
/// # Errors
///
/// 409 when another caution is open, or none.
pub async fn confirm(
    conn: &mut PgConnection,
    actor: &Actor,
    id: Uuid,
    note: &str,
    now: Timestamp,
) -> Result<(), Error> {
    if !db::cautions::confirm(conn, id, &actor.name, note, now).await? {
        return Err(Error::conflict(
            "not_open",
            "This caution is over, or another one holds now; look again.",
        ));
    }
    let message = "the permit was issued before the database was restored".to_owned();
    let failure = Failure {
        code: FailureCode::PutBack,
        message,
        retryable: true,
    };
    db::cautions::begin_anew(conn, &failure, now).await?;
    let summary = format!("caution mode ended: {note}");
    db::events::insert(conn, actor.event(now, "caution.confirmed", None, summary)).await
}
