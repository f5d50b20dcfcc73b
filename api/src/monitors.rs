//! Monitors: queries to a Prometheus server that halt rollouts (docs/monitors.md).

use jiff::Timestamp;
use muster_core::rollout::MonitorState;
use muster_core::values::Secret;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::kind::Kind;

/// A monitor: a query that the server asks again and again. Each series of an answer is trouble, as in
/// an alerting rule. `secret` is write-only: responses omit the secret and show a keyed hash in
/// `status`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MonitorSpec {
    /// Base URL of Prometheus or of a server with the same HTTP API, without `/api/v1/query`. `https`;
    /// `http` only for networks listed in the server's `--webhook-allow`. The URL is no secret: every
    /// reader of monitors can read the URL.
    #[schema(max_length = 2000)]
    pub url: String,
    /// PromQL expression for an instant vector, such as `sum(rate(errors_total[5m])) > 10`.
    #[schema(min_length = 1, max_length = 4000)]
    pub query: String,
    /// Seconds between two queries.
    #[serde(default = "half_a_minute")]
    #[schema(minimum = 15, maximum = 600, default = 30)]
    pub interval_s: u32,
    /// Free text for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1000)]
    pub description: Option<String>,
    /// Value of the header `Authorization`: `Bearer …` or `Basic …`. Absent in responses. A `PUT`
    /// without `secret` keeps the stored secret, unless the URL changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, write_only, format = Password, max_length = 4000)]
    pub secret: Option<Secret>,
}

fn half_a_minute() -> u32 {
    30
}

/// The last answers of a monitor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MonitorStatus {
    pub state: MonitorState,
    /// Start of the state: the first of the present answers, or the first missing answer. Absent for
    /// an unknown state without a missing answer.
    pub since: Option<Timestamp>,
    /// Number of series of the last answer.
    pub series: Option<i64>,
    pub answered_at: Option<Timestamp>,
    /// Number of answers missing in a row. The monitor is silent after 3.
    pub missed: i32,
    /// Why the last answer is missing. Contains no text from the other server.
    pub problem: Option<String>,
    pub secret_set: bool,
    /// A keyed hash of the secret. Equal secrets of one monitor have equal hashes; the hash reveals
    /// no more about the secret.
    pub secret_hash: Option<String>,
}

impl Kind for MonitorSpec {
    const KIND: &'static str = "monitor";
    const COLLECTION: &'static str = "monitors";
    const SCHEMA: &'static str = "Monitor";
    type Status = MonitorStatus;
}
