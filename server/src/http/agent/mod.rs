//! The listener of the agents, with its own port and its own types. Every call except the enrolment
//! needs the agent's certificate. Every call after hello carries the agent's epoch, and an older
//! epoch is rejected.

mod authorities; // Authorities of certificates in a rotation
mod blobs; // Blobs by digest
mod certificates; // The first certificate, and each renewal
mod clocks; // The clock of an agent's machine
mod consoles; // Serial consoles of nodes
mod jobs; // Lease, act, renew, permits
mod marks; // Marks, and the memory of agents
mod members; // The members of a cluster
mod node_notes; // Notes about a node in the headers of an outcome
mod outcome; // Outcomes of jobs
mod redaction; // Secrets in texts of agents
mod refusals; // Refused agents
mod renewals; // The right to renew a certificate
mod scheduler; // Drained nodes in schedulers
mod scheduler_jobs; // Jobs on the nodes of schedulers
mod sightings; // Sightings of the boot services
mod site; // Configuration of the boot services
pub mod tls; // The listener's TLS
mod told; // JSON bodies with text from nodes
mod trust; // Keys for live images

use axum::extract::{ConnectInfo, DefaultBodyLimit, FromRequestParts, State};
use axum::routing::{get, post};
use axum::{Router, middleware};
use http::request::Parts;
use jiff::{SignedDuration, Timestamp};
use muster_core::ids::{AgentId, EventId, ObjectId};
use muster_core::values::Digest;
use muster_core::wire::PROTOCOL;
use muster_core::wire::calls::{Hello, SITE_LEASE_S, Welcome};
use muster_core::wire::headers::{ANSWERED_AT, CLOCK};
use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

use self::marks::{Mark, Remembers};
use self::tls::Peer;
use crate::app::App;
use crate::db;
use crate::db::agents::{AgentRow, Caller, Hold, LeaseTimes, SiteLease};
use crate::db::events::NewEvent;
use crate::error::Error;
use crate::http::extract::Json;
use crate::keys::authority::Certified;
use crate::request_id;
use crate::tasks::leases::LEASE_S;

/// The length of a site's lease, from the latest answer received by its agent. An agent that sends
/// calls but receives no answers therefore loses the lease.
const SITE_LEASE: SignedDuration = SignedDuration::from_secs(SITE_LEASE_S as i64);

/// The lease is written again only for an extension of at least this much, to save writes.
const PROLONGED: SignedDuration = SignedDuration::from_secs(10);

/// The wait between the end of a lease and the takeover by another agent. The last BMC call of the
/// former holder may still be running.
const LAST_CALL: SignedDuration = SignedDuration::from_secs(45);

/// The interval for recording an agent's contact. Otherwise every call would write the same row.
const SEEN_EVERY: SignedDuration = SignedDuration::from_secs(1);

/// The largest body, in bytes: enough for the log lines and the evidence of a whole gate run.
/// Images never use this listener.
const BODY_LIMIT: usize = 32 << 20;

/// The largest certificate request, in bytes. A request is small, and its sender is not yet
/// authenticated.
const REQUEST_LIMIT: usize = 16 << 10;

/// The routes of the agents' listener. The caller is identified by the connection's [`Peer`].
/// Without a [`Peer`], calls are rejected.
pub fn router(app: App) -> Router {
    Router::new()
        .route(
            "/agent/v1/enrol",
            post(certificates::enrol).layer(DefaultBodyLimit::max(REQUEST_LIMIT)),
        )
        .route("/agent/v1/certificate", post(certificates::renew))
        .route("/agent/v1/hello", post(hello))
        .route("/agent/v1/site", post(site::poll))
        .route("/agent/v1/lease", post(jobs::lease))
        .route("/agent/v1/jobs/{job}/act", post(jobs::act))
        .route("/agent/v1/jobs/{job}/members", post(members::list))
        .route("/agent/v1/jobs/{job}/renew", post(jobs::renew))
        .route("/agent/v1/jobs/{job}/outcome", post(outcome::take_outcome))
        .route("/agent/v1/permits/redeem", post(jobs::redeem))
        .route("/agent/v1/scheduler", post(scheduler::report))
        .route("/agent/v1/scheduler/jobs", post(scheduler_jobs::report))
        .route("/agent/v1/sightings", post(sightings::report))
        .route("/agent/v1/consoles", post(consoles::report))
        .route("/agent/v1/blobs/sha256/{hex}", get(blobs::get))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(middleware::from_fn_with_state(
            app.clone(),
            marks::carry_mark,
        ))
        .layer(middleware::from_fn(request_id::assign))
        .with_state(app)
}

