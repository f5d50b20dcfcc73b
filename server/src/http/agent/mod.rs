//! The agents' own listener: other port, other types than the operator API. Every call but the enrolment comes under the agent's certificate; every call
//! after hello carries its epoch, and an older one is refused.

mod blobs; // Blobs by digest
mod certificates; // The first one, and each later one
mod clocks; // What the clock of an agent's machine says
mod consoles; // What nodes wrote on their consoles
mod jobs; // Lease, act, renew, outcome, permits
mod marks; // What an agent is to remember, and what it remembers
mod members; // Who is in a cluster
mod scheduler; // What schedulers say of nodes that take no jobs
mod sightings; // What the boot services saw
mod site; // What the boot services answer from
pub mod tls; // The listener's TLS
mod told; // What agents pass on from nodes

use axum::extract::{ConnectInfo, DefaultBodyLimit, FromRequestParts, State};
use axum::routing::{get, post};
use axum::{Router, middleware};
use http::request::Parts;
use jiff::{SignedDuration, Timestamp};
use muster_core::ids::{AgentId, ObjectId};
use muster_core::wire::PROTOCOL;
use muster_core::wire::calls::{Hello, SITE_LEASE_S, Welcome};
use muster_core::wire::headers::{ANSWERED_AT, CLOCK};
use serde_json::json;
use sqlx::PgConnection;

use self::marks::Mark;
use self::tls::Peer;
use crate::app::App;
use crate::db;
use crate::db::agents::{AgentRow, Caller, Hold, LeaseTimes, SiteLease};
use crate::db::events::NewEvent;
use crate::error::Error;
use crate::http::extract::Json;
use crate::request_id;
use crate::tasks::leases::LEASE_S;

/// A site's lease, from the latest answer that its agent has: one that is heard and not answered lets it lapse.
const SITE_LEASE: SignedDuration = SignedDuration::from_secs(SITE_LEASE_S as i64);

/// A lease is written again when that prolongs it by this.
const PROLONGED: SignedDuration = SignedDuration::from_secs(10);

/// How long after the end of a lease nobody takes it: the last call to a BMC that its holder began may still be under way.
const LAST_CALL: SignedDuration = SignedDuration::from_secs(45);

/// That an agent was heard is written down this often: every call would write the same row.
const SEEN_EVERY: SignedDuration = SignedDuration::from_secs(1);

/// Log lines and evidence of a whole gate run fit; an image never goes this way.
const BODY_LIMIT: usize = 32 << 20;

/// A certificate request is small, and whoever enrols is nobody yet.
const REQUEST_LIMIT: usize = 16 << 10;

/// Routes of the agents' listener. Who calls is the connection's [`Peer`]: without one, nobody.
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
        .route("/agent/v1/jobs/{job}/outcome", post(jobs::outcome))
        .route("/agent/v1/permits/redeem", post(jobs::redeem))
        .route("/agent/v1/scheduler", post(scheduler::report))
        .route("/agent/v1/sightings", post(sightings::report))
        .route("/agent/v1/consoles", post(consoles::report))
        .route("/agent/v1/blobs/sha256/{hex}", get(blobs::get))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(middleware::from_fn_with_state(app.clone(), marks::carry))
        .layer(middleware::from_fn(request_id::assign))
        .with_state(app)
}

/// An agent that showed its certificate.
#[derive(Clone, Debug)]
pub struct Agent {
    pub id: AgentId,
    pub name: String,
    pub site: ObjectId,
    pub site_name: String,
    /// Of its current process.
    epoch: i64,
    /// Its site's, as the call found it.
    lease: SiteLease,
    last_seen: Option<Timestamp>,
    /// The time of the latest answer that it has; `None` of one that does not say.
    answered_at: Option<Timestamp>,
    /// What the answer asks it to remember.
    mark: Mark,
}

impl FromRequestParts<App> for Agent {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
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
        let arrived = app.clock.now();
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
        let mut conn = app.pool.acquire().await?;
        let heard = marks::heard(parts)?;
        let caller = db::agents::find_caller(&mut conn, peer.agent, peer.site, heard).await?;
        let Caller {
            agent: row,
            lease,
            known,
        } = caller.ok_or_else(removed)?;
        let mark = Mark::of(parts);
        if let Some(heard) = heard.filter(|_| !known) {
            mark.miss(&mut conn, &row.name, heard, app).await?;
        }
        if let Some(theirs) = time_in(parts, CLOCK) {
            clocks::compare(&mut conn, &row, theirs, arrived).await?;
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
        Ok(Self {
            id,
            name,
            site,
            site_name,
            epoch,
            lease,
            last_seen,
            answered_at: time_in(parts, ANSWERED_AT),
            mark,
        })
    }
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

/// A header's milliseconds since the epoch; what is none was not said.
fn time_in(parts: &Parts, name: &str) -> Option<Timestamp> {
    let ms = parts.headers.get(name)?.to_str().ok()?.parse().ok()?;
    Timestamp::from_millisecond(ms).ok()
}

impl Agent {
    /// Refuses a process that another one replaced; notes that this one was heard, and whether it acts for its site or stands by. What the
    /// process may do to a job is fenced by the job's attempt, so that the calls of one agent need not wait for each other, nor ask a second
    /// time who it is.
    async fn fence(
        &self,
        conn: &mut PgConnection,
        epoch: i64,
        app: &App,
    ) -> Result<Standing, Error> {
        self.admit(conn, epoch, self.epoch, self.lease, app).await
    }

    /// The same in a call that has waited: what it found is old.
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

    /// The same, one call after the other, and none beside a hello: for what no attempt fences.
    async fn fence_alone(
        &self,
        conn: &mut PgConnection,
        epoch: i64,
        app: &App,
    ) -> Result<Standing, Error> {
        let current = db::agents::hold(conn, self.id).await?.ok_or_else(removed)?;
        let lease = db::agents::find_lease(conn, self.site).await?;
        self.admit(conn, epoch, current, lease, app).await
    }

    /// Compares the epoch of the call with the current epoch of the agent, renews the lease of the site, and returns what the agent may do.
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
            db::agents::seen(conn, self.id, now).await?;
        }
        // A time in the future means that the clock of the server was set back.
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
            "{} acts for {} from now on: the agent before was not heard of",
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

/// What an agent may do for its site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Acts,
    /// It acts, and does not hear: its lease runs out, and what it would be given would be lost on the way.
    Unheard,
    /// Another agent of the site acts: this one gets no jobs, and answers nothing on the wire.
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
    let mut tx = app.pool.begin().await?;
    let now = app.clock.now();
    let before = db::agents::hold(&mut tx, agent.id)
        .await?
        .ok_or_else(removed)?;
    let epoch = db::agents::hello(&mut tx, agent.id, &hello.instance, &hello.version, now).await?;
    if epoch != before {
        // The process before is gone or fenced: what it held is taken up at once.
        db::jobs::requeue_of(&mut tx, agent.id).await?;
    }
    tx.commit().await?;
    app.wake_agents.notify_waiters();
    Ok(Json(Welcome {
        protocol: PROTOCOL,
        agent: agent.id,
        site: agent.site_name,
        epoch,
        lease_s: LEASE_S,
        permit_public_key: app.keys.permit_public(),
        user_ca: app.keys.user_ca_line().map_err(Error::internal)?,
    }))
}
