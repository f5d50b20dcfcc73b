//! Routes for machines: liveness, readiness, metrics, and targets for Prometheus to scrape.

use std::sync::LazyLock;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::{StatusCode, header};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use muster_core::lifecycle::state::State as NodeState;
use serde_json::json;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::Query;
use crate::app::App;
use crate::auth::Actor;
use crate::auth::needs::need;
use crate::auth::passwords::{Lane, count_waiting};
use crate::db;
use crate::db::filter;
use crate::error::Error;
use crate::intents::answer::Answer;

/// The longest wait for an answer of the database.
const READY_TIMEOUT: Duration = Duration::from_secs(2);
/// The port of Prometheus's node exporter.
const EXPORTER_PORT: u16 = 9100;

/// One recorder per process, built at first use, because tests run many routers in one process.
static METRICS: LazyLock<PrometheusHandle> = LazyLock::new(|| {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    if metrics::set_global_recorder(recorder).is_err() {
        tracing::warn!(
            "another metrics recorder is installed; /metrics shows only what this one was given"
        );
    }
    handle
});

/// Begins to record metrics. Must be called before the first metric.
pub fn record_metrics() {
    LazyLock::force(&METRICS);
}

/// The routes for machines.
pub fn router() -> OpenApiRouter<App> {
    record_metrics();
    OpenApiRouter::default()
        .routes(routes!(list_prometheus_targets))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route(
            "/metrics",
            get(show_metrics).layer(need("fleet.read", "fleet")),
        )
}

/// Readiness of the replica: the database answers within [`READY_TIMEOUT`].
async fn ready(State(app): State<App>) -> Result<Response, Error> {
    let answer = async { db::ping(&mut *app.pool.acquire().await?).await };
    match tokio::time::timeout(READY_TIMEOUT, answer).await {
        Ok(Ok(())) => Ok("ready\n".into_response()),
        Ok(Err(error)) => Err(error),
        Err(_) => Ok((
            StatusCode::SERVICE_UNAVAILABLE,
            "the database does not answer\n",
        )
            .into_response()),
    }
}

/// Reads the counts at each request, so that every replica shows the same numbers.
async fn show_metrics(State(app): State<App>, _: Actor) -> Result<Response, Error> {
    let mut conn = app.pool.acquire().await?;
    let nodes = db::monitoring::count_by_state(&mut conn, None).await?;
    for state in NodeState::ALL {
        let count = nodes
            .iter()
            .find(|(counted, _)| counted == state)
            .map_or(0, |(_, count)| *count);
        set_gauge("muster_nodes", state.as_str(), count);
    }
    let overdue = db::overdue::count_by_state(&mut conn, app.clock.now()).await?;
    for state in NodeState::ALL {
        let counted = overdue.iter().find(|(late, _)| late == state);
        let count = counted.map_or(0, |(_, count)| *count);
        set_gauge("muster_nodes_overdue", state.as_str(), count);
    }
    let jobs = db::operations::count_open_jobs(&mut conn).await?;
    for state in ["queued", "leased"] {
        let count = jobs
            .iter()
            .find(|(word, _)| word == state)
            .map_or(0, |(_, count)| *count);
        set_gauge("muster_jobs", state, count);
    }
    for lane in Lane::ALL {
        let waiting = u32::try_from(count_waiting(lane)).unwrap_or(u32::MAX);
        let gauge = metrics::gauge!("muster_logins_waiting", "lane" => lane.as_str());
        gauge.set(f64::from(waiting));
    }
    METRICS.run_upkeep();
    Ok((
        [(
            header::CONTENT_TYPE,
            "text/plain; version=0.0.4; charset=utf-8",
        )],
        METRICS.render(),
    )
        .into_response())
}

fn set_gauge(name: &'static str, state: &'static str, count: i64) {
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts of nodes and jobs are far below 2^52"
    )]
    metrics::gauge!(name, "state" => state).set(count as f64);
}

/// The port to scrape.
#[derive(Clone, Debug, serde::Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct TargetsQuery {
    /// The port to scrape on each node; 9100 when absent.
    port: Option<u16>,
}

/// Lists nodes in service as scrape targets for Prometheus.
#[utoipa::path(get, path = "/v1/prometheus/targets",
    extensions(("x-muster-access" = json!({ "verb": "fleet.read", "place": "any" }))),
    tag = "metrics", params(TargetsQuery), responses(
    (status = 200, description = "Target groups in the format of Prometheus's `http_sd_config`", body = serde_json::Value),
))]
async fn list_prometheus_targets(
    State(app): State<App>,
    actor: Actor,
    Query(query): Query<TargetsQuery>,
) -> Result<Answer, Error> {
    let port = query.port.unwrap_or(EXPORTER_PORT);
    let mut conn = app.pool.acquire().await?;
    let nodes = filter::list_visible(&mut conn, &filter::NODES, &actor.sight()).await?;
    let rows = db::monitoring::list_targets(&mut conn, nodes.as_deref()).await?;
    let group = |row: db::monitoring::TargetRow| {
        let text = |value: Option<String>| value.unwrap_or_default();
        let target = std::net::SocketAddr::new(row.address.addr(), port).to_string();
        json!({ "targets": [target], "labels": {
            "node": row.name, "site": row.site, "rack": text(row.rack), "pool": text(row.pool), "profile": text(row.profile),
        }})
    };
    Answer::ok(&rows.into_iter().map(group).collect::<Vec<_>>())
}
