//! What is asked of webhooks beside their documents.

use http::Method;
use serde_json::json;
use uuid::Uuid;

use super::{Client, ClientError};
use crate::object::{Object, Page};
use crate::webhooks::{Delivery, Redeliver, WebhookSpec, WebhookStatus};

impl Client {
    /// The newest deliveries of a webhook, newest first.
    ///
    /// # Errors
    /// 404 when there is no such webhook; see [`ClientError`].
    pub async fn deliveries(
        &self,
        webhook: &str,
        limit: u32,
    ) -> Result<Page<Delivery>, ClientError> {
        let request = self.request(Method::GET, &["webhooks", webhook, "deliveries"]);
        self.fetch(request.query(&[("limit", limit)])).await
    }

    /// Asks for a ping.
    ///
    /// # Errors
    /// 409 when too much waits to be sent; see [`ClientError`].
    pub async fn test_webhook(&self, webhook: &str) -> Result<Delivery, ClientError> {
        self.fetch(
            self.request(Method::POST, &["webhooks", webhook, "actions", "test"])
                .json(&json!({})),
        )
        .await
    }

    /// Asks for the event of a delivery once more.
    ///
    /// # Errors
    /// 422 when there is no such delivery any more; see [`ClientError`].
    pub async fn redeliver(&self, webhook: &str, delivery: Uuid) -> Result<Delivery, ClientError> {
        let request = self.request(Method::POST, &["webhooks", webhook, "actions", "redeliver"]);
        self.fetch(request.json(&Redeliver { delivery })).await
    }

    /// Lets a webhook that was given up go on.
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
