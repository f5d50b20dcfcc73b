//! Agents: enrolment, and the status of each.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use muster_api::agents::{Agent, EnrolAgent, EnrolledAgent};
use muster_api::problem::Problem;
use muster_core::ids::AgentId;
use serde_json::{Value, json};
use sqlx::PgConnection;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::extract::{Json, Path, Query};
use super::paging::{self, CountedPage, ListQuery};
use crate::access::Sight;
use crate::app::App;
use crate::auth::{Actor, tokens};
use crate::db;
use crate::db::agents::AgentRow;
use crate::db::filter::{AGENTS, Term};
use crate::db::objects::ObjectRow;
use crate::db::ssh_certificates::OpenCertificate;
use crate::engine::caution;
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::preconditions::Preconditions;
use crate::intents::writing;
use crate::intents::writing::Effect;

/// The lifetime of an enrolment token.
const TOKEN_LASTS: SignedDuration = SignedDuration::from_hours(24);

/// The most SSH certificates named by the event of a removed agent.
const MOST_CERTIFICATES: i64 = 1000;

/// The routes of agents.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list_agents, enrol_agent))
        .routes(routes!(get_agent, remove_agent))
}

/// Lists the agents of a site.
///
/// Filter fields: `name` and `version`. Sorted by `name`, unless `-name`, `created_at` or
/// `-created_at` is requested.
#[utoipa::path(get, path = "/v1/sites/{site}/agents",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "site={site}" }))),
    tag = "agents", params(("site", description = "Name or id"), ListQuery), responses(
    (status = 200, description = "One page of agents", body = CountedPage<Agent>),
))]
async fn list_agents(
    State(app): State<App>,
    _: Actor,
    Path(site): Path<String>,
    Query(query): Query<ListQuery>,
) -> Result<Answer, Error> {
    let load = async |conn: &mut PgConnection, ids: &[Uuid]| {
        Ok(db::agents::list_by_id(conn, ids)
            .await?
            .into_iter()
            .map(render_agent)
            .collect())
    };
    let mut conn = app.pool.acquire().await?;
    let site = find_site(&mut conn, &site).await?;
    let only = vec![Term::equal("site", site.id.to_string())];
    let sight = Sight::new();
    paging::build_page(
        &mut conn,
        &AGENTS,
        &query,
        only,
        &sight,
        load,
        |agent: &Agent| (agent.id, agent.name.as_str()),
    )
    .await
}

/// Returns one agent of a site, by name or id.
#[utoipa::path(get, path = "/v1/sites/{site}/agents/{agent}",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "site={site}" }))),
    tag = "agents",
    params(("site", description = "Name or id"), ("agent", description = "Name or id")), responses(
    (status = 200, description = "The agent; its generation is the ETag", body = Agent),
    (status = 404, description = "No such agent", body = Problem, content_type = "application/problem+json"),
))]
async fn get_agent(
    State(app): State<App>,
    _: Actor,
    Path((site, key)): Path<(String, String)>,
) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    let site = find_site(&mut conn, &site).await?;
    let mut agents = db::agents::list(&mut conn, Some(&[site.id.0]))
        .await?
        .into_iter();
    let found = agents.find(|row| row.name == key || row.id.to_string() == key);
    let row = found.ok_or_else(|| Error::NotFound(format!("agent {key:?}")))?;
    let generation = row.generation;
    Ok(Answer::ok(&render_agent(row))?.etag(generation))
}

/// Enrols an agent for a site.
///
/// The enrolment token is in this answer only, and in the answer to the same request with the same
/// Idempotency-Key. Until that stored answer expires, the server keeps the token sealed. The token
/// is valid for a day and for one key; the agent exchanges both for a certificate. A repeated
/// request with the same name creates no second agent. While the agent has no valid certificate,
/// such a request returns a new token.
#[utoipa::path(post, path = "/v1/sites/{site}/agents",
    extensions(("x-muster-access" = json!({ "verb": "agent.enrol", "place": "site={site}" })),
        ("x-muster-links" = json!({ "agent": ["get_agent", {"site": "$request.path.site", "agent": "$response.body#/agent/name"}] }))),
    tag = "agents",
    params(("site", description = "Name or id"), ("Idempotency-Key" = Option<String>, Header)),
    request_body = EnrolAgent, responses(
    (status = 201, description = "The enrolled agent, with its token", body = EnrolledAgent),
    (status = 409, description = "An agent with this name already has a valid certificate", body = Problem, content_type = "application/problem+json"),
))]
async fn enrol_agent(
    State(app): State<App>,
    actor: Actor,
    Path(site): Path<String>,
    idempotency: IdempotencyKey,
    Json(request): Json<EnrolAgent>,
) -> Result<Answer, Error> {
    writing::once(&app, &actor, idempotency, &request, async |conn| {
        let site = find_site(conn, &site).await?;
        let now = app.clock.now();
        let authorities = app.keys.open_authorities(conn).await;
        let authority = authorities.map_err(Error::internal)?.current;
        let minted = tokens::mint_agent(authority.digest());
        let (name, until) = (request.name.as_str(), now + TOKEN_LASTS);
        let id = db::enrolments::insert(conn, site.id, name, &minted.hash, now, until).await?;
        let summary = format!("agent {} enrolled for {}", request.name, site.name);
        record(conn, &app, &actor, "agent.enrolled", summary, &site).await?;
        let row = db::agents::list(conn, Some(&[site.id.0]))
            .await?
            .into_iter()
            .find(|row| row.id == id);
        let agent =
            render_agent(row.ok_or_else(|| Error::NotFound(format!("agent {}", request.name)))?);
        let enrolled = EnrolledAgent {
            agent,
            token: minted.secret,
            token_expires_at: until,
            authority: authority.pem().to_owned(),
        };
        Ok(Effect::Secret(
            Answer::ok(&enrolled)?.status(StatusCode::CREATED),
        ))
    })
    .await
}

