//! Break glass: sign-in of the local administrator beside the identity provider.

use axum::extract::State;
use muster_api::break_glass::{ArmedUntil, BreakGlass};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::auth::{Actor, break_glass};
use crate::error::Error;
use crate::intents::answer::Answer;

/// The route of break glass.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(get_break_glass))
}

/// Returns whether the local administrator may sign in.
///
/// Without an identity provider, the local administrator may always sign in. With an identity
/// provider, sign-in is possible only while armed. Arming needs a shell on a server's host.
#[utoipa::path(get, path = "/v1/break-glass",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "any" }))),
    tag = "access", responses(
    (status = 200, description = "Whether sign-in is armed, by whom and until when", body = BreakGlass),
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
