//! The time for which an identity provider vouches for a person after a sign-in. The provider does
//! not report the leave of a person. Sessions and tokens have no effect after the time, until the
//! next sign-in.

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
    let vouched_at = db::vouching::find(conn, user.id).await?;
    let now = app.clock.now();
    match vouched_at {
        Some(at) if now.duration_since(at) >= lasts(app) => {
            let detail = format!(
                "{} signed in by the identity provider at {at:.0}, which is too long ago: sign in again in a browser. Tokens of the person work again afterwards.",
                user.name
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
