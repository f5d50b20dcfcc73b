//! Certificates of agents: the first for a token, each later certificate for the previous one.

use axum::extract::State;
use jiff::Timestamp;
use muster_api::agents::AgentRefusal;
use muster_core::wire::enrol::{Enrol, Issued, Renew};
use serde_json::json;
use sqlx::PgConnection;

use super::renewals::{self, ShownKey};
use super::{Agent, authorities, refusals};
use crate::app::App;
use crate::auth::tokens;
use crate::db;
use crate::db::enrolments::{CertifiedKeys, EnrolRow};
use crate::db::events::NewEvent;
use crate::error::Error;
use crate::http::extract::Json;
use crate::keys::authority::{Certificate, Requested};

pub(super) async fn enrol(
    State(app): State<App>,
    Json(asked): Json<Enrol>,
) -> Result<Json<Issued>, Error> {
    let key = parse_request(&asked.request)?;
    let now = app.clock.now();
    let mut tx = app.pool.begin().await?;
    let hash = tokens::hash(asked.token.reveal());
    let agent = db::enrolments::hold_by_token(&mut tx, &hash).await?.ok_or_else(|| {
        refuse_enrolment(
            "token_unknown",
            "The server does not know this enrolment token. Enrol the agent: `muster agent enrol SITE NAME`.",
        )
    })?;
    match agent.token_key.as_deref() {
        Some(used_by) if used_by != key.digest().0 => {
            let summary = format!(
                "the used enrolment token of agent {} was presented again with another key",
                agent.name
            );
            db::events::insert(
                &mut tx,
                certificate_event(&agent, now, "agent.token_replayed", summary),
            )
            .await?;
            tx.commit().await?;
            let detail = "This enrolment token was used already, with another key. If that was not you, remove the agent; then enrol it again.";
            return Err(refuse_enrolment("token_used", detail));
        }
        _ if agent.token_until.is_none_or(|until| until.to_jiff() <= now) => {
            return Err(refuse_enrolment(
                "token_expired",
                format!("The enrolment token has ended; the server's time is {now:.0}. {AGAIN}"),
            ));
        }
        _ => {}
    }
    let shown = ShownKey {
        key: key.digest(),
        certified_from: None,
    };
    // A token shown again by the same key. The agent has renewed the certificate since, if the key
    // is a former one.
    if agent.token_key.is_some()
        && let Some(refused) = refuse_clone(&mut tx, &agent, shown, &key, now).await?
    {
        tx.commit().await?;
        return Err(refused);
    }
    db::enrolments::use_token(&mut tx, agent.id, &key.digest().0).await?;
    db::agent_authorities::forget(&mut tx, agent.id).await?;
    let issued = issue_certificate(&mut tx, &app, &agent, None, &key, now).await?;
    if agent.token_key.is_none() {
        let summary = format!(
            "agent {} of {} has its first certificate, until {:.0}",
            agent.name, agent.site_name, issued.not_after
        );
        db::events::insert(
            &mut tx,
            certificate_event(&agent, now, "agent.certified", summary),
        )
        .await?;
    }
    tx.commit().await?;
    Ok(Json(issued))
}

pub(super) async fn renew(
    State(app): State<App>,
    agent: Agent,
    Json(asked): Json<Renew>,
) -> Result<Json<Issued>, Error> {
    let key = parse_request(&asked.request)?;
    let now = app.clock.now();
    let mut tx = app.pool.begin().await?;
    let row = db::enrolments::hold_for_renewal(&mut tx, agent.id)
        .await?
        .ok_or(Error::Unauthenticated)?;
    let shown = ShownKey {
        key: agent.peer.key,
        certified_from: Some(agent.peer.not_before),
    };
    if let Some(refused) = refuse_clone(&mut tx, &row, shown, &key, now).await? {
        tx.commit().await?;
        return Err(refused);
    }
    let issued = issue_certificate(&mut tx, &app, &row, Some(&agent), &key, now).await?;
    let summary = format!(
        "agent {} of {} renewed its certificate, until {:.0}",
        row.name, row.site_name, issued.not_after
    );
    db::events::insert(
        &mut tx,
        certificate_event(&row, now, "agent.certificate_renewed", summary),
    )
    .await?;
    tx.commit().await?;
    Ok(Json(issued))
}

/// Refuses a request with a key that may not renew, and from then on every call of the agent. The
/// holder of the newest key is refused too, because either holder may have the copy.
async fn refuse_clone(
    conn: &mut PgConnection,
    agent: &EnrolRow,
    shown: ShownKey,
    requested: &Requested,
    now: Timestamp,
) -> Result<Option<Error>, Error> {
    if let Some(why) = agent.refused {
        return Ok(Some(refusals::explain(why)));
    }
    if renewals::may_renew(agent, shown, requested.digest(), now) {
        return Ok(None);
    }
    let summary = format!(
        "agent {} of {} exists twice: a certificate was requested with a former key, so every call of the agent is refused; remove the agent and enrol it anew",
        agent.name, agent.site_name
    );
    let event = certificate_event(agent, now, "agent.cloned", summary);
    refusals::begin(conn, agent.id, AgentRefusal::Cloned, event).await?;
    Ok(Some(refusals::explain(AgentRefusal::Cloned)))
}

/// The advice for an agent without a valid certificate.
pub(super) const AGAIN: &str = "Enrol the agent again: `muster agent enrol SITE NAME` prints a token; put it into the agent's token file and restart the agent.";

fn refuse_enrolment(code: &'static str, detail: impl Into<String>) -> Error {
    Error::NotAdmitted {
        code,
        detail: detail.into(),
    }
}

fn parse_request(pem: &str) -> Result<Requested, Error> {
    Requested::read(pem).map_err(|error| {
        Error::invalid(
            "/request",
            "invalid_value",
            format!("No certificate request: {error:#}."),
        )
    })
}

async fn issue_certificate(
    conn: &mut PgConnection,
    app: &App,
    agent: &EnrolRow,
    caller: Option<&Agent>,
    key: &Requested,
    now: Timestamp,
) -> Result<Issued, Error> {
    let authority = authorities::choose(app, conn, caller, now).await?;
    let lasts = app.keys.authorities.lasts();
    let made = authority
        .certify(key, agent.id, agent.site, now, lasts)
        .map_err(Error::internal)?;
    let Certificate {
        pem,
        not_before,
        not_after,
    } = made;
    let newest = key.digest();
    let keys = CertifiedKeys {
        newest: &newest.0,
        shown: caller.map(|caller| &caller.peer.key.0[..]),
    };
    db::enrolments::set_certified(conn, agent.id, keys, not_before, not_after).await?;
    Ok(Issued {
        agent: agent.id,
        site: agent.site_name.clone(),
        certificate: pem,
        authority: authority.pem().to_owned(),
        not_before,
        not_after,
    })
}

fn certificate_event(
    agent: &EnrolRow,
    at: Timestamp,
    kind: &'static str,
    summary: String,
) -> NewEvent {
    let detail = json!({ "agent": agent.id, "site": agent.site_name });
    NewEvent::new(at, format!("agent:{}", agent.name), kind, summary)
        .about(agent.site)
        .with(detail)
}