/// An agent, authenticated by certificate.
#[derive(Clone, Debug)]
pub struct Agent {
    pub id: AgentId,
    pub name: String,
    pub site: ObjectId,
    pub site_name: String,
    /// The certificate of the call.
    peer: Certified,
    /// The authorities that the agent has stored.
    trusts: Vec<Digest>,
    /// The epoch of the agent's current process.
    epoch: i64,
    /// The lease of the agent's site, as read at the begin of the call.
    lease: SiteLease,
    last_seen: Option<Timestamp>,
    /// The time of the latest answer received by the agent; `None` for an agent without the header.
    answered_at: Option<Timestamp>,
    /// The event for the agent to remember.
    mark: Mark,
}

impl FromRequestParts<App> for Agent {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
        let arrived = app.clock.now();
        let peer = find_peer(parts, app, arrived)?;
        let mut conn = app.pool.acquire().await?;
        let heard = marks::read_mark(parts)?;
        let event = heard.as_ref().map(|heard| heard.event);
        let caller = db::agents::find_caller(&mut conn, peer.agent, peer.site, event).await?;
        let Caller {
            agent: row,
            lease,
            known,
            bare_marks,
            shown_event,
        } = caller.ok_or_else(removed)?;
        if let Some(why) = row.refused {
            return Err(refusals::explain(why));
        }
        let mark = Mark::of(parts);
        if let Some(heard) = &heard {
            let remembers = Remembers { known, bare_marks };
            mark.judge(&mut conn, &row, heard, remembers, app).await?;
        }
        let shown = event.unwrap_or(EventId(Uuid::nil()));
        if known && shown_event != Some(shown) {
            db::agents::set_shown_event(&mut conn, row.id, shown).await?;
        }
        if let Some(theirs) = time_in(parts, CLOCK) {
            clocks::record_offset(&mut conn, &row, theirs, arrived).await?;
        }
        let AgentRow {
            id,
            name,
            site,
            site_name,
            epoch,
            last_seen,
            ..
        } = row;
        let last_seen = last_seen.map(|at| at.to_jiff());
        request_id::note(&[("agent", &name.as_str())]);
        Ok(Self {
            id,
            name,
            site,
            site_name,
            peer,
            trusts: authorities::read(parts),
            epoch,
            lease,
            last_seen,
            answered_at: time_in(parts, ANSWERED_AT),
            mark,
        })
    }
}

/// Returns the certificate of a call, if the certificate is valid now.
fn find_peer(parts: &Parts, app: &App, arrived: Timestamp) -> Result<Certified, Error> {
    let peer = parts
        .extensions
        .get::<ConnectInfo<Peer>>()
        .and_then(|ConnectInfo(Peer(peer))| *peer);
    let peer = peer.ok_or_else(|| {
        not_admitted(
            "certificate_required",
            "The call came without a client certificate.",
        )
    })?;
    // A connection from before the end of a rotation.
    if !app.keys.authorities.now().admits(peer.issuer) {
        return Err(not_admitted(
            "certificate_former",
            "The certificate is of an authority that a rotation has ended.",
        ));
    }
    if peer.not_after <= arrived {
        let what = format!(
            "The certificate ended at {:.0}; the server's time is {arrived:.0}.",
            peer.not_after
        );
        return Err(not_admitted("certificate_expired", &what));
    }
    if peer.not_before > arrived {
        let detail = format!(
            "The certificate begins at {:.0}, and the server's time is {arrived:.0}: its database's clock was put back.",
            peer.not_before
        );
        return Err(Error::NotAdmitted {
            code: "certificate_early",
            detail,
        });
    }
    Ok(peer)
}

fn removed() -> Error {
    not_admitted(
        "agent_removed",
        "The certificate is of an agent that was removed.",
    )
}

fn not_admitted(code: &'static str, what: &str) -> Error {
    Error::NotAdmitted {
        code,
        detail: format!("{what} {}", certificates::AGAIN),
    }
}

/// Parses a header with milliseconds since the Unix epoch. An invalid header counts as absent.
fn time_in(parts: &Parts, name: &str) -> Option<Timestamp> {
    let ms = parts.headers.get(name)?.to_str().ok()?.parse().ok()?;
    Timestamp::from_millisecond(ms).ok()
}

impl Agent {
    /// Rejects a replaced process, records the contact, and returns the agent's standing for its
    /// site. Changes to a job are protected by the job's attempt number. Calls of one agent
    /// therefore run in parallel, without a second read of the agent's row.
    async fn fence(
        &self,
        conn: &mut PgConnection,
        epoch: i64,
        app: &App,
    ) -> Result<Standing, Error> {
        self.admit(conn, epoch, self.epoch, self.lease, app).await
    }

