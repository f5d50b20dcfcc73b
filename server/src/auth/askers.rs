//! The present rights of the author of a stored request. A request waits for up to a day, and the
//! author can lose rights in that time.

use sqlx::PgConnection;

use super::access::Named;
use super::seals::counts;
use super::{Actor, break_glass, second_door, sessions, tokens, vouching};
use crate::app::App;
use crate::db;
use crate::db::tokens::TokenRow;
use crate::error::Error;

/// Returns the author of a request, `token:NAME` or `user:NAME`, with the rights of today.
///
/// # Errors
///
/// 409 when the token has ended or the person is disabled; the database's.
pub(crate) async fn find(app: &App, conn: &mut PgConnection, name: &str) -> Result<Actor, Error> {
    if let Some(token) = name.strip_prefix("token:") {
        let row = db::tokens::find_named(conn, token).await?;
        let row = row.ok_or_else(|| lost(name, "the token does not exist"))?;
        return match row.revoked_at {
            Some(_) => Err(lost(name, "the token is revoked")),
            None if row.expires_at <= app.clock.now() => {
                Err(lost(name, "the token is past its end"))
            }
            None => find_token_actor(app, conn, name, row).await,
        };
    }
    let missing = || lost(name, "the person does not exist");
    let person = name.strip_prefix("user:").ok_or_else(missing)?;
    let user = db::users::find(conn, person).await?.ok_or_else(missing)?;
    if !break_glass::admits(conn, app, &user).await? {
        let reason = "the person is disabled, not armed, or without a valid seal";
        return Err(lost(name, reason));
    }
    match vouching::need(conn, app, &user).await {
        Ok(()) => sessions::find_actor(app, conn, &user).await,
        Err(Error::NotAdmitted { .. }) => Err(lost(name, "the person must sign in again")),
        Err(other) => Err(other),
    }
}

async fn find_token_actor(
    app: &App,
    conn: &mut PgConnection,
    name: &str,
    row: TokenRow,
) -> Result<Actor, Error> {
    if !counts::token_counts(app, conn, &row).await? {
        return Err(lost(name, "the row of the token has no valid seal"));
    }
    if !second_door::admits(conn, app, &row).await? {
        let reason = "the token has no person, and the local administrator is not armed";
        return Err(lost(name, reason));
    }
    match tokens::find_actor(app, conn, row).await {
        Err(Error::NotAdmitted { .. }) => {
            Err(lost(name, "the person of the token must sign in again"))
        }
        other => other,
    }
}

/// Rejects an approval when the author of the request has no right to the object today.
///
/// # Errors
///
/// 409 with the missing right; the database's.
pub(crate) async fn need(
    asker: &Actor,
    conn: &mut PgConnection,
    verb: &str,
    object: Named<'_>,
) -> Result<(), Error> {
    match asker.need(conn, verb, object).await {
        Err(Error::Forbidden(why)) => Err(lost(&asker.name, why.trim_end_matches('.'))),
        Err(Error::NotFound(_)) => {
            let why = format!(
                "the {} {} is outside of the author's scope",
                object.kind, object.key
            );
            Err(lost(&asker.name, &why))
        }
        other => other,
    }
}

/// The refusal of an approval, with the reason.
fn lost(name: &str, why: &str) -> Error {
    let detail = format!(
        "{name} asked for this and may not do it any more: {why}. Deny the request; a person or token with the right can ask again."
    );
    Error::conflict("asker_lost_rights", detail)
}
