//! The authorities of agents' certificates in a rotation: the state of the calling agent, and the
//! authority of the agent's next certificate.

use http::request::Parts;
use jiff::Timestamp;
use muster_core::values::Digest;
use muster_core::wire::enrol::read_authorities;
use muster_core::wire::headers::AUTHORITIES;
use sqlx::PgConnection;

use super::Agent;
use crate::app::App;
use crate::db;
use crate::db::agent_authorities::AuthorityState;
use crate::error::Error;
use crate::intents::rotations::signing::list_servers_without;
use crate::keys::authority::Authority;
use crate::keys::rings::RingKey;

/// Returns the authorities that the caller has stored. An agent of the version before shows none.
pub(super) fn read(parts: &Parts) -> Vec<Digest> {
    let shown = parts.headers.get(AUTHORITIES);
    let text = shown.and_then(|value| value.to_str().ok());
    text.and_then(read_authorities).unwrap_or_default()
}

/// Records the state of the agent during a rotation, by the present call.
pub(super) async fn record(app: &App, agent: &Agent) -> Result<(), Error> {
    let ring = app.keys.authorities.now();
    let Some(next) = &ring.next else {
        return Ok(());
    };
    let id = next.id();
    let state = AuthorityState {
        trusted: agent.trusts.contains(&next.digest()).then_some(&*id),
        shown: (agent.peer.issuer == next.subject()).then_some(&*id),
    };
    let mut conn = app.pool.acquire().await?;
    db::agent_authorities::record(&mut conn, agent.id, state).await
}

/// Returns the authority of the next certificate. An agent gets a certificate of the new authority
/// once the agent trusts the new authority and every running server accepts the certificate. An
/// agent with a certificate of the new authority gets no other. `None`: an enrolment.
pub(super) async fn choose(
    app: &App,
    conn: &mut PgConnection,
    caller: Option<&Agent>,
    now: Timestamp,
) -> Result<Authority, Error> {
    let ring = app.keys.open_authorities(conn).await;
    let ring = ring.map_err(Error::internal)?;
    let (Some(next), Some(caller)) = (ring.next, caller) else {
        return Ok(ring.current);
    };
    if caller.peer.issuer == next.subject() {
        return Ok(next);
    }
    let lacking = list_servers_without(conn, RingKey::AgentCa, &next.id(), now).await;
    let is_held = lacking.map_err(Error::internal)?.is_empty();
    match is_held && caller.trusts.contains(&next.digest()) {
        true => Ok(next),
        false => Ok(ring.current),
    }
}
