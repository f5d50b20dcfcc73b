//! The status of caution mode, and the end of caution mode by an administrator's confirmation.

use muster_api::cautions::{Caution, CautionStatus, ConfirmCaution, Witness};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::access::Sight;
use crate::app::App;
use crate::auth::Actor;
use crate::db::cautions::CautionRow;
use crate::db::{self, filter};
use crate::engine::caution;
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::writing::{self, Effect};

/// The longest note, in bytes.
const NOTE: usize = 1000;
/// The reason for a reader without sight of every site of the witnesses.
const ELSEWHERE: &str = "An agent or a node remembers more than the database.";

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
    let agents = agents.collect();
    let caution = match open {
        Some(row) => {
            let shown = find_shown(conn, &row, sites.as_deref()).await?;
            Some(Caution {
                id: row.id,
                because: shown.because,
                noticed_at: row.noticed_at,
                whole_fleet: row.whole_fleet,
                sites: shown.sites,
            })
        }
        None => None,
    };
    Ok(CautionStatus { agents, caution })
}

/// The part of a caution that depends on the reader.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub because: String,
    /// The names of the visible sites with a witness.
    pub sites: Vec<String>,
}

/// Returns the part of a caution for a reader. The reason names an agent or a node, so a reader of
/// only some sites of the witnesses gets a reason without names.
pub(crate) async fn find_shown(
    conn: &mut PgConnection,
    row: &CautionRow,
    visible: Option<&[Uuid]>,
) -> Result<Shown, Error> {
    let sites = db::cautions::list_sites(conn, row.id, visible).await?;
    let has_hidden = visible.is_some()
        && db::cautions::list_sites(conn, row.id, None).await?.len() > sites.len();
    let because = match has_hidden {
        true => ELSEWHERE.to_owned(),
        false => row.because.clone(),
    };
    Ok(Shown { because, sites })
}
