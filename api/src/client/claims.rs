//! The calls of claims beyond those of every kind.

use http::Method;
use serde_json::json;

use super::{Client, ClientError, Precondition};
use crate::claims::{Claim, ClaimSpec, CreateClaim, ReplaceClaim};
use crate::nodes::NodePlan;
use crate::operations::Operation;

impl Client {
    /// Binds a node to a pool; the work is the operation in the claim's status.
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

    /// Releases a node and erases its disks at once, without the time in which the release can be undone.
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

    /// Takes a release back while the node's disks are kept.
    ///
    /// # Errors
    /// 409 when the wipe has begun; see [`ClientError`].
    pub async fn undo_release(&self, claim: &str) -> Result<Operation, ClientError> {
        self.fetch(self.request(Method::POST, &["claims", claim, "undo"]))
            .await
    }

    /// What taking a release back would do.
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

    /// Gives a claim another node: it comes first, and the one that is there goes once it serves.
    ///
    /// # Errors
    /// 409 when no node is available or a second person must agree, 412 when the claim was changed; see [`ClientError`].
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

    /// What giving a claim another node would do.
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

    /// Holds a claim, or lets it go again: whether what happens by itself may change what its node runs.
    ///
    /// # Errors
    /// 404 when there is none, 409 when it is over; see [`ClientError`].
    pub async fn hold_claim(&self, name: &str, hold: Option<bool>) -> Result<Claim, ClientError> {
        self.patch::<ClaimSpec>(
            name,
            &json!({ "spec": { "hold": hold } }),
            Precondition::None,
        )
        .await
    }
}
