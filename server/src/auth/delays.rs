//! The delay of logins after failures. An account has a count of failures per source with an
//! earlier login, and a count for all other sources. Guesses of strangers therefore never delay a
//! person's login from a usual place.

use jiff::{SignedDuration, Timestamp};
use muster_core::ids::UserId;
use sqlx::PgConnection;

use crate::app::App;
use crate::db;
use crate::db::users::UserRow;
use crate::error::Error;

/// Failures without a delay.
const FREE: i32 = 5;
/// Longest delay in seconds: 15 minutes.
const LONGEST_S: i64 = 15 * 60;
/// Failures before this time do not count.
pub(crate) const FORGOTTEN: SignedDuration = SignedDuration::from_hours(24);
/// Sources remembered for each account.
const SOURCES: i64 = 8;

/// The delay of an account for logins from one source.
#[derive(Clone, Debug)]
pub(super) struct Delay {
    account: String,
    /// The counted source. Empty: all sources without an earlier login.
    counted: String,
    until: Option<Timestamp>,
}

/// Returns the account of a name in the counts. Names without a person share a bounded number of
/// slots, so an unknown name is delayed like a known one.
pub(super) fn account_of(app: &App, user: Option<&UserRow>, name: &str) -> String {
    match user {
        Some(user) => user.id.to_string(),
        None => {
            let hash = app.keys.master.keyed_hash("sign_in", name.as_bytes());
            format!("unknown/{}", hash.get(..4).unwrap_or_default())
        }
    }
}

/// Ends the delays of a person at all sources. `false`: no failure was counted.
///
/// # Errors
/// When the database fails.
pub(crate) async fn end(conn: &mut PgConnection, person: UserId) -> Result<bool, Error> {
    db::sign_ins::end_delays(conn, &person.to_string()).await
}

impl Delay {
    /// Loads the delay of an account.
    ///
    /// # Errors
    /// When the database fails.
    pub(super) async fn find(
        conn: &mut PgConnection,
        account: String,
        source: &str,
    ) -> Result<Self, Error> {
        let row = db::sign_ins::find_delay(conn, &account, source).await?;
        Ok(match row {
            Some(row) => Self {
                account,
                until: end_of(row.failures, row.changed_at),
                counted: row.source,
            },
            None => Self {
                account,
                counted: String::new(),
                until: None,
            },
        })
    }

    /// Refuses a login before the end of the delay.
    ///
    /// # Errors
    /// [`Error::Delayed`] with the remaining seconds.
    pub(super) fn check(&self, now: Timestamp) -> Result<(), Error> {
        match self.until {
            Some(until) if now < until => Err(Error::Delayed {
                wait_s: until.duration_since(now).as_secs_f64(),
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// Counts a failure.
    ///
    /// # Errors
    /// When the database fails.
    pub(super) async fn fail(&self, conn: &mut PgConnection, now: Timestamp) -> Result<(), Error> {
        let forgotten = now - FORGOTTEN;
        db::sign_ins::count_failure(conn, &self.account, &self.counted, now, forgotten).await
    }

    /// Ends the delay after a login, and remembers the source.
    ///
    /// # Errors
    /// When the database fails.
    pub(super) async fn succeed(
        &self,
        conn: &mut PgConnection,
        source: &str,
        now: Timestamp,
    ) -> Result<(), Error> {
        db::sign_ins::end_delay(conn, &self.account, &self.counted).await?;
        if source.is_empty() {
            return Ok(());
        }
        db::sign_ins::record_login(conn, &self.account, source, now, SOURCES).await
    }
}

/// Returns the end of the delay: one second after the first failure beyond the free ones, then
/// doubled with each failure.
fn end_of(failures: i32, at: Timestamp) -> Option<Timestamp> {
    let doublings = u32::try_from(failures - FREE).ok()?;
    let delay_s = 1_i64.checked_shl(doublings.min(16)).unwrap_or(LONGEST_S);
    at.checked_add(SignedDuration::from_secs(delay_s.min(LONGEST_S)))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_doubles_up_to_a_quarter_of_an_hour() {
        let at: Timestamp = "2026-01-05T08:00:00Z".parse().unwrap();
        let delay_s = |failures| end_of(failures, at).map(|end| end.duration_since(at).as_secs());
        for (failures, expected) in [
            (0, None),
            (4, None),
            (5, Some(1)),
            (6, Some(2)),
            (14, Some(512)),
            (15, Some(900)),
            (1000, Some(900)),
        ] {
            assert_eq!(delay_s(failures), expected, "{failures}");
        }
    }
}
