//! Withdraws the open requests of a token or a person that has ended, so that no second person
//! begins work for an account without rights.

use serde_json::json;
use sqlx::PgConnection;

use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::approvals::RequestedBy;
use crate::error::Error;

/// Withdraws every open request of a token, or of a person with all tokens of the person. `actor`
/// ended the token or disabled the person. Each request leaves an event.
///
/// # Errors
/// When the database fails.
pub(crate) async fn withdraw_requests(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    requested_by: RequestedBy<'_>,
) -> Result<(), Error> {
    let now = app.clock.now();
    for open in db::approvals::list_open(conn, requested_by, now).await? {
        // A decision about a waiver locks the waiver before the request.
        if let Some(waiver) = open.waiver {
            db::waivers::lock(conn, waiver).await?;
        }
        if !db::approvals::withdraw_one(conn, open.id, &actor.name, now).await? {
            continue;
        }
        if let Some(waiver) = open.waiver {
            db::waivers::decide(conn, waiver, None, now).await?;
        }
        let summary = format!(
            "the request of {} for a second person is withdrawn, because {} has ended: {}",
            open.requested_by,
            requested_by.name(),
            open.because
        );
        let event = actor.event(now, "approval.withdrawn", open.node, summary);
        let detail = json!({ "approval": open.id, "requested_by": open.requested_by });
        db::events::insert(conn, event.with(detail)).await?;
    }
    Ok(())
}
