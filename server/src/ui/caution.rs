//! The banners above every page. The first banner shows caution mode: why power and disk writes are
//! blocked, with the form to end the mode. The second banner warns that the local administrator is
//! armed. The third banner warns of an administrator's token without a person.

use axum::extract::State;
use axum::response::Redirect;
use muster_api::cautions::ConfirmCaution;
use serde::Deserialize;
use uuid::Uuid;

use super::format::{self, Moment};
use crate::app::App;
use crate::auth::{Actor, break_glass, second_door};
use crate::db;
use crate::error::Error;
use crate::http::extract::{Form, Path};
use crate::intents::idempotency::IdempotencyKey;

/// The banner shown above every page while a caution is open.
#[derive(Clone, Debug)]
pub(super) struct Banner {
    pub id: String,
    pub because: String,
    pub since: Moment,
    /// Whether the caution holds everywhere, or at the sites of its witnesses.
    pub whole_fleet: bool,
}

/// Returns the banner of the open caution, if any. A failed read returns no banner, because a page
/// must not fail for a banner.
pub(super) async fn banner(app: &App) -> Option<Banner> {
    let row = db::cautions::find_open(&mut *app.pool.acquire().await.ok()?)
        .await
        .ok()??;
    Some(Banner {
        id: row.id.to_string(),
        because: format::cut(&row.because, 400),
        whole_fleet: row.whole_fleet,
        since: format::moment(row.noticed_at, app.clock.now()),
    })
}

/// Returns a sentence about the armed local administrator, if any. A failed read returns no
/// sentence, because a page must not fail for a banner.
pub(super) async fn armed(app: &App) -> Option<String> {
    let armed = break_glass::find(&mut *app.pool.acquire().await.ok()?, app)
        .await
        .ok()??;
    let (by, reason) = (format::cut(&armed.by, 80), format::cut(&armed.reason, 400));
    Some(format!("Until {:.0}, by {by}: {reason}", armed.until))
}

/// Returns the name of an administrator's token without a person that was used or refused in the
/// last day, beside an identity provider. A failed read returns no name, because a page must not
/// fail for a banner.
pub(super) async fn find_unarmed_token(app: &App) -> Option<String> {
    // Without a provider the answer costs no connection.
    app.oidc.as_ref()?;
    let mut conn = app.pool.acquire().await.ok()?;
    let name = second_door::find_used(&mut conn, app).await.ok()??;
    Some(format::cut(&name, 80))
}

#[derive(Debug, Deserialize)]
pub(super) struct Confirmed {
    #[serde(default)]
    note: String,
}

/// Ends the caution mode, as `POST /v1/caution/confirm` does.
pub(super) async fn confirm(
    State(app): State<App>,
    actor: Actor,
    Path(id): Path<Uuid>,
    Form(given): Form<Confirmed>,
) -> Result<Redirect, Error> {
    let confirmed = ConfirmCaution {
        id,
        note: given.note,
    };
    crate::intents::caution::confirm(&app, &actor, IdempotencyKey::none(), &confirmed).await?;
    Ok(Redirect::to("/"))
}
