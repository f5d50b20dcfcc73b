//! Tokens of machines: the secret is shown once, and a revocation takes effect immediately.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use jiff::SignedDuration;
use muster_api::access::Scope;
use muster_api::problem::Problem;
use muster_api::tokens::{CreateToken, CreatedToken, FIRST, Role, Token};
use muster_core::ids::TokenId;
use serde_json::json;
use sqlx::PgConnection;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::extract::{Json, Path, Query};
use super::paging::{self, CountedPage, ListQuery};
use crate::access::Sight;
use crate::app::App;
use crate::auth::seals::write;
use crate::auth::{Actor, tokens};
use crate::db;
use crate::db::approvals::RequestedBy;
use crate::db::filter::{self, Term};
use crate::db::tokens::{NewToken, Owner, TokenRow};
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::intents::approvals::withdraw;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::preconditions::Preconditions;
use crate::intents::writing;
use crate::intents::writing::Effect;

/// The longest lifetime of a token, in seconds.
const LONGEST_S: u32 = 366 * 24 * 3600;

/// The routes of tokens.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list_tokens, create_token))
        .routes(routes!(get_token, revoke_token))
}

/// Lists tokens, without their secrets.
///
/// Callers see their own tokens, and with the permission `token.read` the tokens of all people.
/// Filter fields: `name`, `role`, `person` and `state` (`valid`, `over` or `revoked`). Sorted by
/// `name`, unless `-name`, `created_at` or `-created_at` is requested.
// Tokens of other people need `token.read` and `token.revoke`.
#[utoipa::path(get, path = "/v1/tokens",
    extensions(("x-muster-access" = json!({ "verb": "token.create", "place": "any" }))),
    tag = "tokens", params(ListQuery), responses(
    (status = 200, description = "One page of tokens", body = CountedPage<Token>),
))]
async fn list_tokens(
    State(app): State<App>,
    actor: Actor,
    Query(query): Query<ListQuery>,
) -> Result<Answer, Error> {
    let own =
        (!actor.holding.everywhere("token.read")).then(|| Term::equal("person", &*actor.person));
    let load = async |conn: &mut PgConnection, ids: &[Uuid]| {
        db::tokens::list_by_id(conn, ids)
            .await?
            .into_iter()
            .map(render_token)
            .collect()
    };
    let list = filter::tokens_at(app.clock.now());
    let mut conn = app.pool.acquire().await?;
    let only = own.into_iter().collect();
    let sight = Sight::new();
    paging::build_page(
        &mut conn,
        &list,
        &query,
        only,
        &sight,
        load,
        |token: &Token| (token.id, token.name.as_str()),
    )
    .await
}

/// Creates a token.
///
/// The secret is in this answer only, and in the answer to the same request with the same
/// Idempotency-Key. Until that stored answer expires, the server keeps the secret sealed. A name
/// can be used once, so a repeated request cannot create a second token.
#[utoipa::path(post, path = "/v1/tokens",
    extensions(("x-muster-access" = json!({ "verb": "token.create", "place": "any" })),
        ("x-muster-links" = json!({ "self": ["get_token", {"token": "$response.body#/token/id"}], "revoke": ["revoke_token", {"token": "$response.body#/token/id"}] }))),
    tag = "tokens", params(("Idempotency-Key" = Option<String>, Header)), request_body = CreateToken, responses(
    (status = 201, description = "The token, with its secret", body = CreatedToken),
    (status = 422, description = "The lifetime is below a minute, above a year, or longer than the lifetime of the token used for this request", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "The name is taken", body = Problem, content_type = "application/problem+json"),
))]
async fn create_token(
    State(app): State<App>,
    actor: Actor,
    idempotency: IdempotencyKey,
    Json(request): Json<CreateToken>,
) -> Result<Answer, Error> {
    allow(&actor, &request)?;
    let now = app.clock.now();
    let minted = tokens::mint(Some(&app.keys.tokens));
    let row = NewToken {
        id: minted.id,
        name: request.name.to_string(),
        mac: minted.mac,
        role: request.role.as_str(),
        created_at: now,
        expires_at: now + SignedDuration::from_secs(i64::from(request.expires_in_s)),
    };
    writing::once(&app, &actor, idempotency, &request, async |conn| {
        insert(conn, &actor, &row, &request).await?;
        write::seal_token(conn, &app.keys.master, row.id).await?;
        let made = CreatedToken {
            token: render_created(&actor, &row, &request),
            secret: minted.secret.clone(),
        };
        Ok(Effect::Secret(
            Answer::ok(&made)?.status(StatusCode::CREATED),
        ))
    })
    .await
}

