//! The time for which an identity provider vouches for a person after a sign-in. Sessions and
//! tokens have no effect after the time, or after a logout reported by the provider, until the next
//! sign-in.

use jiff::{SignedDuration, Timestamp};
use muster_core::ids::UserId;
use sqlx::{Connection as _, PgConnection};

use crate::app::App;
use crate::db;
use crate::db::events::NewEvent;
use crate::db::users::UserRow;
use crate::error::Error;
use crate::oidc::{Provider, VOUCHES_FOR};

/// The code of the refusal.
const SIGN_IN_AGAIN: &str = "sign_in_again";

/// The stored sign-in of a person after a logout at the provider. Servers of the version before
/// refuse the person too, because the time is long past.
const LOGGED_OUT: Timestamp = Timestamp::UNIX_EPOCH;

/// The longest time between the warning of a person and the end of the vouching.
const WARNED: SignedDuration = SignedDuration::from_hours(24);

/// Returns the time for which the provider vouches for a person. A fleet that lost its provider has
/// the default: its people cannot sign in again.
pub(crate) fn lasts(app: &App) -> SignedDuration {
    app.oidc
        .as_deref()
        .map_or(VOUCHES_FOR, Provider::vouches_for)
}

/// Returns the time between the warning of a person and the end of the vouching: a day, or the last
/// quarter of a short time.
pub(crate) fn warned(app: &App) -> SignedDuration {
    WARNED.min(lasts(app) / 4)
}

/// Rejects a person whose latest sign-in by a provider is too old. People with a password are
/// admitted.
///
/// # Errors
///
/// 401 `sign_in_again`; the database's.
pub(crate) async fn need(conn: &mut PgConnection, app: &App, user: &UserRow) -> Result<(), Error> {
    if user.password_hash.is_some() {
        return Ok(());
    }
    let vouched_at = user.issuer.is_some().then_some(user.vouched_at);
    let now = app.clock.now();
    match vouched_at {
        Some(at) if now.duration_since(at) >= lasts(app) => {
            let detail = format!(
                "{} {}: sign in again in a browser. Tokens of the person work again afterwards.",
                user.name,
                describe_end(at)
            );
            Err(Error::NotAdmitted {
                code: SIGN_IN_AGAIN,
                detail,
            })
        }
        Some(at) if lasts(app) - now.duration_since(at) <= warned(app) => {
            warn(conn, user, at + lasts(app), now).await
        }
        Some(_) | None => Ok(()),
    }
}

fn describe_end(vouched_at: Timestamp) -> String {
    if vouched_at <= LOGGED_OUT {
        return "signed out at the identity provider".to_owned();
    }
    format!("signed in by the identity provider at {vouched_at:.0}, which is too long ago")
}

/// Records one event before the end of the vouching.
async fn warn(
    conn: &mut PgConnection,
    user: &UserRow,
    end: Timestamp,
    now: Timestamp,
) -> Result<(), Error> {
    let mut tx = conn.begin().await?;
    if db::vouching::note_warning(&mut tx, user.id, now).await? {
        let summary = format!(
            "{} must sign in by the identity provider before {end:.0}: later, the person's sessions and tokens are refused",
            user.name
        );
        let event = NewEvent::new(now, "muster", "user.sign_in_due", summary);
        db::events::insert(&mut tx, event).await?;
    }
    tx.commit().await?;
    Ok(())
}

/// Records a sign-in of a person by the provider.
///
/// # Errors
///
/// The database's.
pub(crate) async fn renew(conn: &mut PgConnection, app: &App, user: UserId) -> Result<(), Error> {
    db::vouching::set(conn, user, app.clock.now()).await
}

/// Ends the vouching for a person and all sessions of the person. Returns the number of ended
/// sessions.
///
/// # Errors
///
/// The database's.
pub(crate) async fn end(conn: &mut PgConnection, user: UserId) -> Result<u64, Error> {
    db::vouching::set(&mut *conn, user, LOGGED_OUT).await?;
    db::vouching::delete_sessions(conn, user).await
}
