//! Approvals: a request beyond the limits of one person waits for a second person. Limits apply to
//! erasures in an hour, and to waivers of gates.

use axum::extract::State;
use muster_api::approvals::Approval;
use muster_api::problem::Problem;
use sqlx::PgConnection;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::extract::{Path, Query};
use super::paging::{self, CountedPage, ListQuery};
use crate::app::App;
use crate::auth::Actor;
use crate::db::{self, filter};
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::intents::approvals::decide::{Decision, decide};
use crate::intents::approvals::view::object;
use crate::intents::idempotency::IdempotencyKey;

/// The routes of approvals.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list_approvals))
        .routes(routes!(get_approval))
        .routes(routes!(grant_approval))
        .routes(routes!(deny_approval))
}

/// Lists requests waiting for a second person.
///
/// Sorted oldest first unless `-created_at` is requested. Filter fields: `node`, `claim`,
/// `requested_by` and `action` (`release`, `wipe`, `reinstall` or `waive`).
#[utoipa::path(get, path = "/v1/approvals",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "any" }))),
    tag = "approvals", params(ListQuery), responses(
    (status = 200, description = "One page of approvals", body = CountedPage<Approval>),
))]
async fn list_approvals(
    State(app): State<App>,
    actor: Actor,
    Query(query): Query<ListQuery>,
) -> Result<Answer, Error> {
    let load = async |conn: &mut PgConnection, ids: &[Uuid]| {
        db::approvals::list_by_id(conn, ids)
            .await?
            .into_iter()
            .map(|row| Ok(object(row)))
            .collect()
    };
    let list = filter::approvals_at(app.clock.now());
    let mut conn = app.pool.acquire().await?;
    let sight = actor.sight();
    paging::build_page(
        &mut conn,
        &list,
        &query,
        Vec::new(),
        &sight,
        load,
        |approval: &Approval| (approval.id, ""),
    )
    .await
}

/// Returns one approval, also after the decision.
///
/// A refusal with the code `second_person` links to the approval.
#[utoipa::path(get, path = "/v1/approvals/{approval}",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "approval={approval}" }))),
    tag = "approvals", params(("approval", description = "Id")), responses(
    (status = 200, description = "The approval", body = Approval),
    (status = 404, description = "No such approval", body = Problem, content_type = "application/problem+json"),
))]
async fn get_approval(
    State(app): State<App>,
    _: Actor,
    Path(id): Path<Uuid>,
) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    let found = db::approvals::list_by_id(&mut conn, &[id]).await?.pop();
    let found = found.ok_or_else(|| Error::NotFound(format!("approval {id}")))?;
    Answer::ok(&object(found))
}

/// Approves the request of another person, and begins the requested work.
#[utoipa::path(post, path = "/v1/approvals/{approval}/approve",
    extensions(("x-muster-access" = json!({ "verb": "approval.decide", "place": "approval={approval}" })),
        ("x-muster-links" = json!({ "self": ["get_approval", {"approval": "$response.body#/id"}], "operation": ["get_operation", {"id": "$response.body#/operation"}] }))),
    tag = "approvals",
    params(("approval", description = "Id"), ("Idempotency-Key" = Option<String>, Header)), responses(
    (status = 200, description = "The approval; the work has begun, or the waiver is active", body = Approval),
    (status = 403, description = "The same person made the request", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "The request is already decided, or has expired", body = Problem, content_type = "application/problem+json"),
))]
async fn grant_approval(
    State(app): State<App>,
    actor: Actor,
    Path(id): Path<Uuid>,
    idempotency: IdempotencyKey,
) -> Result<Answer, Error> {
    decide(&app, &actor, id, Decision::Approve, idempotency).await
}

/// Denies a request.
#[utoipa::path(post, path = "/v1/approvals/{approval}/deny",
    extensions(("x-muster-access" = json!({ "verb": "approval.decide", "place": "approval={approval}" })),
        ("x-muster-links" = json!({ "self": ["get_approval", {"approval": "$response.body#/id"}] }))),
    tag = "approvals",
    params(("approval", description = "Id"), ("Idempotency-Key" = Option<String>, Header)), responses(
    (status = 200, description = "The approval, now denied", body = Approval),
    (status = 409, description = "The request is already decided, or has expired", body = Problem, content_type = "application/problem+json"),
))]
async fn deny_approval(
    State(app): State<App>,
    actor: Actor,
    Path(id): Path<Uuid>,
    idempotency: IdempotencyKey,
) -> Result<Answer, Error> {
    decide(&app, &actor, id, Decision::Deny, idempotency).await
}
