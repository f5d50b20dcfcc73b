//! The banners above every page. The first banner shows caution mode: why power and disk writes are
//! blocked, with the form to end the mode. The second banner warns that the local administrator is
//! armed. The third banner warns of an administrator's token without a person.

use axum::extract::State;
use axum::response::Redirect;
use muster_api::cautions::ConfirmCaution;
use serde::Deserialize;
use uuid::Uuid;

use super::format::{self, Moment};
use crate::access::Sight;
use crate::app::App;
use crate::auth::{Actor, break_glass, second_door};
use crate::db::{self, filter};
use crate::error::Error;
use crate::http::extract::{Form, Path};
use crate::intents::caution::find_shown;
use crate::intents::idempotency::IdempotencyKey;

/// Most sites named by the banner.
const NAMED: usize = 10;

/// The banner shown above every page while a caution is open.
#[derive(Clone, Debug)]
pub(super) struct Banner {
    pub id: String,
    pub because: String,
    pub since: Moment,
    /// Where power and disk writes are blocked: `at the site lab`.
    pub extent: String,
}

/// Returns the banner of the open caution, if any, with the sites that the reader may see. A failed
/// read returns no banner, because a page must not fail for a banner.
pub(super) async fn banner(app: &App, sight: Option<&Sight>) -> Option<Banner> {
    // A page without a reader has no banner.
    let sight = sight?;
    let mut conn = app.pool.acquire().await.ok()?;
    let row = db::cautions::find_open(&mut conn).await.ok()??;
    let visible = filter::list_visible(&mut conn, &filter::objects_of("site"), sight)
        .await
        .ok()?;
    let shown = find_shown(&mut conn, &row, visible.as_deref()).await.ok()?;
    Some(Banner {
        id: row.id.to_string(),
        because: format::cut(&shown.because, 400),
        extent: describe_extent(row.whole_fleet, &shown.sites),
        since: format::moment(row.noticed_at, app.clock.now()),
    })
}

/// Describes the places of a caution.
fn describe_extent(whole_fleet: bool, sites: &[String]) -> String {
    if whole_fleet {
        return "in the whole fleet".to_owned();
    }
    let named = sites[..sites.len().min(NAMED)].join(", ");
    match sites.len() {
        0 => "at the sites of the witnesses".to_owned(),
        1 => format!("at the site {named}"),
        2..=NAMED => format!("at the sites {named}"),
        more => format!("at the sites {named} and {} more", more - NAMED),
    }
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

/// An administrator's token without a person, beside an identity provider.
#[derive(Clone, Debug)]
pub(super) struct UnarmedToken {
    pub name: String,
    pub is_refused: bool,
}

/// Returns an administrator's token without a person that was used or refused in the last day,
/// beside an identity provider. A failed read returns no token, because a page must not fail for a
/// banner.
pub(super) async fn find_unarmed_token(app: &App) -> Option<UnarmedToken> {
    // Without a provider the answer costs no connection.
    app.oidc.as_ref()?;
    let mut conn = app.pool.acquire().await.ok()?;
    let used = second_door::find_used(&mut conn, app).await.ok()??;
    Some(UnarmedToken {
        name: format::cut(&used.name, 80),
        is_refused: !used.keeps_unarmed,
    })
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
