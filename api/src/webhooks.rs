//! Webhooks: events told to somebody else's server, signed (docs/webhooks.md).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::kind::Kind;

/// A webhook. `secret` is write-only: answers leave it out and show a keyed hash in `status`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WebhookSpec {
    /// Where events are posted. `https`; `http` only into networks that the server's `--webhook-allow` names. Not a secret: whoever may read
    /// webhooks reads it.
    #[schema(max_length = 2000)]
    pub url: String,
    /// Kinds of events: `node.advanced` is that one, `node.*` all that begin so, `*` all there are.
    #[schema(min_items = 1, max_items = 50)]
    pub topics: Vec<String>,
    /// Only of what lies in this site.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Nothing is sent while it is `false`, and what happens meanwhile is sent afterwards. `true` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1000)]
    pub description: Option<String>,
    /// What deliveries are signed with: `whsec_` and 24 to 64 bytes in base64. Two of them, separated by a space, while one replaces the other: each
    /// signs. Absent in answers; a `PUT` without it keeps what is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, write_only, format = Password)]
    pub secret: Option<muster_core::values::Secret>,
}

/// How the deliveries of a webhook stand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WebhookStatus {
    pub state: WebhookState,
    /// Why it is stopped, or what went wrong last.
    pub because: Option<String>,
    /// Every event up to this number was taken by the receiver, or is not for it.
    pub delivered_seq: i64,
    /// How often the next event was tried in vain.
    pub attempts: i32,
    pub failing_since: Option<Timestamp>,
    /// When it is tried again.
    pub next_attempt_at: Option<Timestamp>,
    pub secret_set: bool,
    /// A keyed hash: equal secrets of one webhook show the same, and nothing else can be learnt from it.
    pub secret_hash: Option<String>,
}

/// Whether a webhook is told anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WebhookState {
    #[default]
    Active,
    /// The next event was not taken yet; it is tried again.
    Failing,
    /// Given up, after a day or because the receiver is gone; goes on when it is changed, or resumed.
    Stopped,
    /// By its own spec.
    Disabled,
}

impl WebhookState {
    /// As documents have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Failing => "failing",
            Self::Stopped => "stopped",
            Self::Disabled => "disabled",
        }
    }
}

/// One attempt to tell a webhook something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Delivery {
    pub id: Uuid,
    /// The header `webhook-id`: the same whenever the same is told again.
    pub event: Uuid,
    /// The event's number; a ping is none.
    pub seq: Option<i64>,
    /// The event's kind; `webhook.ping`.
    pub kind: String,
    /// `event`, `test` or `redelivery`.
    pub reason: String,
    /// `queued`, `delivered` or `failed`.
    pub state: String,
    /// From 1; 0 before the first.
    pub attempt: i32,
    /// When it was asked for or tried.
    pub at: Timestamp,
    /// Of the receiver's answer.
    pub status: Option<i32>,
    /// Why there was no answer, or why it was not enough. Never what the receiver wrote.
    pub error: Option<String>,
    pub duration_ms: Option<i32>,
}

/// `POST /v1/webhooks/{name}/actions/redeliver`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Redeliver {
    /// The id of the delivery whose event is sent once more.
    pub delivery: Uuid,
}

impl Kind for WebhookSpec {
    const KIND: &'static str = "webhook";
    const COLLECTION: &'static str = "webhooks";
    const SCHEMA: &'static str = "Webhook";
    type Status = WebhookStatus;
}
