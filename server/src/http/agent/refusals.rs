//! Refused agents. A refusal answers every call with an error, for each holder of the agent's
//! identity, until a person removes the agent and enrols it anew.

use muster_api::agents::AgentRefusal;
use muster_core::ids::AgentId;
use sqlx::PgConnection;

use crate::db;
use crate::db::events::NewEvent;
use crate::error::Error;

/// The advice for a refused agent.
const ANEW: &str = "Look at the machine of the agent, then remove the agent and enrol it anew: `muster agent remove SITE NAME`, `muster agent enrol SITE NAME`.";

/// Refuses an agent from now on. Its jobs return to the queue. Only the first refusal emits the
/// event.
pub(super) async fn begin(
    conn: &mut PgConnection,
    agent: AgentId,
    why: AgentRefusal,
    event: NewEvent,
) -> Result<(), Error> {
    if db::agents::refuse(conn, agent, why).await? {
        db::jobs::requeue_of(conn, agent).await?;
        db::events::insert(conn, event).await?;
    }
    Ok(())
}

/// Returns the error of a refused agent's calls.
pub(super) fn explain(why: AgentRefusal) -> Error {
    let (code, what) = match why {
        AgentRefusal::Cloned => (
            "agent_cloned",
            "A certificate was requested with a former key of this agent: its identity exists twice, or its machine was put back to an older copy of its disk.",
        ),
        AgentRefusal::Lies => (
            "agent_lies",
            "The agent showed an event that this installation never sent to an agent. A machine that served another installation keeps such an event: delete `latest-event` and `latest-event-sealed` in its data directory.",
        ),
    };
    Error::NotAdmitted {
        code,
        detail: format!("{what} {ANEW}"),
    }
}