/// Checks whether the actor may create this token: lifetime, role and limit of releases.
fn allow(actor: &Actor, request: &CreateToken) -> Result<(), Error> {
    if !(60..=LONGEST_S).contains(&request.expires_in_s) {
        return Err(Error::unprocessable(
            "/expires_in_s",
            "out_of_range",
            "From a minute to a year.",
        ));
    }
    if !actor.holding.includes(request.role, &request.scope) {
        let detail = format!(
            "{} does not hold the role {} in this scope, and cannot grant it.",
            actor.name,
            request.role.as_str()
        );
        return Err(Error::Forbidden(detail));
    }
    // An actor with a limit of releases must not get a higher limit through a token.
    let is_admin = actor.is_person() && actor.holding.includes(Role::Admin, &Scope::default());
    if let Some(most) = actor
        .releases_per_hour
        .filter(|most| request.releases_per_hour > *most && !is_admin)
    {
        let detail = format!(
            "{} may release {most} nodes per hour, and cannot grant a higher limit.",
            actor.name
        );
        return Err(Error::Forbidden(detail));
    }
    Ok(())
}

/// Writes a token with its owner and its event.
///
/// # Errors
/// 422 where the new token would outlive the token of the request.
async fn insert(
    conn: &mut PgConnection,
    actor: &Actor,
    row: &NewToken,
    request: &CreateToken,
) -> Result<(), Error> {
    if let Some(maker) = actor.token {
        check_lifetime(conn, maker, row).await?;
    }
    let owner = Owner {
        person: &actor.person,
        made_by: actor.token,
        scope: &request.scope,
        releases_per_hour: i32::try_from(request.releases_per_hour).unwrap_or(i32::MAX),
    };
    db::tokens::insert(conn, row).await?;
    db::tokens::set_owner(conn, row.id, owner).await?;
    let summary = format!("token {} created with the role {}", row.name, row.role);
    let event = actor.event(row.created_at, "token.created", None, summary);
    let detail = json!({ "token": row.id, "made_by": actor.token });
    db::events::insert(conn, event.with(detail)).await
}

/// Renders a new token for the answer.
fn render_created(actor: &Actor, row: &NewToken, request: &CreateToken) -> Token {
    Token {
        id: row.id.0,
        name: row.name.clone(),
        role: request.role,
        scope: request.scope.clone(),
        created_at: row.created_at,
        expires_at: row.expires_at,
        last_used: None,
        revoked_at: None,
        releases_per_hour: Some(request.releases_per_hour),
        made_by: actor.token.map(|maker| maker.0),
        generation: FIRST,
    }
}

/// Returns a token, without its secret.
///
/// Callers see their own tokens, and with the permission `token.read` the tokens of all people. The
/// ETag is always `"1"`.
#[utoipa::path(get, path = "/v1/tokens/{token}",
    extensions(("x-muster-access" = json!({ "verb": "token.create", "place": "any" }))),
    tag = "tokens", params(("token", description = "Name or id")), responses(
    (status = 200, description = "The token, also after its end or revocation", body = Token),
    (status = 404, description = "No such token, or the caller may not read the token", body = Problem, content_type = "application/problem+json"),
))]
async fn get_token(
    State(app): State<App>,
    actor: Actor,
    Path(key): Path<String>,
) -> Result<Answer, Error> {
    let missing = || Error::NotFound(format!("token {key:?}"));
    let row = db::tokens::find_named(&mut *app.pool.acquire().await?, &key)
        .await?
        .ok_or_else(missing)?;
    match is_own(&row, &actor) || actor.holding.everywhere("token.read") {
        true => Ok(Answer::ok(&render_token(row)?)?.etag(FIRST)),
        false => Err(missing()),
    }
}

