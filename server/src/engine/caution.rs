//! Caution mode. The database lacks an event remembered elsewhere, so the database was restored to
//! an earlier state, or a failover lost the last commits. The recorded state of nodes may be old.
//! Power and disk writes stay blocked until an administrator has checked and confirmed.
//!
//! Event ids are random, and the ids that agents may remember outlive the removal of old events. A
//! witness stores the id of an event: an agent with each permitted act, or a replica in the data
//! directory. A witness can therefore distinguish a database with the event from one without. The
//! test works for every kind of backup, even after the restored database has written new events.
//!
//! An agent's event carries a seal made with the master key, which no restore changes. The witness
//! of one site holds the caution for the permits of that site. A replica, or a second site with a
//! sealed event, extends the caution to the whole fleet.

use jiff::Timestamp;
use muster_core::ids::{AgentId, EventId, NodeId, ObjectId};
use muster_core::wire::node::{Failure, FailureCode};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::auth::Actor;
use crate::db;
use crate::db::agents::AgentRow;
use crate::db::cautions::{CautionRow, WitnessRow};
use crate::db::events::NewEvent;
use crate::error::Error;

/// The reason without names of agents and nodes, for readers of one site: the other sites may be
/// hidden.
pub const OLDER: &str = "the database is older than other systems remember";
/// The verb for the end of caution mode.
const CONFIRM: &str = "caution.confirm";

/// A system that remembers more than the database.
#[derive(Clone, Copy, Debug)]
pub struct Witness<'text> {
    /// The id of the agent or the node; for a replica, the nil id.
    pub id: Uuid,
    /// The site of the agent or the node. `None`: a replica, which speaks for the whole fleet.
    pub site: Option<ObjectId>,
    /// The agent that made the call.
    pub agent: Option<AgentId>,
    /// The event missing from the database.
    pub heard: Option<EventId>,
    /// Whether the event carries our seal. An unproved witness never extends a caution to the
    /// fleet, and is withdrawn when the agent is removed.
    pub proved: bool,
    pub because: &'text str,
}

impl<'text> Witness<'text> {
    /// Returns the witness of a replica, with the event of the replica's own file.
    pub fn of_replica(heard: EventId, because: &'text str) -> Self {
        Self {
            id: Uuid::nil(),
            site: None,
            agent: None,
            heard: Some(heard),
            proved: true,
            because,
        }
    }

    /// Returns the witness of a live image, by the word of the agent that reported the failure.
    pub fn of_node(node: NodeId, site: ObjectId, agent: AgentId, because: &'text str) -> Self {
        Self {
            id: node.0,
            site: Some(site),
            agent: Some(agent),
            heard: None,
            proved: false,
            because,
        }
    }
}

/// Records a witness with a newer memory than the database. The first witness opens the caution.
/// Each witness is one event, and one more for a later proof; a repeated report returns the first
/// event. An event settled by a confirmed caution opens no other one. The agent may store the
/// returned event from now on.
///
/// # Errors
///
/// When the database fails.
pub async fn notice(
    conn: &mut PgConnection,
    witness: &Witness<'_>,
    now: Timestamp,
) -> Result<EventId, Error> {
    if let Some(heard) = witness.heard
        && let Some(event) = db::cautions::find_settled(conn, heard).await?
    {
        return Ok(event);
    }
    let whole_fleet = witness.site.is_none();
    let opened = db::cautions::open(conn, witness.because, whole_fleet, now).await?;
    let caution = db::cautions::lock_open(conn).await?;
    let caution = caution.ok_or(Error::Contended(sqlx::Error::RowNotFound))?;
    let known = db::cautions::list_witnesses(conn, caution.id).await?;
    let is_same = |known: &&WitnessRow| known.witness == witness.id;
    if let Some(same) = known.iter().find(is_same)
        && (same.proved || !witness.proved)
    {
        return Ok(same.event);
    }
    let growth = match opened {
        true => find_first_place(witness),
        false => find_growth(&caution, &known, witness),
    };
    let place = match growth {
        Growth::Nowhere => None,
        Growth::Site(site) => Some(Some(site)),
        Growth::Fleet => Some(None),
    };
    if let Some(site) = place {
        db::cautions::void_permits(conn, site, now).await?;
    }
    if growth == Growth::Fleet && !caution.whole_fleet {
        db::cautions::extend_to_fleet(conn, caution.id).await?;
    }
    let event = report(conn, witness, opened, growth, now).await?;
    let row = WitnessRow {
        witness: witness.id,
        site: witness.site,
        agent: witness.agent,
        heard: witness.heard,
        proved: witness.proved,
        event,
    };
    db::cautions::insert_witness(conn, caution.id, &row, now).await?;
    Ok(event)
}

