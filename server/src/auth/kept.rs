//! Uses of verbs by roles from before a change of their verbs. Such roles keep the lost verbs for
//! one version: operators and automation the release verbs, viewers the raw verbs.

use jiff::Timestamp;
use muster_api::access::{RAW_VERBS, RELEASE_VERBS};
use serde_json::json;
use sqlx::PgConnection;

use super::Actor;
use super::access::Named;
use crate::db;
use crate::error::Error;

/// Records a warning event when the actor has the verb only by such a role: a single event a day
/// for a token or person. `object` is the object of the use.
///
/// # Errors
///
/// When the database fails.
pub(crate) async fn note_use(
    conn: &mut PgConnection,
    actor: &Actor,
    verb: &str,
    object: Named<'_>,
    now: Timestamp,
) -> Result<(), Error> {
    let instead = if RELEASE_VERBS.contains(&verb) {
        "give the role release_owner"
    } else if RAW_VERBS.contains(&verb) {
        "bind a role that has the verb, in a small scope (each such role changes nodes too)"
    } else {
        return Ok(());
    };
    let Some(holding) = actor.holding.without_kept_verbs() else {
        return Ok(());
    };
    let next_version = Actor {
        holding,
        ..actor.clone()
    };
    if next_version.may(conn, verb, object).await? {
        return Ok(());
    }
    let is_first = match (actor.token, actor.name.strip_prefix("user:")) {
        (Some(token), _) => db::kept::note_token(conn, token, now).await?,
        (None, Some(person)) => db::kept::note_person(conn, person, now).await?,
        (None, None) => false,
    };
    if !is_first {
        return Ok(());
    }
    let summary = format!(
        "{} used {verb} by a role that loses the verb with the next version: {instead}, see docs/access.md",
        actor.name
    );
    let event = actor.event(now, "role.kept_verb_used", None, summary);
    db::events::insert(
        conn,
        event.with(json!({ "verb": verb, "role": actor.role })),
    )
    .await
}
