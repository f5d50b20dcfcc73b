//! Disabling a person by an administrator, enabling again, and ending the delay of logins.

use muster_api::users::User;
use serde_json::json;
use sqlx::PgConnection;

use crate::app::App;
use crate::auth::seals::write;
use crate::auth::{Actor, delays};
use crate::db;
use crate::db::approvals::RequestedBy;
use crate::db::users::PersonRow;
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::intents::approvals::withdraw;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::writing::{self, Effect};

/// Disables a person, for the API and the pages.
///
/// # Errors
/// The errors of the route `disable_user`.
pub async fn disable(
    app: &App,
    actor: &Actor,
    key: &str,
    idempotency: IdempotencyKey,
) -> Result<Answer, Error> {
    writing::once(app, actor, idempotency, &(), async |conn| {
        let person = find(conn, key).await?;
        if actor.person == format!("user:{}", person.name) {
            return Err(Error::conflict(
                "oneself",
                "You cannot disable yourself: ask another administrator.",
            ));
        }
        let now = app.clock.now();
        let was_sealed = write::is_sealed(conn, &app.keys.master, person.id).await?;
        if db::users::disable(conn, person.id, &actor.name, now).await? {
            if was_sealed {
                write::seal_user(conn, &app.keys.master, person.id).await?;
            }
            let summary = format!("{} disabled {}", actor.name, person.name);
            let event = actor
                .event(now, "user.disabled", None, summary)
                .with(json!({ "user": person.name }));
            db::events::insert(conn, event).await?;
            let name = format!("user:{}", person.name);
            let requests = RequestedBy::Person(&name);
            withdraw::withdraw_requests(conn, app, actor, requests).await?;
        }
        Answer::ok(&object(find(conn, key).await?)?).map(Effect::Done)
    })
    .await
}

/// Enables a person again, for the API and the pages.
///
/// # Errors
/// The errors of the route `enable_user`.
pub async fn enable(
    app: &App,
    actor: &Actor,
    key: &str,
    idempotency: IdempotencyKey,
) -> Result<Answer, Error> {
    writing::once(app, actor, idempotency, &(), async |conn| {
        let person = find(conn, key).await?;
        let was_sealed = write::is_sealed(conn, &app.keys.master, person.id).await?;
        if db::users::enable(conn, person.id).await? {
            if was_sealed {
                write::seal_user(conn, &app.keys.master, person.id).await?;
            }
            let summary = format!("{} enabled {}", actor.name, person.name);
            let event = actor.event(app.clock.now(), "user.enabled", None, summary);
            db::events::insert(conn, event.with(json!({ "user": person.name }))).await?;
        }
        Answer::ok(&object(find(conn, key).await?)?).map(Effect::Done)
    })
    .await
}

/// Ends the delay of a person's logins after failures, for the API.
///
/// # Errors
/// The errors of the route `unlock_user`.
pub async fn unlock(
    app: &App,
    actor: &Actor,
    key: &str,
    idempotency: IdempotencyKey,
) -> Result<Answer, Error> {
    writing::once(app, actor, idempotency, &(), async |conn| {
        let person = find(conn, key).await?;
        if delays::end(conn, person.id).await? {
            let summary = format!("{} unlocked the logins of {}", actor.name, person.name);
            let event = actor.event(app.clock.now(), "user.unlocked", None, summary);
            db::events::insert(conn, event.with(json!({ "user": person.name }))).await?;
        }
        Answer::ok(&object(person)?).map(Effect::Done)
    })
    .await
}

/// Locks a person, and loads the row.
async fn find(conn: &mut PgConnection, key: &str) -> Result<PersonRow, Error> {
    let missing = || Error::NotFound(format!("user {key:?}"));
    let id = db::users::find_id_for_update(conn, key)
        .await?
        .ok_or_else(missing)?;
    db::users::list_by_id(conn, &[id.0])
        .await?
        .pop()
        .ok_or_else(missing)
}

pub(crate) fn object(row: PersonRow) -> Result<User, Error> {
    Ok(User {
        id: row.id.0,
        link: format!("/v1/users/{}", row.id),
        role: row.role,
        name: row.name,
        issuer: row.issuer,
        subject: row.subject,
        groups: row.groups,
        created_at: row.created_at,
        last_seen: row.last_seen.map(|at| at.to_jiff()),
        disabled_at: row.disabled_at.map(|at| at.to_jiff()),
        disabled_by: row.disabled_by,
    })
}
