//! Alerts: what Prometheus' Alertmanager posts to a webhook receiver, version 4 of its payload, and what became of it.
//! <https://prometheus.io/docs/alerting/latest/configuration/#webhook_config>

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// `POST /v1/alerts`: a group of alerts. What else Alertmanager sends is ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AlertGroup {
    /// `4`.
    pub version: String,
    #[schema(max_items = 1000)]
    pub alerts: Vec<Alert>,
}

/// One alert.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Alert {
    pub status: AlertStatus,
    /// `alertname`; `node`, or else `instance`, says which node: its name, or an address of its. `muster="quarantine"` asks for the node to be taken
    /// out of service.
    pub labels: BTreeMap<String, String>,
    /// `summary` and `description` are told with it.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    pub starts_at: Timestamp,
    /// Of the labels, by Alertmanager.
    #[schema(min_length = 1, max_length = 64)]
    pub fingerprint: String,
}

/// Whether it is still so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AlertStatus {
    Firing,
    Resolved,
}

/// The answer: what became of each alert, in their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AlertsHeard {
    pub alerts: Vec<AlertHeard>,
}

/// What became of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AlertHeard {
    pub fingerprint: String,
    /// The node, where one was found.
    pub node: Option<String>,
    pub outcome: AlertOutcome,
    /// Why, where there is more to say.
    pub because: Option<String>,
    /// Of the quarantine.
    pub operation: Option<Uuid>,
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AlertOutcome {
    /// It stands on the node's timeline.
    Noted,
    /// It was known, and so is what follows from it.
    Known,
    /// The node is taken out of service.
    Quarantined,
    /// So many nodes were taken out by this alert within the hour that it is not the node: a person decides.
    HeldBack,
    /// The node's state, its protection, or the token's rights do not allow it.
    Refused,
    /// No node has this name or address.
    UnknownNode,
}