/// The permits that a witness adds to a caution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Growth {
    Nowhere,
    Site(ObjectId),
    Fleet,
}

fn find_first_place(witness: &Witness<'_>) -> Growth {
    witness.site.map_or(Growth::Fleet, Growth::Site)
}

/// Returns the growth of an open caution by one more witness. Two sealed events of two sites extend
/// the caution to the fleet.
fn find_growth(caution: &CautionRow, known: &[WitnessRow], witness: &Witness<'_>) -> Growth {
    let Some(site) = witness.site.filter(|_| !caution.whole_fleet) else {
        return match caution.whole_fleet {
            true => Growth::Nowhere,
            false => Growth::Fleet,
        };
    };
    let says_the_same = |known: &WitnessRow| {
        known.proved && known.site != Some(site) && known.heard != witness.heard
    };
    if witness.proved && known.iter().any(says_the_same) {
        return Growth::Fleet;
    }
    match known.iter().any(|known| known.site == Some(site)) {
        true => Growth::Nowhere,
        false => Growth::Site(site),
    }
}

/// Emits the event of a witness.
async fn report(
    conn: &mut PgConnection,
    witness: &Witness<'_>,
    opened: bool,
    growth: Growth,
    now: Timestamp,
) -> Result<EventId, Error> {
    let kind = match (opened, growth) {
        (true, _) => "caution.entered",
        (false, Growth::Nowhere) => "caution.seen",
        (false, Growth::Site(_) | Growth::Fleet) => "caution.widened",
    };
    tracing::error!(
        because = witness.because,
        "caution mode: the database is older than the records of an agent or a node"
    );
    let event = NewEvent::new(now, "muster", kind, witness.because.to_owned());
    let event = match (witness.site, growth) {
        (Some(site), Growth::Nowhere | Growth::Site(_)) => event.about(site),
        (_, Growth::Fleet) | (None, _) => event,
    };
    db::events::insert_noted(conn, event).await
}

/// Closes the caution checked by an administrator. Pending work begins again, under new permits.
///
/// # Errors
///
/// 409 when another caution is open, or none.
pub async fn confirm(
    conn: &mut PgConnection,
    actor: &Actor,
    id: Uuid,
    note: &str,
    now: Timestamp,
) -> Result<(), Error> {
    if !db::cautions::confirm(conn, id, &actor.name, note, now).await? {
        return Err(Error::conflict(
            "not_open",
            "This caution is over, or another one holds now; look again.",
        ));
    }
    begin_anew(conn, now).await?;
    let summary = format!("caution mode ended: {note}");
    db::events::insert(conn, actor.event(now, "caution.confirmed", None, summary)).await
}

/// Withdraws the unproved witnesses of an agent during the agent's removal: a caution resting on
/// the agent's word alone ends. An event with our seal stays a witness, because the seal proves the
/// loss without the agent. The actor needs the verb for confirming cautions.
///
/// # Errors
///
/// When the database fails.
pub async fn withdraw(
    conn: &mut PgConnection,
    actor: &Actor,
    agent: &AgentRow,
    now: Timestamp,
) -> Result<(), Error> {
    if !actor.holding.everywhere(CONFIRM) {
        return Ok(());
    }
    let Some(caution) = db::cautions::lock_open(conn).await? else {
        return Ok(());
    };
    if caution.whole_fleet || !db::cautions::remove_witnesses(conn, caution.id, agent.id).await? {
        return Ok(());
    }
    let left = db::cautions::list_witnesses(conn, caution.id).await?;
    if left.iter().any(|left| left.site == Some(agent.site)) {
        return Ok(());
    }
    let summary = format!(
        "caution mode ended for {}: no witness is left but the removed agent {}",
        agent.site_name, agent.name
    );
    if left.is_empty() {
        db::cautions::confirm(conn, caution.id, &actor.name, &summary, now).await?;
    }
    begin_anew(conn, now).await?;
    let event = actor.event(now, "caution.withdrawn", None, summary);
    db::events::insert(conn, event.about(agent.site)).await
}

/// Fails the open jobs with void permits, so that they begin again under new permits.
async fn begin_anew(conn: &mut PgConnection, now: Timestamp) -> Result<(), Error> {
    let failure = Failure {
        code: FailureCode::PutBack,
        message: "the permit was issued before the database was restored".to_owned(),
        retryable: true,
    };
    db::cautions::begin_anew(conn, &failure, now).await
}
