//! Calls about webhooks, beyond the calls common to all kinds.

use http::Method;
use serde_json::json;
use uuid::Uuid;

use super::{Client, ClientError};
use crate::object::{Object, Page};
use crate::webhooks::{Delivery, Redeliver, WebhookSpec, WebhookStatus};

impl Client {
    /// Returns the latest deliveries of a webhook, newest first.
    ///
    /// # Errors
    /// 404 for an unknown webhook; see [`ClientError`].
    pub async fn deliveries(
        &self,
        webhook: &str,
        limit: u32,
    ) -> Result<Page<Delivery>, ClientError> {
        let request = self.request(Method::GET, &["webhooks", webhook, "deliveries"]);
        self.fetch(request.query(&[("limit", limit)])).await
    }

    /// Requests a delivery of a ping event.
    ///
    /// # Errors
    /// 409 when too many deliveries are queued; see [`ClientError`].
    pub async fn test_webhook(&self, webhook: &str) -> Result<Delivery, ClientError> {
        self.fetch(
            self.request(Method::POST, &["webhooks", webhook, "actions", "test"])
                .json(&json!({})),
        )
        .await
    }

    /// Requests another delivery of the event of a delivery.
    ///
    /// # Errors
    /// 422 when the delivery no longer exists; see [`ClientError`].
    pub async fn redeliver(&self, webhook: &str, delivery: Uuid) -> Result<Delivery, ClientError> {
        let request = self.request(Method::POST, &["webhooks", webhook, "actions", "redeliver"]);
        self.fetch(request.json(&Redeliver { delivery })).await
    }

    /// Resumes deliveries of a stopped webhook.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn resume_webhook(
        &self,
        webhook: &str,
    ) -> Result<Object<WebhookSpec, WebhookStatus>, ClientError> {
        self.fetch(
            self.request(Method::POST, &["webhooks", webhook, "actions", "resume"])
                .json(&json!({})),
        )
        .await
    }
}
