//! The newest seal of the history, for an external copy.

use axum::extract::State;
use muster_api::audit::AuditHead;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::error::Error;
use crate::intents::answer::Answer;

/// The routes of the audit.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(get_audit_head))
}

/// Returns the newest seal of the history.
///
/// A line `{number, last_seq, hash, at}` with these values is an anchor for `muster audit verify`.
#[utoipa::path(get, path = "/v1/audit",
    extensions(("x-muster-access" = json!({ "verb": "audit.read", "place": "fleet" }))),
    tag = "events", responses((status = 200, description = "The newest seal", body = AuditHead)))]
async fn get_audit_head(State(app): State<App>, _: Actor) -> Result<Answer, Error> {
    let row = db::seals::latest(&mut *app.pool.acquire().await?).await?;
    Answer::ok(&AuditHead {
        number: row.as_ref().map_or(0, |row| row.number),
        last_seq: row
            .as_ref()
            .and_then(|row| row.seqs.last().copied())
            .unwrap_or_default(),
        hash: row
            .as_ref()
            .map(|row| hex::encode(&row.hash))
            .unwrap_or_default(),
        sealed_at: row.map(|row| row.sealed_at),
    })
}
