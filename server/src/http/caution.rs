//! Caution mode: whether it holds, and its end by an administrator.

use axum::extract::State;
use muster_api::cautions::{Caution, CautionStatus, ConfirmCaution, Witness};
use muster_api::problem::Problem;
use sqlx::PgConnection;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::Answer;
use super::extract::Json;
use super::idempotency::IdempotencyKey;
use super::writing::{self, Effect};
use crate::app::App;
use crate::auth::Actor;
use crate::auth::access::Sight;
use crate::db;
use crate::db::filter;
use crate::engine::caution;
use crate::error::Error;

/// The longest note, in bytes.
const NOTE: usize = 1000;

/// The routes of caution mode.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(get_caution))
        .routes(routes!(confirm_caution))
}

/// Whether the fleet is in caution mode: the database is older than what an agent, a node or a replica remembers.
#[utoipa::path(get, path = "/v1/caution", tag = "caution", responses(
    (status = 200, description = "How it stands", body = CautionStatus),
))]
async fn get_caution(State(app): State<App>, actor: Actor) -> Result<Answer, Error> {
    Answer::ok(&status(&mut *app.pool.acquire().await?, &actor.sight()).await?)
}

/// Ends caution mode. Every permit of before stays void; what was under way is begun anew.
#[utoipa::path(post, path = "/v1/caution/confirm", tag = "caution",
    params(("Idempotency-Key" = Option<String>, Header)), request_body = ConfirmCaution, responses(
    (status = 200, description = "It is over", body = CautionStatus),
    (status = 409, description = "Another caution holds, or none", body = Problem, content_type = "application/problem+json"),
))]
async fn confirm_caution(
    State(app): State<App>,
    actor: Actor,
    idempotency: IdempotencyKey,
    Json(request): Json<ConfirmCaution>,
) -> Result<Answer, Error> {
    confirm(&app, &actor, idempotency, &request).await
}

/// Ends it, as the API and the pages do.
///
/// # Errors
/// 409 when it is not the one that holds, 422 when the note is missing.
pub async fn confirm(
    app: &App,
    actor: &Actor,
    idempotency: IdempotencyKey,
    request: &ConfirmCaution,
) -> Result<Answer, Error> {
    let note = request.note.trim();
    if note.is_empty() || note.len() > NOTE {
        let detail = format!("Say what was found, in at most {NOTE} bytes.");
        return Err(Error::unprocessable("/note", "required", detail));
    }
    writing::once(app, actor, idempotency, request, async |conn| {
        caution::confirm(conn, actor, request.id, note, app.clock.now()).await?;
        Answer::ok(&status(conn, &actor.sight()).await?).map(Effect::Done)
    })
    .await
}

/// How it stands, with the agents of the sites that a reader may see.
async fn status(conn: &mut PgConnection, sight: &Sight) -> Result<CautionStatus, Error> {
    let open = db::cautions::find_open(conn).await?;
    let since = open.as_ref().map(|row| row.noticed_at);
    let sites = filter::seen(conn, &filter::objects("site"), sight).await?;
    let agents = db::agents::list(conn, sites.as_deref())
        .await?
        .into_iter()
        .map(|row| {
            let last_seen = row.last_seen.map(|at| at.to_jiff());
            let heard = since.is_none_or(|since| last_seen.is_some_and(|seen| seen >= since));
            Witness {
                agent: row.name,
                site: row.site_name,
                last_seen,
                heard,
            }
        });
    Ok(CautionStatus {
        agents: agents.collect(),
        caution: open.map(|row| Caution {
            id: row.id,
            because: row.because,
            noticed_at: row.noticed_at,
        }),
    })
}
