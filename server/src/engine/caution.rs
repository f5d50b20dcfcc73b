//! Caution: the database knows less than somebody remembers, so it was put back to an earlier state, or a failover lost its last commits.
//! What it says about nodes may be old. Nothing is powered or written until an administrator has looked and confirmed.
//!
//! Events are never removed, and their ids are random. Whoever was told of one (an agent with each act it is allowed, a replica in its data
//! directory) can tell a database that has it from one that has not, whatever the backup's kind and however far it has gone on since.

use jiff::Timestamp;
use muster_core::ids::EventId;
use muster_core::wire::node::{Failure, FailureCode};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::auth::Actor;
use crate::db;
use crate::db::events::NewEvent;
use crate::error::Error;

/// Writes down who remembers more than the database does; the first one begins the caution. The event is one that the witness may
/// remember from now on.
///
/// # Errors
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
        "the database is older than what others remember: caution mode"
    );
    db::events::insert_noted(conn, NewEvent::new(now, "muster", kind, because.to_owned())).await
}

/// Ends the caution that an administrator looked into. What was about to be done is begun anew, under new permits.
///
/// # Errors
/// 409 when it is not the one that holds.
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
    let message = "its permit is of before the database was put back".to_owned();
    let failure = Failure {
        code: FailureCode::PutBack,
        message,
        retryable: true,
    };
    db::cautions::begin_anew(conn, &failure, now).await?;
    let summary = format!("caution mode ended: {note}");
    db::events::insert(conn, actor.event(now, "caution.confirmed", None, summary)).await
}