/// Removes an agent.
///
/// Its certificates are rejected immediately. Its jobs return to the queue for another agent. The
/// SSH certificates of its orders are revoked: each node refuses them from its next order on. The
/// event shows the number of nodes that still accept some. A caution resting on the word of the
/// agent alone ends, if the caller may confirm cautions. A caution with a sealed event stays: the
/// seal proves the loss without the agent.
#[utoipa::path(delete, path = "/v1/sites/{site}/agents/{agent}",
    extensions(("x-muster-access" = json!({ "verb": "agent.remove", "place": "site={site}" }))),
    tag = "agents",
    params(("site", description = "Name or id"), ("agent", description = "Name or id"), ("If-Match" = String, Header)), responses(
    (status = 204, description = "The agent is removed"),
    (status = 404, description = "No such agent", body = Problem, content_type = "application/problem+json"),
    (status = 412, description = "Another agent was enrolled under this name since the read", body = Problem, content_type = "application/problem+json"),
    (status = 428, description = "If-Match is missing", body = Problem, content_type = "application/problem+json"),
))]
async fn remove_agent(
    State(app): State<App>,
    actor: Actor,
    Path((site, key)): Path<(String, String)>,
    preconditions: Preconditions,
) -> Result<Response, Error> {
    writing::write(&app, &actor, async |conn| {
        let site = find_site(conn, &site).await?;
        let found = db::agents::find_for_update(conn, site.id, &key).await?;
        let agent = found.ok_or_else(|| Error::NotFound(format!("agent {key:?}")))?;
        preconditions.allow_removal(agent.generation)?;
        // Before the jobs: the withdrawal locks nodes, and nodes are locked before jobs.
        caution::withdraw(conn, &actor, &agent, app.clock.now()).await?;
        db::jobs::requeue_of(conn, agent.id).await?;
        let certificates = list_certificates(conn, agent.id, app.clock.now()).await?;
        db::ssh_certificates::revoke(conn, agent.id, app.clock.now()).await?;
        db::agents::delete(conn, agent.id).await?;
        let mut summary = format!("agent {} of {} removed", agent.name, site.name);
        let mut detail = json!({ "site": site.name });
        if !certificates.is_empty() {
            let accepting = db::ssh_certificates::count_accepting(conn, app.clock.now()).await?;
            summary +=
                &format!("; nodes that accept SSH certificates of removed agents: {accepting}");
            detail["ssh_certificates"] = certificates.into();
            detail["nodes_accepting"] = accepting.into();
        }
        let event = actor
            .event(app.clock.now(), "agent.removed", None, summary)
            .with(detail);
        db::events::insert(conn, event.about(site.id)).await
    })
    .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Lists the open SSH certificates of an agent's orders, for a list of revoked keys.
async fn list_certificates(
    conn: &mut PgConnection,
    agent: AgentId,
    now: Timestamp,
) -> Result<Vec<Value>, Error> {
    let open = db::ssh_certificates::list_open(conn, agent, now, MOST_CERTIFICATES).await?;
    let render = |row: OpenCertificate| {
        let ends_at = row.ends_at.map(|at| at.to_jiff());
        // A serial does not fit into a number of JavaScript.
        json!({ "serial": row.serial.to_string(), "node": row.node, "ends_at": ends_at })
    };
    Ok(open.into_iter().map(render).collect())
}

async fn record(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    kind: &'static str,
    summary: String,
    site: &ObjectRow,
) -> Result<(), Error> {
    let event = actor
        .event(app.clock.now(), kind, None, summary)
        .with(json!({ "site": site.name }));
    db::events::insert(conn, event.about(site.id)).await
}

async fn find_site(conn: &mut PgConnection, key: &str) -> Result<ObjectRow, Error> {
    db::objects::find(conn, "site", key)
        .await?
        .ok_or_else(|| Error::NotFound(format!("site {key:?}")))
}

fn render_agent(row: AgentRow) -> Agent {
    Agent {
        id: row.id.0,
        name: row.name,
        site: row.site_name,
        version: row.version,
        last_seen: row.last_seen.map(|at| at.to_jiff()),
        clock_offset_ms: row.clock_offset_ms,
        certified_until: row.certified_until.map(|at| at.to_jiff()),
        refused: row.refused,
        generation: row.generation,
    }
}
