//! Webhooks: events sent to an external server, with a signature (docs/webhooks.md).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::kind::Kind;

/// A webhook. `secret` is write-only: responses omit the secret and show a keyed hash in `status`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WebhookSpec {
    /// Target of the POST requests. `https`; `http` only for networks listed in the server's
    /// `--webhook-allow`. The URL is not a secret: every caller with read access to webhooks can
    /// read the URL.
    #[schema(max_length = 2000)]
    pub url: String,
    /// Kinds of events: `node.advanced` is one kind, `node.*` all kinds with this prefix, `*` all
    /// kinds.
    #[schema(min_items = 1, max_items = 50)]
    pub topics: Vec<String>,
    /// Limits deliveries to events of objects in this site.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// `false` pauses deliveries; events from the pause are sent later. Default: `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Free text for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1000)]
    pub description: Option<String>,
    /// Key for signing deliveries: `whsec_` and 24 to 64 bytes in base64. During a rotation, give
    /// two keys separated by a space; each delivery then has both signatures. Absent in responses.
    /// A `PUT` without `secret` keeps the stored secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, write_only, format = Password)]
    pub secret: Option<muster_core::values::Secret>,
}

/// The state of a webhook's deliveries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WebhookStatus {
    pub state: WebhookState,
    /// Reason for the stop, or the latest error.
    pub because: Option<String>,
    /// Every event up to this number was accepted by the receiver, or does not match the webhook.
    pub delivered_seq: i64,
    /// Number of failed attempts for the next event.
    pub attempts: i32,
    /// Time of the first failed attempt for the next event. Absent while deliveries succeed.
    pub failing_since: Option<Timestamp>,
    /// Time of the next attempt.
    pub next_attempt_at: Option<Timestamp>,
    pub secret_set: bool,
    /// A keyed hash of the secret. Equal secrets of one webhook have equal hashes; the hash reveals
    /// no more about the secret.
    pub secret_hash: Option<String>,
}

/// Whether events are sent to a webhook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WebhookState {
    /// Events are delivered.
    #[default]
    Active,
    /// The next event was not yet accepted. The server retries.
    Failing,
    /// Stopped after a day of failures, or because the receiver reports itself gone. Deliveries
    /// continue after a change or a resume.
    Stopped,
    /// Disabled in the spec.
    Disabled,
}

impl WebhookState {
    /// Returns the state's name as used in documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Failing => "failing",
            Self::Stopped => "stopped",
            Self::Disabled => "disabled",
        }
    }
}

/// One attempt of a delivery to a webhook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Delivery {
    pub id: Uuid,
    /// Value of the header `webhook-id`. Every delivery of the same event has the same value.
    pub event: Uuid,
    /// Number of the event. Absent for a ping.
    pub seq: Option<i64>,
    /// Kind of the event; `webhook.ping` for a ping.
    pub kind: String,
    /// `event`, `test` or `redelivery`.
    pub reason: String,
    /// `queued`, `delivered` or `failed`.
    pub state: String,
    /// Number of the attempt, from 1; 0 before the first attempt.
    pub attempt: i32,
    /// Time of the request or of the attempt.
    pub at: Timestamp,
    /// HTTP status of the receiver's response.
    pub status: Option<i32>,
    /// Reason for a missing or unaccepted response. Never contains text from the receiver.
    pub error: Option<String>,
    /// Duration of the attempt, in milliseconds.
    pub duration_ms: Option<i32>,
}

/// The body of `POST /v1/webhooks/{name}/actions/redeliver`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Redeliver {
    /// Id of the delivery whose event is sent again.
    pub delivery: Uuid,
}

impl Kind for WebhookSpec {
    const KIND: &'static str = "webhook";
    const COLLECTION: &'static str = "webhooks";
    const SCHEMA: &'static str = "Webhook";
    type Status = WebhookStatus;
}
