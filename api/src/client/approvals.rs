//! Calls about approvals by a second person, and about waivers of gates.

use http::Method;
use uuid::Uuid;

use super::{Client, ClientError, Precondition};
use crate::approvals::Approval;
use crate::object::Page;
use crate::tokens::FIRST;
use crate::waivers::{CreateWaiver, Waiver};

impl Client {
    /// Lists the requests that wait for a second person.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn list_approvals(&self) -> Result<Page<Approval>, ClientError> {
        self.whole(&["approvals"], &[]).await
    }

    /// Answers `approve` or `deny` to the request of another person.
    ///
    /// # Errors
    /// 403 for the person of the request, 409 when the request is decided; see [`ClientError`].
    pub async fn decide_approval(&self, id: Uuid, word: &str) -> Result<Approval, ClientError> {
        self.fetch(self.request(Method::POST, &["approvals", &id.to_string(), word]))
            .await
    }

    /// Returns the request as an approval would leave the request, without an approval.
    ///
    /// # Errors
    /// As [`Client::decide_approval`] with `approve`.
    pub async fn plan_approval(&self, id: Uuid) -> Result<Approval, ClientError> {
        let request = self.request(Method::POST, &["approvals", &id.to_string(), "approve"]);
        self.fetch(request.query(&[("dry_run", "true")])).await
    }

    /// Requests a waiver, with which a gate counts as passed. A second person must approve.
    ///
    /// # Errors
    /// 404 for an unknown node or pool, 422 without a reason or an end; see [`ClientError`].
    pub async fn create_waiver(&self, request: &CreateWaiver) -> Result<Waiver, ClientError> {
        self.fetch(self.request(Method::POST, &["waivers"]).json(request))
            .await
    }

    /// Ends a waiver early.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn end_waiver(&self, id: Uuid) -> Result<Waiver, ClientError> {
        let request = self.request(Method::DELETE, &["waivers", &id.to_string()]);
        self.fetch(Precondition::Generation(FIRST).apply(request))
            .await
    }
}
