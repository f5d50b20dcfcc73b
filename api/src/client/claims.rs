//! Calls about claims, beyond the calls common to all kinds.

use http::Method;
use serde_json::json;

use super::{Client, ClientError, Precondition};
use crate::claims::{Claim, ClaimSpec, CreateClaim, ReplaceClaim};
use crate::nodes::NodePlan;
use crate::operations::Operation;

impl Client {
    /// Binds a node to a pool. The claim's status names the operation doing the work.
    ///
    /// # Errors
    /// 409 when no node is available; see [`ClientError`].
    pub async fn create_claim(&self, claim: &CreateClaim) -> Result<Claim, ClientError> {
        self.fetch(self.request(Method::POST, &["claims"]).json(claim))
            .await
    }

    /// Releases a node: drain, un-admit, wipe, inspect.
    ///
    /// # Errors
    /// 409 for a protected node, 412 when the claim was changed; see [`ClientError`].
    pub async fn delete_claim(
        &self,
        name: &str,
        generation: i64,
    ) -> Result<Operation, ClientError> {
        let request = self.request(Method::DELETE, &["claims", name]);
        self.fetch(Precondition::Generation(generation).apply(request))
            .await
    }

    /// Releases a node and erases the disks at once, without an undo window.
    ///
    /// # Errors
    /// As [`Client::delete_claim`].
    pub async fn erase_claim(&self, name: &str, generation: i64) -> Result<Operation, ClientError> {
        let request = self
            .request(Method::DELETE, &["claims", name])
            .query(&[("erase_now", true)]);
        self.fetch(Precondition::Generation(generation).apply(request))
            .await
    }

    /// Undoes a release during the undo window, while the node's disks are kept.
    ///
    /// # Errors
    /// 409 when the wipe has begun; see [`ClientError`].
    pub async fn undo_release(&self, claim: &str) -> Result<Operation, ClientError> {
        self.fetch(self.request(Method::POST, &["claims", claim, "undo"]))
            .await
    }

    /// Returns the effect of an undo, without a change.
    ///
    /// # Errors
    /// As [`Client::undo_release`].
    pub async fn plan_undo(&self, claim: &str) -> Result<NodePlan, ClientError> {
        self.fetch(
            self.request(Method::POST, &["claims", claim, "undo"])
                .query(&[("dry_run", "true")]),
        )
        .await
    }

    /// Replaces the node of a claim. The new node enters service first; then the old node leaves.
    ///
    /// # Errors
    /// 409 when no node is available or a second person must agree, 412 when the claim was changed;
    /// see [`ClientError`].
    pub async fn replace_claim(
        &self,
        name: &str,
        generation: i64,
        body: &ReplaceClaim,
    ) -> Result<Operation, ClientError> {
        let request = self
            .request(Method::POST, &["claims", name, "actions", "replace"])
            .json(body);
        self.fetch(Precondition::Generation(generation).apply(request))
            .await
    }

    /// Returns the effect of a replacement, without a change.
    ///
    /// # Errors
    /// As [`Client::replace_claim`].
    pub async fn plan_replacement(
        &self,
        name: &str,
        body: &ReplaceClaim,
    ) -> Result<NodePlan, ClientError> {
        let request = self
            .request(Method::POST, &["claims", name, "actions", "replace"])
            .json(body);
        self.fetch(
            request
                .header("if-match", "*")
                .query(&[("dry_run", "true")]),
        )
        .await
    }

    /// Sets or clears `hold`. While a claim is on hold, automation must not change the node's
    /// software.
    ///
    /// # Errors
    /// 404 for an unknown claim, 409 for a released claim; see [`ClientError`].
    pub async fn hold_claim(&self, name: &str, hold: Option<bool>) -> Result<Claim, ClientError> {
        self.patch::<ClaimSpec>(
            name,
            &json!({ "spec": { "hold": hold } }),
            Precondition::None,
        )
        .await
    }
}
