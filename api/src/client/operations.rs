//! Calls about operations and events.

use std::time::Duration;

use http::Method;
use tokio::time::Instant;
use uuid::Uuid;

use super::{Client, ClientError};
use crate::events::Events;
use crate::object::Page;
use crate::operations::{Operation, OperationLog};

/// Duration of a long poll.
const POLL: Duration = Duration::from_secs(30);
/// Pause before a retry while the server is away.
const AWAY: Duration = Duration::from_secs(1);

impl Client {
    /// Returns an operation.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn operation(&self, id: Uuid) -> Result<Operation, ClientError> {
        self.fetch(self.request(Method::GET, &["operations", &id.to_string()]))
            .await
    }

    /// Lists operations, the newest first: `limit`, `page_token`, `node`, `state`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn list_operations(
        &self,
        query: &[(&str, &str)],
    ) -> Result<Page<Operation>, ClientError> {
        self.fetch(self.request(Method::GET, &["operations"]).query(query))
            .await
    }

    /// Waits by long polls until the operation is done, with any result. While the server is away,
    /// the call retries until `timeout`.
    ///
    /// # Errors
    /// [`ClientError::TimedOut`] with the condition that the operation waits for; otherwise see
    /// [`ClientError`].
    pub async fn wait_operation(
        &self,
        id: Uuid,
        timeout: Duration,
    ) -> Result<Operation, ClientError> {
        let deadline = Instant::now() + timeout;
        let mut last = "nothing was heard of it".to_owned();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ClientError::TimedOut(format!(
                    "operation {id} is not done after {} s: {last}",
                    timeout.as_secs()
                )));
            }
            let wait = format!("{}s", left.min(POLL).as_secs().max(1));
            let request = self
                .request(Method::GET, &["operations", &id.to_string()])
                .query(&[("wait", &wait)]);
            match self.fetch::<Operation>(request).await {
                Ok(operation) if operation.done => return Ok(operation),
                Ok(operation) => last = operation.progress.message,
                Err(error) if error.away() => {
                    last = error.to_string();
                    tokio::time::sleep(AWAY.min(left)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Cancels an operation. The message of the operation says in which state the node is left.
    ///
    /// # Errors
    /// 409 when the operation is done; see [`ClientError`].
    pub async fn cancel_operation(&self, id: Uuid) -> Result<Operation, ClientError> {
        self.fetch(self.request(Method::POST, &["operations", &id.to_string(), "cancel"]))
            .await
    }

    /// Returns at most 1000 log lines after line `after`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn operation_log(&self, id: Uuid, after: i64) -> Result<OperationLog, ClientError> {
        let request = self.request(Method::GET, &["operations", &id.to_string(), "log"]);
        self.fetch(request.query(&[("after", after)])).await
    }

    /// Lists events after event `after`, the oldest first: `limit`, `node`, `wait`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn events(&self, after: i64, query: &[(&str, &str)]) -> Result<Events, ClientError> {
        let request = self
            .request(Method::GET, &["events"])
            .query(&[("after", after)]);
        self.fetch(request.query(query)).await
    }
}
