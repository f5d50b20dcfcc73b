//! Calls about the disruption budget.

use http::Method;

use super::{Client, ClientError};
use crate::claims::Claim;
use crate::disruption::{Disruption, WriteOff};

impl Client {
    /// Returns the nodes of a pool out of service, and the budgets.
    ///
    /// # Errors
    /// 404 for an unknown pool; see [`ClientError`].
    pub async fn pool_disruption(&self, pool: &str) -> Result<Disruption, ClientError> {
        self.fetch(self.request(Method::GET, &["pools", pool, "disruption"]))
            .await
    }

    /// Writes a claim's node off until a time, or ends the write-off.
    ///
    /// # Errors
    /// 409 for a node in service or at work; see [`ClientError`].
    pub async fn write_off_claim(
        &self,
        claim: &str,
        body: &WriteOff,
    ) -> Result<Claim, ClientError> {
        let path = ["claims", claim, "actions", "write-off"];
        self.fetch(self.request(Method::POST, &path).json(body))
            .await
    }
}
