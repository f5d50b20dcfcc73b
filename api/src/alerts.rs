//! Alerts posted by Prometheus Alertmanager to a webhook receiver (payload version 4), and the
//! outcome of each alert.
//! <https://prometheus.io/docs/alerting/latest/configuration/#webhook_config>

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_core::words;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// The body of `POST /v1/alerts`: a group of alerts. Other fields sent by Alertmanager are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AlertGroup {
    /// Version of the payload: always `4`.
    pub version: String,
    #[schema(max_items = 1000)]
    pub alerts: Vec<Alert>,
}

/// One alert.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Alert {
    pub status: AlertStatus,
    /// `alertname` names the alert. `node`, or else `instance`, names the node: the node's name or
    /// one of its addresses. `muster="quarantine"` requests quarantine of the node.
    pub labels: BTreeMap<String, String>,
    /// `summary` and `description` are copied into the event.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// Time at which the alert started, reported by Prometheus.
    pub starts_at: Timestamp,
    /// Hash over the labels, computed by Alertmanager.
    #[schema(min_length = 1, max_length = 64)]
    pub fingerprint: String,
}

/// Whether the alert is still active.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AlertStatus {
    Firing,
    Resolved,
}

/// The response: the outcome of each alert, in the order of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AlertsHeard {
    pub alerts: Vec<AlertHeard>,
}

/// The outcome of one alert.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AlertHeard {
    pub fingerprint: String,
    /// The node, if found.
    pub node: Option<String>,
    pub outcome: AlertOutcome,
    /// Reason for the outcome. Absent when the outcome needs no explanation.
    pub because: Option<String>,
    /// The operation that quarantines the node.
    pub operation: Option<Uuid>,
}

words! {
    /// The effect of an alert.
    #[derive(ToSchema)]
    AlertOutcome, "outcome of an alert" {
        /// The alert was recorded on the node's timeline.
        Noted = "noted",
        /// The alert and its effect were recorded earlier.
        Known = "known",
        /// The node is being quarantined.
        Quarantined = "quarantined",
        /// This alert quarantined too many nodes within the last hour, so the cause is probably outside
        /// the node. A person decides.
        HeldBack = "held_back",
        /// The node's state, the node's protection, or the token's permissions do not allow the
        /// quarantine.
        Refused = "refused",
        /// No node has this name or address.
        UnknownNode = "unknown_node",
    }
}
