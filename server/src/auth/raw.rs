//! Raw text of machines: consoles, logs of jobs, evidence of gates. Such text may contain secrets,
//! so a reader needs `node.console` or `node.evidence` beside `fleet.read`.

use jiff::Timestamp;
use muster_api::access::RAW_VERBS;
use sqlx::{Connection as _, PgConnection};

use super::access::Named;
use super::needs::{Need, Reach};
use super::{Actor, kept};
use crate::app::App;
use crate::error::Error;

/// The verb for evidence of gates, and for the logs of jobs.
pub(crate) const EVIDENCE: &str = "node.evidence";
/// The verb for serial consoles.
pub(crate) const CONSOLE: &str = "node.console";

impl Actor {
    /// Returns whether the actor may read the raw text of an object by the verb. A read by a kept
    /// verb is recorded.
    ///
    /// # Errors
    ///
    /// The database's.
    pub(crate) async fn may_read_raw(
        &self,
        conn: &mut PgConnection,
        verb: &str,
        object: Named<'_>,
        now: Timestamp,
    ) -> Result<bool, Error> {
        if !self.may(conn, verb, object).await? {
            return Ok(false);
        }
        note_read(conn, self, verb, object, now).await?;
        Ok(true)
    }
}

/// Records a use of a kept verb by a route that needs a raw verb.
///
/// # Errors
///
/// The database's.
pub(super) async fn note_route(
    app: &App,
    actor: &Actor,
    need: &Need,
    parameters: &[(String, String)],
) -> Result<(), Error> {
    let verb = need.verb(parameters);
    let Reach::At { kind, parameter } = &need.place else {
        return Ok(());
    };
    let given = parameters.iter().find(|(known, _)| known == parameter);
    let Some((_, key)) = given.filter(|_| is_noted(actor, &verb)) else {
        return Ok(());
    };
    let mut conn = app.pool.acquire().await?;
    note_read(
        &mut conn,
        actor,
        &verb,
        Named { kind, key },
        app.clock.now(),
    )
    .await
}

/// Returns whether a use of the verb by the actor may be a use of a kept verb.
fn is_noted(actor: &Actor, verb: &str) -> bool {
    RAW_VERBS.contains(&verb) && actor.holding.without_kept_verbs().is_some()
}

async fn note_read(
    conn: &mut PgConnection,
    actor: &Actor,
    verb: &str,
    object: Named<'_>,
    now: Timestamp,
) -> Result<(), Error> {
    if !is_noted(actor, verb) {
        return Ok(());
    }
    let mut tx = conn.begin().await?;
    kept::note_use(&mut tx, actor, verb, object, now).await?;
    tx.commit().await?;
    Ok(())
}