    /// Repeats [`Self::fence`] with fresh rows, for a call after a wait.
    async fn fence_again(
        &self,
        conn: &mut PgConnection,
        epoch: i64,
        app: &App,
    ) -> Result<Standing, Error> {
        let caller = db::agents::find_caller(conn, self.id, self.site, None)
            .await?
            .ok_or_else(removed)?;
        self.admit(conn, epoch, caller.agent.epoch, caller.lease, app)
            .await
    }

    /// Repeats [`Self::fence`] under the lock of the agent's row, for writes without an attempt
    /// number. Calls of one agent are then serialised, also with a hello.
    async fn fence_alone(
        &self,
        conn: &mut PgConnection,
        epoch: i64,
        app: &App,
    ) -> Result<Standing, Error> {
        let current = db::agents::lock_epoch(conn, self.id)
            .await?
            .ok_or_else(removed)?;
        let lease = db::agents::find_lease(conn, self.site).await?;
        self.admit(conn, epoch, current, lease, app).await
    }

    /// Compares the epoch of the call with the current epoch of the agent, renews the lease of the
    /// site, and returns the agent's standing.
    async fn admit(
        &self,
        conn: &mut PgConnection,
        epoch: i64,
        current: i64,
        lease: SiteLease,
        app: &App,
    ) -> Result<Standing, Error> {
        if epoch != current {
            let detail =
                format!("This process has epoch {epoch}; another took over with {current}.");
            return Err(Error::conflict("stale_epoch", detail));
        }
        let now = app.clock.now();
        if self
            .last_seen
            .is_none_or(|seen| now.duration_since(seen) >= SEEN_EVERY)
        {
            db::agents::record_call(conn, self.id, now).await?;
        }
        // A time in the future means a step back of the server's clock.
        let until = self.answered_at.unwrap_or(now).min(now) + SITE_LEASE;
        let times = LeaseTimes {
            now,
            until,
            fresh: until - PROLONGED,
            over: now - LAST_CALL,
        };
        let former = match db::agents::hold_site(conn, self.site, self.id, lease, times).await? {
            Hold::Held if until <= now => return Ok(Standing::Unheard),
            Hold::Held => return Ok(Standing::Acts),
            Hold::Others => return Ok(Standing::StandsBy),
            Hold::TakenFrom(former) => former,
        };
        db::jobs::requeue_of(conn, former).await?;
        let summary = format!(
            "{} takes over {}: the former agent stopped renewing its lease",
            self.name, self.site_name
        );
        let event = NewEvent::new(
            now,
            format!("agent:{}", self.name),
            "site.taken_over",
            summary,
        )
        .about(self.site)
        .with(json!({ "from": former, "to": self.id }));
        db::events::insert(conn, event).await?;
        Ok(Standing::Acts)
    }
}

/// The standing of an agent for its site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Acts,
    /// The agent acts, but receives no answers. Its lease expires, and a job in the answer would be
    /// lost.
    Unheard,
    /// Another agent of the site acts. The standby agent gets no jobs, and its boot services do not
    /// answer.
    StandsBy,
}

async fn hello(
    State(app): State<App>,
    agent: Agent,
    Json(hello): Json<Hello>,
) -> Result<Json<Welcome>, Error> {
    if hello.protocol != PROTOCOL {
        let detail = format!(
            "The agent speaks protocol {}, this server {PROTOCOL}.",
            hello.protocol
        );
        return Err(Error::conflict("protocol_mismatch", detail));
    }
    authorities::record(&app, &agent).await?;
    let mut tx = app.pool.begin().await?;
    let now = app.clock.now();
    let before = db::agents::lock_epoch(&mut tx, agent.id)
        .await?
        .ok_or_else(removed)?;
    let epoch =
        db::agents::record_start(&mut tx, agent.id, &hello.instance, &hello.version, now).await?;
    if epoch != before {
        // The previous process is gone or fenced, so its jobs return to the queue immediately.
        db::jobs::requeue_of(&mut tx, agent.id).await?;
    }
    let trust = trust::give_keys(&app, &mut tx, agent.id, now).await?;
    tx.commit().await?;
    app.wake_agents.notify_waiters();
    Ok(Json(Welcome {
        protocol: PROTOCOL,
        agent: agent.id,
        site: agent.site_name,
        epoch,
        lease_s: LEASE_S,
        permit_public_key: trust.permit_public_key,
        user_ca: trust.user_ca,
    }))
}
