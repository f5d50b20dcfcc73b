//! The keys of live images, as given by an agent: during a rotation the former key and the new key.

use jiff::Timestamp;
use muster_core::ids::AgentId;
use sqlx::PgConnection;

use crate::app::App;
use crate::db;
use crate::db::taken_keys::AgentKeys;
use crate::error::Error;
use crate::keys::rings::{ca_id, encode_public, permit_id};

/// The keys in the form of the welcome.
pub(super) struct Trust {
    pub(super) permit_public_key: String,
    pub(super) user_ca: String,
}

/// Returns the present keys, and records the new keys of rotations for the agent.
pub(super) async fn give_keys(
    app: &App,
    conn: &mut PgConnection,
    agent: AgentId,
    now: Timestamp,
) -> Result<Trust, Error> {
    let cas = app.keys.open_user_cas(conn).await;
    let cas = cas.map_err(Error::internal)?;
    let permits = app.keys.open_permits(conn).await;
    let permits = permits.map_err(Error::internal)?;
    let ssh_ca = cas.next.as_ref().map(ca_id).transpose();
    let taken = AgentKeys {
        ssh_ca: ssh_ca.map_err(Error::internal)?,
        permit: permits.next.as_ref().map(permit_id),
    };
    db::taken_keys::record_agent(conn, agent, &taken, now).await?;
    let mut user_ca = cas.lines().map_err(Error::internal)?;
    if let Some(line) = permits.further_line() {
        user_ca += &format!("\n{line}");
    }
    Ok(Trust {
        permit_public_key: encode_public(&permits.current),
        user_ca,
    })
}
