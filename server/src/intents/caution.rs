//! The status of caution mode, and the end of caution mode by an administrator's confirmation.

use muster_api::cautions::{Caution, CautionStatus, ConfirmCaution, Witness};
use sqlx::PgConnection;

use crate::access::Sight;
use crate::app::App;
use crate::auth::Actor;
use crate::db::{self, filter};
use crate::engine::caution;
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::writing::{self, Effect};

/// The longest note, in bytes.
const NOTE: usize = 1000;

/// Ends caution mode, for the API and the pages.
///
/// # Errors
/// 409 when `request.id` is not the open caution, 422 when the note is missing or too long.
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

/// Returns the status of caution mode, with the agents of the sites the reader may see.
pub(crate) async fn status(conn: &mut PgConnection, sight: &Sight) -> Result<CautionStatus, Error> {
    let open = db::cautions::find_open(conn).await?;
    let since = open.as_ref().map(|row| row.noticed_at);
    let sites = filter::list_visible(conn, &filter::objects_of("site"), sight).await?;
    let witnessed = match &open {
        Some(row) => db::cautions::list_sites(conn, row.id, sites.as_deref()).await?,
        None => Vec::new(),
    };
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
            whole_fleet: row.whole_fleet,
            sites: witnessed,
        }),
    })
}
