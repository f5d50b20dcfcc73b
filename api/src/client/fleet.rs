//! Calls about the fleet as a whole: plans, racks, caution mode, the audit chain, breakers.

use http::Method;
use uuid::Uuid;

use super::{Client, ClientError};
use crate::audit::AuditHead;
use crate::break_glass::BreakGlass;
use crate::cautions::{CautionStatus, ConfirmCaution};
use crate::plans::{MakePlan, Plan};
use crate::racks::Cabling;
use crate::recoveries::Breaker;

impl Client {
    /// Returns the effects of a write of these objects, without a change.
    ///
    /// # Errors
    /// 422 for a kind that does not exist; see [`ClientError`].
    pub async fn plan(&self, objects: &MakePlan) -> Result<Plan, ClientError> {
        self.fetch(self.request(Method::POST, &["plan"]).json(objects))
            .await
    }

    /// Returns the observed places of the declared cables of a rack.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn rack_cabling(&self, rack: &str) -> Result<Cabling, ClientError> {
        self.fetch(self.request(Method::GET, &["racks", rack, "cabling"]))
            .await
    }

    /// Returns whether the fleet is in caution mode, and why.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn caution(&self) -> Result<CautionStatus, ClientError> {
        self.fetch(self.request(Method::GET, &["caution"])).await
    }

    /// Ends caution mode.
    ///
    /// # Errors
    /// 409 when another caution holds; see [`ClientError`].
    pub async fn confirm_caution(
        &self,
        request: &ConfirmCaution,
    ) -> Result<CautionStatus, ClientError> {
        self.fetch(
            self.request(Method::POST, &["caution", "confirm"])
                .json(request),
        )
        .await
    }

    /// Returns the newest seal of the event history.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn audit_head(&self) -> Result<AuditHead, ClientError> {
        self.fetch(self.request(Method::GET, &["audit"])).await
    }

    /// Returns whether the local administrator may sign in.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn break_glass(&self) -> Result<BreakGlass, ClientError> {
        self.fetch(self.request(Method::GET, &["break-glass"]))
            .await
    }

    /// Closes an open breaker.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn reset_breaker(&self, id: Uuid) -> Result<Breaker, ClientError> {
        self.fetch(self.request(Method::POST, &["breakers", &id.to_string(), "reset"]))
            .await
    }
}
