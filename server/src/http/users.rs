//! People: who has signed in, and whom an administrator keeps out. Who they are and what they may is said elsewhere (docs/access.md).

use axum::extract::State;
use muster_api::problem::Problem;
use muster_api::users::User;
use serde_json::json;
use sqlx::PgConnection;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::answer::Answer;
use super::extract::{Path, Query};
use super::idempotency::IdempotencyKey;
use super::paging::{self, CountedPage, ListQuery};
use super::writing::{self, Effect};
use crate::app::App;
use crate::auth::Actor;
use crate::auth::access::Sight;
use crate::db;
use crate::db::filter::USERS;
use crate::db::users::PersonRow;
use crate::error::Error;

/// The routes of people.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list_users))
        .routes(routes!(get_user))
        .routes(routes!(disable_user))
        .routes(routes!(enable_user))
}

/// People who have signed in, and local administrators. They are filtered by `name`, `role`, `issuer` and `disabled`, and sorted by `name`, unless `-name`,
/// `created_at` or `-created_at` is asked for.
#[utoipa::path(get, path = "/v1/users", tag = "access", params(ListQuery), responses(
    (status = 200, description = "The page", body = CountedPage<User>),
))]
async fn list_users(
    State(app): State<App>,
    _: Actor,
    Query(query): Query<ListQuery>,
) -> Result<Answer, Error> {
    let load = async |conn: &mut PgConnection, ids: &[Uuid]| {
        db::users::list_by_id(conn, ids)
            .await?
            .into_iter()
            .map(object)
            .collect()
    };
    let mut conn = app.pool.acquire().await?;
    let sight = Sight::new();
    paging::page(
        &mut conn,
        &USERS,
        &query,
        Vec::new(),
        &sight,
        load,
        |user: &User| (user.id, user.name.as_str()),
    )
    .await
}

/// A person.
#[utoipa::path(get, path = "/v1/users/{user}", tag = "access", params(("user", description = "Name or id")), responses(
    (status = 200, description = "They", body = User),
    (status = 404, description = "There is nobody of that name", body = Problem, content_type = "application/problem+json"),
))]
async fn get_user(
    State(app): State<App>,
    _: Actor,
    Path(key): Path<String>,
) -> Result<Answer, Error> {
    let missing = || Error::NotFound(format!("user {key:?}"));
    let mut conn = app.pool.acquire().await?;
    let id = db::users::find_id(&mut conn, &key)
        .await?
        .ok_or_else(missing)?;
    Answer::ok(&object(
        db::users::list_by_id(&mut conn, &[id.0])
            .await?
            .pop()
            .ok_or_else(missing)?,
    )?)
}

/// Keeps a person out, at once: they sign in no more, their sessions end, and their tokens may nothing.
#[utoipa::path(post, path = "/v1/users/{user}/actions/disable", tag = "access",
    params(("user", description = "Name or id"), ("Idempotency-Key" = Option<String>, Header)), responses(
    (status = 200, description = "They are kept out", body = User),
    (status = 404, description = "There is nobody of that name", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "It is oneself", body = Problem, content_type = "application/problem+json"),
))]
async fn disable_user(
    State(app): State<App>,
    actor: Actor,
    Path(key): Path<String>,
    idempotency: IdempotencyKey,
) -> Result<Answer, Error> {
    disable(&app, &actor, &key, idempotency).await
}

/// Keeps a person out, as the API and the pages do.
///
/// # Errors
/// As [`disable_user`] answers.
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
                "Nobody keeps themselves out: ask another administrator.",
            ));
        }
        let now = app.clock.now();
        if db::users::disable(conn, person.id, &actor.name, now).await? {
            let summary = format!("{} keeps {} out", actor.name, person.name);
            let event = actor
                .event(now, "user.disabled", None, summary)
                .with(json!({ "user": person.name }));
            db::events::insert(conn, event).await?;
        }
        Answer::ok(&object(find(conn, key).await?)?).map(Effect::Done)
    })
    .await
}

/// Lets a person in again. Their sessions are over all the same; their tokens may again what they could.
#[utoipa::path(post, path = "/v1/users/{user}/actions/enable", tag = "access",
    params(("user", description = "Name or id"), ("Idempotency-Key" = Option<String>, Header)), responses(
    (status = 200, description = "They may sign in", body = User),
    (status = 404, description = "There is nobody of that name", body = Problem, content_type = "application/problem+json"),
))]
async fn enable_user(
    State(app): State<App>,
    actor: Actor,
    Path(key): Path<String>,
    idempotency: IdempotencyKey,
) -> Result<Answer, Error> {
    enable(&app, &actor, &key, idempotency).await
}

/// Lets a person in again, as the API and the pages do.
///
/// # Errors
/// As [`enable_user`] answers.
pub async fn enable(
    app: &App,
    actor: &Actor,
    key: &str,
    idempotency: IdempotencyKey,
) -> Result<Answer, Error> {
    writing::once(app, actor, idempotency, &(), async |conn| {
        let person = find(conn, key).await?;
        if db::users::enable(conn, person.id).await? {
            let summary = format!("{} lets {} in again", actor.name, person.name);
            let event = actor.event(app.clock.now(), "user.enabled", None, summary);
            db::events::insert(conn, event.with(json!({ "user": person.name }))).await?;
        }
        Answer::ok(&object(find(conn, key).await?)?).map(Effect::Done)
    })
    .await
}

/// A person, locked.
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

fn object(row: PersonRow) -> Result<User, Error> {
    let role = row.role.parse();
    Ok(User {
        id: row.id.0,
        link: format!("/v1/users/{}", row.id),
        role: role
            .map_err(|why: String| Error::internal(anyhow::anyhow!("user {}: {why}", row.name)))?,
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
