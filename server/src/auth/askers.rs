//! The present rights of the author of a stored request. A request waits for up to a day, and the
//! author can lose rights in that time.

use sqlx::PgConnection;

use super::access::Named;
use super::{Actor, break_glass, sessions, tokens};
use crate::app::App;
use crate::db;
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
            None => tokens::find_actor(app, conn, row).await,
        };
    }
    let missing = || lost(name, "the person does not exist");
    let person = name.strip_prefix("user:").ok_or_else(missing)?;
    let user = db::users::find(conn, person).await?.ok_or_else(missing)?;
    match break_glass::admits(conn, app, &user).await? {
        true => sessions::find_actor(conn, &user).await,
        false => Err(lost(name, "the person is disabled, or not armed")),
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
