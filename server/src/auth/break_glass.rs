//! The local administrator of a fleet with an identity provider. The account is off until armed on
//! a server's host, for a limited time and with a reason. Arming needs the database and the master
//! key, so a row written into the database alone has no effect.

use jiff::{SignedDuration, Timestamp};
use muster_api::tokens::Role;
use muster_core::ids::UserId;
use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

use super::seals::{counts, text, window};
use crate::access::Armed;
use crate::app::App;
use crate::db;
use crate::db::events::NewEvent;
use crate::db::users::UserRow;
use crate::error::Error;
use crate::keys::MasterKey;

/// Longest time for which the account can be armed at once.
pub const LONGEST: SignedDuration = SignedDuration::from_hours(12);
/// Longest reason, in bytes.
pub const REASON: usize = 400;

/// The place of the seal.
const PLACE: &str = "break_glass";

impl Armed {
    fn seal(&self, key: &MasterKey) -> String {
        key.keyed_hash(PLACE, self.text().as_bytes())
    }

    fn fits(&self, key: &MasterKey, seal: &str) -> bool {
        key.hash_fits(PLACE, self.text().as_bytes(), seal)
    }

    fn text(&self) -> String {
        let (from, until) = (self.armed_at.as_microsecond(), self.until.as_microsecond());
        json!([from, until, self.by, self.reason]).to_string()
    }

    fn event(&self, at: Timestamp, kind: &'static str, summary: String) -> NewEvent {
        let detail = json!({ "until": self.until, "reason": self.reason });
        NewEvent::new(at, format!("host:{}", self.by), kind, summary).with(detail)
    }
}

/// Arms the local administrator, and records the actor and the reason as an event. Failed logins
/// before the arming delay no login.
///
/// # Errors
///
/// When the database fails.
pub async fn arm(conn: &mut PgConnection, key: &MasterKey, armed: &Armed) -> Result<(), Error> {
    db::break_glass::set(conn, armed, &armed.seal(key)).await?;
    db::sign_ins::end_delays_of_passwords(conn).await?;
    let summary = format!(
        "the local administrator is armed until {:.0}: {}",
        armed.until, armed.reason
    );
    db::events::insert(
        conn,
        armed.event(armed.armed_at, "break_glass.armed", summary),
    )
    .await
}

/// The enabled administrators with a password.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalAdmins {
    /// People whose login counts while armed.
    pub ready: usize,
    /// People without a valid seal. Each login is refused as a wrong password.
    pub refused: usize,
}

/// Counts the people for whom an arming is made.
///
/// # Errors
///
/// When the database fails.
pub async fn count_admins(
    conn: &mut PgConnection,
    key: &MasterKey,
    now: Timestamp,
) -> Result<LocalAdmins, Error> {
    let end = window::find_end(conn, key).await?;
    let is_open = end.is_some_and(|end| end > now);
    let mut found = LocalAdmins::default();
    let mut after = UserId(Uuid::nil());
    loop {
        let rows = db::row_seals::list_users(conn, after).await?;
        let Some(last) = rows.last() else { break };
        after = last.id;
        let is_local = |row: &&UserRow| {
            !row.disabled && row.password_hash.is_some() && row.role == Role::Admin
        };
        for row in rows.iter().filter(is_local) {
            match is_open || text::user_fits(key, row) {
                true => found.ready += 1,
                false => found.refused += 1,
            }
        }
    }
    Ok(found)
}

/// Disarms the local administrator early. Sessions opened under the arming become invalid
/// immediately. Returns whether the account was armed.
///
/// # Errors
///
/// When the database fails.
pub async fn disarm(conn: &mut PgConnection, by: &str, now: Timestamp) -> Result<bool, Error> {
    let done = db::break_glass::delete(conn).await?;
    if done {
        let armed = Armed {
            armed_at: now,
            until: now,
            by: by.to_owned(),
            reason: String::new(),
        };
        let summary = "the local administrator is disarmed".to_owned();
        db::events::insert(conn, armed.event(now, "break_glass.disarmed", summary)).await?;
    }
    Ok(done)
}

/// Returns the present arming, if the time has not ended and the seal is valid.
///
/// # Errors
///
/// When the database fails.
pub async fn find(conn: &mut PgConnection, app: &App) -> Result<Option<Armed>, Error> {
    let now = app.clock.now();
    let found = db::break_glass::find(conn)
        .await?
        .filter(|(armed, _)| armed.until > now);
    Ok(found
        .filter(|(armed, seal)| armed.fits(&app.keys.master, seal))
        .map(|(armed, _)| armed))
}

/// Seals the present arming by the key that seals, where a former key has sealed the arming.
///
/// # Errors
///
/// When the database fails.
pub async fn seal_again(conn: &mut PgConnection, key: &MasterKey) -> Result<(), Error> {
    if let Some((armed, seal)) = db::break_glass::find(conn).await?
        && armed.fits(key, &seal)
        && armed.seal(key) != seal
    {
        db::break_glass::set_seal(conn, &seal, &armed.seal(key)).await?;
    }
    Ok(())
}

/// Returns whether a user may sign in and act now. With an identity provider, an administrator with
/// a password is admitted only while armed. A disabled user is never admitted, nor a user without a
/// valid seal.
///
/// # Errors
///
/// When the database fails.
pub async fn admits(conn: &mut PgConnection, app: &App, user: &UserRow) -> Result<bool, Error> {
    if user.disabled || !counts::user_counts(app, conn, user).await? {
        return Ok(false);
    }
    let bound = app.oidc.is_some() && user.password_hash.is_some() && user.role == Role::Admin;
    Ok(!bound || find(conn, app).await?.is_some())
}
