//! Whether a row counts, at each use. A row without a valid seal is refused, with a single event
//! for the row.

use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};

use super::text::{self, SessionText};
use super::window;
use crate::access::Grant;
use crate::app::App;
use crate::db;
use crate::db::events::NewEvent;
use crate::db::role_bindings::BindingRow;
use crate::db::tokens::TokenRow;
use crate::db::users::{SessionRow, UserRow};
use crate::error::Error;

/// Returns whether a token counts.
///
/// # Errors
///
/// When the database fails.
pub async fn token_counts(
    app: &App,
    conn: &mut PgConnection,
    row: &TokenRow,
) -> Result<bool, Error> {
    if text::token_fits(&app.keys.master, row) || is_open(app, conn).await? {
        return Ok(true);
    }
    let mut tx = conn.begin().await?;
    if db::row_seals::note_token(&mut tx, row.id, app.clock.now()).await? {
        let what = format!("the token {}", row.name);
        let detail = json!({ "token": row.id });
        report(app, &mut tx, "token.seal_refused", &what, detail).await?;
    }
    tx.commit().await?;
    Ok(false)
}

/// Returns whether a person counts.
///
/// # Errors
///
/// When the database fails.
pub async fn user_counts(app: &App, conn: &mut PgConnection, row: &UserRow) -> Result<bool, Error> {
    if text::user_fits(&app.keys.master, row) || is_open(app, conn).await? {
        return Ok(true);
    }
    let mut tx = conn.begin().await?;
    if db::row_seals::note_user(&mut tx, row.id, app.clock.now()).await? {
        let what = format!("the person {}", row.name);
        let detail = json!({ "user": row.name });
        report(app, &mut tx, "user.seal_refused", &what, detail).await?;
    }
    tx.commit().await?;
    Ok(false)
}

/// Returns whether a session counts. `hash` is the hash of the cookie.
///
/// # Errors
///
/// When the database fails.
pub async fn session_counts(
    app: &App,
    conn: &mut PgConnection,
    hash: &[u8],
    row: &SessionRow,
) -> Result<bool, Error> {
    let members = SessionText {
        hash,
        user: row.user.id,
        expires_at: row.expires_at,
    };
    let fits = text::session_fits(&app.keys.master, &members, row.seal.as_deref());
    if fits || is_open(app, conn).await? {
        return Ok(true);
    }
    let mut tx = conn.begin().await?;
    if db::row_seals::note_session(&mut tx, hash, app.clock.now()).await? {
        let what = format!("a session of {}", row.user.name);
        let detail = json!({ "user": row.user.name });
        report(app, &mut tx, "session.seal_refused", &what, detail).await?;
    }
    tx.commit().await?;
    Ok(false)
}

/// Returns the grants of the role bindings that count.
///
/// # Errors
///
/// When the database fails, or a stored binding cannot be read.
pub async fn list_grants(
    app: &App,
    conn: &mut PgConnection,
    subjects: &[String],
) -> Result<Vec<Grant>, Error> {
    let mut grants = Vec::new();
    for row in db::role_bindings::list_of_subjects(conn, subjects).await? {
        if !binding_counts(app, conn, &row).await? {
            continue;
        }
        grants.push(Grant {
            role: row.role.parse().map_err(Error::internal)?,
            scope: serde_json::from_str(&row.scope).map_err(Error::internal)?,
            keeps_lost_verbs: row.keeps_lost_verbs,
        });
    }
    Ok(grants)
}

/// Returns whether a role binding counts.
async fn binding_counts(
    app: &App,
    conn: &mut PgConnection,
    row: &BindingRow,
) -> Result<bool, Error> {
    if text::binding_fits(&app.keys.master, row) || is_open(app, conn).await? {
        return Ok(true);
    }
    let mut tx = conn.begin().await?;
    if db::role_bindings::note_refused(&mut tx, row.id, app.clock.now()).await? {
        let what = format!("the role binding {}", row.name);
        let detail = json!({ "role_binding": row.name });
        report(app, &mut tx, "role_binding.seal_refused", &what, detail).await?;
    }
    tx.commit().await?;
    Ok(false)
}

/// Returns whether rows without a valid seal count now. A server of the version before also leaves
/// a wrong seal: the seal of the row before the change.
async fn is_open(app: &App, conn: &mut PgConnection) -> Result<bool, Error> {
    let end = window::find_end(conn, &app.keys.master).await?;
    Ok(end.is_some_and(|end| end > app.clock.now()))
}

/// Writes the event of a refused row.
async fn report(
    app: &App,
    conn: &mut PgConnection,
    kind: &'static str,
    what: &str,
    detail: Value,
) -> Result<(), Error> {
    let summary = format!(
        "{what} is refused: the row has no valid seal, so the row was written without the master key; see `muster doctor --only seals`"
    );
    let event = NewEvent::new(app.clock.now(), "muster", kind, summary);
    db::events::insert(conn, event.with(detail)).await
}
