//! Whether the local administrator may sign in beside the identity provider.

use axum::extract::State;
use muster_api::break_glass::{ArmedUntil, BreakGlass};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::auth::{Actor, break_glass};
use crate::error::Error;
use crate::intents::answer::Answer;

/// Its one route.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(get_break_glass))
}

/// Whether the local administrator may sign in: always, where no identity provider vouches for people; else while it is armed, which only the shell of a
/// server's host can do.
#[utoipa::path(get, path = "/v1/break-glass", tag = "access", responses(
    (status = 200, description = "How it stands", body = BreakGlass),
))]
async fn get_break_glass(State(app): State<App>, _: Actor) -> Result<Answer, Error> {
    let armed = break_glass::find(&mut *app.pool.acquire().await?, &app).await?;
    let armed = armed.map(|armed| ArmedUntil {
        armed_at: armed.armed_at,
        until: armed.until,
        by: armed.by,
        reason: armed.reason,
    });
    Answer::ok(&BreakGlass {
        needed: app.oidc.is_some(),
        armed,
    })
}
