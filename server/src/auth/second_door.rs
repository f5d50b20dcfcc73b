//! Administrators' tokens without a person, beside an identity provider. Such a token counts only
//! while the local administrator is armed, or by its name in the server's options. Otherwise the
//! token is a second way past the arming.

use jiff::SignedDuration;
use muster_api::tokens::Role;
use serde_json::json;
use sqlx::{Connection as _, PgConnection};

use super::break_glass;
use crate::app::App;
use crate::db;
use crate::db::events::NewEvent;
use crate::db::tokens::TokenRow;
use crate::db::unarmed::UsedRow;
use crate::error::Error;

/// Returns whether a token counts beside the identity provider. Tokens of the version before count
/// for one more version, with a warning event a day.
///
/// # Errors
///
/// When the database fails.
pub async fn admits(conn: &mut PgConnection, app: &App, row: &TokenRow) -> Result<bool, Error> {
    let Some(provider) = &app.oidc else {
        return Ok(true);
    };
    let maker = row.person.as_deref().unwrap_or_default();
    let is_named = provider.keeps_token(&row.name)
        || maker
            .strip_prefix("token:")
            .is_some_and(|maker| provider.keeps_token(maker));
    if row.role != Role::Admin || maker.starts_with("user:") || is_named {
        return Ok(true);
    }
    if break_glass::find(conn, app).await?.is_some() {
        return Ok(true);
    }
    note(conn, app, row).await?;
    Ok(row.keeps_unarmed)
}

/// Returns the refusal, with the ways to let the token count.
pub(super) fn refuse(row: &TokenRow) -> Error {
    Error::Forbidden(format!(
        "The token {name} is an administrator's and has no person. Beside an identity provider such a token counts only while the local administrator is armed (`muster admin arm`), or with the server's option `--oidc-keeps-token {name}`.",
        name = row.name
    ))
}

/// Returns such a token with a use or a refusal in the last day, for the banner.
///
/// # Errors
///
/// When the database fails.
pub async fn find_used(conn: &mut PgConnection, app: &App) -> Result<Option<UsedRow>, Error> {
    if app.oidc.is_none() {
        return Ok(None);
    }
    let since = app.clock.now() - SignedDuration::from_hours(24);
    db::unarmed::find_used_since(conn, since).await
}

/// Writes a warning event, at most one a day for a token.
async fn note(conn: &mut PgConnection, app: &App, row: &TokenRow) -> Result<(), Error> {
    let now = app.clock.now();
    let mut tx = conn.begin().await?;
    if db::unarmed::note_use(&mut tx, row.id, now).await? {
        let (kind, what) = match row.keeps_unarmed {
            true => (
                "token.unarmed_used",
                "counts until the next version: name the token by --oidc-keeps-token, or use a token of a person",
            ),
            false => (
                "token.unarmed_refused",
                "is refused, because the local administrator is not armed",
            ),
        };
        let summary = format!(
            "the administrator's token {} without a person {what}",
            row.name
        );
        let event = NewEvent::new(now, format!("token:{}", row.name), kind, summary);
        db::events::insert(&mut tx, event.with(json!({ "token": row.id }))).await?;
    }
    Ok(tx.commit().await?)
}