/// Revokes a token immediately, with every token created by it.
///
/// Tokens created by those tokens are revoked too. The ETag is always `"1"`; `If-Match: *` is
/// accepted.
#[utoipa::path(delete, path = "/v1/tokens/{token}",
    extensions(("x-muster-access" = json!({ "verb": "token.create", "place": "any" }))),
    tag = "tokens", params(("token", description = "Name or id"), ("If-Match" = String, Header)), responses(
    (status = 204, description = "The token is revoked"),
    (status = 428, description = "If-Match is missing", body = Problem, content_type = "application/problem+json"),
    (status = 404, description = "No such token", body = Problem, content_type = "application/problem+json"),
))]
async fn revoke_token(
    State(app): State<App>,
    actor: Actor,
    Path(key): Path<String>,
    preconditions: Preconditions,
) -> Result<Response, Error> {
    let missing = || Error::NotFound(format!("token {key:?}"));
    writing::write(&app, &actor, async |conn| {
        let row = db::tokens::find_named(conn, &key)
            .await?
            .ok_or_else(missing)?;
        if !is_own(&row, &actor) && !actor.holding.everywhere("token.revoke") {
            return Err(missing());
        }
        preconditions.allow_removal(FIRST)?;
        let now = app.clock.now();
        for ended in db::tokens::revoke(conn, row.id, now).await? {
            let with = if ended.id == row.id {
                String::new()
            } else {
                format!(" together with token {}", row.name)
            };
            let event = actor.event(
                now,
                "token.revoked",
                None,
                format!("token {} revoked{with}", ended.name),
            );
            db::events::insert(conn, event.with(json!({ "token": ended.id }))).await?;
            let name = format!("token:{}", ended.name);
            let requests = RequestedBy::Token(&name);
            withdraw::withdraw_requests(conn, &app, &actor, requests).await?;
        }
        Ok(())
    })
    .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Rejects a token with a longer life than the token of the request.
async fn check_lifetime(
    conn: &mut PgConnection,
    maker: TokenId,
    made: &NewToken,
) -> Result<(), Error> {
    let until = db::tokens::hold(conn, maker, made.created_at)
        .await?
        .ok_or(Error::Unauthenticated)?;
    if made.expires_at <= until {
        return Ok(());
    }
    let left = until.duration_since(made.created_at).as_secs();
    let detail =
        format!("A new token cannot outlive the token of the request, which has {left} s left.");
    Err(Error::unprocessable(
        "/expires_in_s",
        "outlives_maker",
        detail,
    ))
}

/// Whether the actor created the token, or uses the token.
fn is_own(row: &TokenRow, actor: &Actor) -> bool {
    row.person.as_deref() == Some(&*actor.person) || actor.token == Some(row.id)
}

fn render_token(row: TokenRow) -> Result<Token, Error> {
    Ok(Token {
        role: row.role,
        scope: row.scope.0,
        id: row.id.0,
        name: row.name,
        created_at: row.created_at,
        expires_at: row.expires_at,
        last_used: row.last_used.map(|at| at.to_jiff()),
        revoked_at: row.revoked_at.map(|at| at.to_jiff()),
        releases_per_hour: row
            .releases_per_hour
            .and_then(|limit| u32::try_from(limit).ok()),
        made_by: row.made_by.map(|maker| maker.0),
        generation: FIRST,
    })
}
