//! Routes of people: lists, and disabling and unlocking by an administrator.

use axum::extract::State;
use muster_api::problem::Problem;
use muster_api::users::User;
use sqlx::PgConnection;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::access::Sight;
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::filter::USERS;
use crate::error::Error;
use crate::http::extract::{Path, Query};
use crate::http::paging::{self, CountedPage, ListQuery};
use crate::intents::answer::Answer;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::users::{disable, enable, object, unlock};

/// The routes of people.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list_users))
        .routes(routes!(get_user))
        .routes(routes!(disable_user))
        .routes(routes!(enable_user))
        .routes(routes!(unlock_user))
}

/// Lists people with an earlier sign-in, and local administrators.
///
/// Filter fields: `name`, `role`, `issuer` and `disabled`. Sorted by `name`, unless `-name`,
/// `created_at` or `-created_at` is requested.
#[utoipa::path(get, path = "/v1/users",
    extensions(("x-muster-access" = json!({ "verb": "user.read", "place": "fleet" }))),
    tag = "access", params(ListQuery), responses(
    (status = 200, description = "One page of people", body = CountedPage<User>),
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
    paging::build_page(
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

/// Returns a person by name or id.
#[utoipa::path(get, path = "/v1/users/{user}",
    extensions(("x-muster-access" = json!({ "verb": "user.read", "place": "fleet" }))),
    tag = "access", params(("user", description = "Name or id")), responses(
    (status = 200, description = "The person", body = User),
    (status = 404, description = "No such person", body = Problem, content_type = "application/problem+json"),
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

/// Disables a person immediately.
///
/// The person can no longer sign in, all sessions end, and all requests with the person's tokens
/// are rejected.
#[utoipa::path(post, path = "/v1/users/{user}/actions/disable",
    extensions(("x-muster-access" = json!({ "verb": "user.disable", "place": "fleet" })),
        ("x-muster-links" = json!({ "self": ["get_user", {"user": "$response.body#/id"}] }))),
    tag = "access",
    params(("user", description = "Name or id"), ("Idempotency-Key" = Option<String>, Header)), responses(
    (status = 200, description = "The person, now disabled", body = User),
    (status = 404, description = "No such person", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "The caller and the person are the same", body = Problem, content_type = "application/problem+json"),
))]
async fn disable_user(
    State(app): State<App>,
    actor: Actor,
    Path(key): Path<String>,
    idempotency: IdempotencyKey,
) -> Result<Answer, Error> {
    disable(&app, &actor, &key, idempotency).await
}

/// Enables a disabled person again.
///
/// Ended sessions stay ended. The person's tokens work again.
#[utoipa::path(post, path = "/v1/users/{user}/actions/enable",
    extensions(("x-muster-access" = json!({ "verb": "user.disable", "place": "fleet" })),
        ("x-muster-links" = json!({ "self": ["get_user", {"user": "$response.body#/id"}] }))),
    tag = "access",
    params(("user", description = "Name or id"), ("Idempotency-Key" = Option<String>, Header)), responses(
    (status = 200, description = "The person, now enabled", body = User),
    (status = 404, description = "No such person", body = Problem, content_type = "application/problem+json"),
))]
async fn enable_user(
    State(app): State<App>,
    actor: Actor,
    Path(key): Path<String>,
    idempotency: IdempotencyKey,
) -> Result<Answer, Error> {
    enable(&app, &actor, &key, idempotency).await
}

/// Ends the delay of a person's logins.
///
/// Failed logins delay the next login of the person by up to 15 minutes. The failures counted so
/// far no longer delay a login.
#[utoipa::path(post, path = "/v1/users/{user}/actions/unlock",
    extensions(("x-muster-access" = json!({ "verb": "user.disable", "place": "fleet" })),
        ("x-muster-links" = json!({ "self": ["get_user", {"user": "$response.body#/id"}] }))),
    tag = "access",
    params(("user", description = "Name or id"), ("Idempotency-Key" = Option<String>, Header)), responses(
    (status = 200, description = "The person, with logins unlocked", body = User),
    (status = 404, description = "No such person", body = Problem, content_type = "application/problem+json"),
))]
async fn unlock_user(
    State(app): State<App>,
    actor: Actor,
    Path(key): Path<String>,
    idempotency: IdempotencyKey,
) -> Result<Answer, Error> {
    unlock(&app, &actor, &key, idempotency).await
}
