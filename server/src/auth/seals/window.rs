//! The time in which rows without a valid seal count. During a rolling upgrade, servers of the
//! version before write such rows: without a seal, or changed after the seal.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use sqlx::PgConnection;

use crate::db;
use crate::db::row_seals::WindowRow;
use crate::error::Error;
use crate::keys::MasterKey;

/// Time for a rolling upgrade, from the first start of a server with the seals.
pub const LASTS: SignedDuration = SignedDuration::from_hours(24);
/// Longest window that a person opens.
pub const LONGEST: SignedDuration = SignedDuration::from_hours(72);

/// Returns a sealed window.
pub(super) fn make(master: &MasterKey, opened_at: Timestamp, until: Timestamp) -> WindowRow {
    WindowRow {
        opened_at,
        until,
        seal: master.rows.seal(&text(opened_at, until)),
    }
}

/// Returns the end of the window, if the seal of the window is valid. The end may be in the past.
///
/// # Errors
///
/// When the database fails.
pub async fn find_end(
    conn: &mut PgConnection,
    master: &MasterKey,
) -> Result<Option<Timestamp>, Error> {
    let found = db::row_seals::find_window(conn).await?;
    let valid = found.filter(|row| {
        let text = text(row.opened_at, row.until);
        master.rows.fits(&text, Some(&row.seal))
    });
    Ok(valid.map(|row| row.until))
}

/// Opens the window until a time, or closes the window by a time that is not in the future. Needs
/// the master key.
///
/// # Errors
///
/// When the database fails.
pub async fn set(
    conn: &mut PgConnection,
    master: &MasterKey,
    opened_at: Timestamp,
    until: Timestamp,
) -> Result<(), Error> {
    db::row_seals::set_window(conn, &make(master, opened_at, until)).await
}

/// Seals the window by the key that seals, where a former key has sealed the window.
///
/// # Errors
///
/// When the database fails.
pub async fn seal_again(conn: &mut PgConnection, master: &MasterKey) -> Result<(), Error> {
    let Some(row) = db::row_seals::find_window(conn).await? else {
        return Ok(());
    };
    let (text, seal) = (text(row.opened_at, row.until), Some(&*row.seal));
    if master.rows.fits(&text, seal) && !master.rows.is_newest(&text, seal) {
        let newest = master.rows.seal(&text);
        db::row_seals::set_window_seal(conn, &row.seal, &newest).await?;
    }
    Ok(())
}

fn text(opened_at: Timestamp, until: Timestamp) -> String {
    json!(["window", opened_at.as_microsecond(), until.as_microsecond()]).to_string()
}
