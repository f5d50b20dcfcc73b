//! An approval as returned to readers.

use muster_api::approvals::{Approval, ApprovalState};

use crate::db::approvals::ApprovalRow;
use crate::error::Error;

/// Renders a row.
///
/// # Errors
/// When the row's state is unknown.
pub(crate) fn object(row: ApprovalRow) -> Result<Approval, Error> {
    let state = match row.state.as_str() {
        "open" => ApprovalState::Open,
        "approved" => ApprovalState::Approved,
        "denied" => ApprovalState::Denied,
        other => {
            return Err(Error::internal(anyhow::anyhow!(
                "approval {}: state {other:?}",
                row.id
            )));
        }
    };
    Ok(Approval {
        id: row.id,
        claim: row.claim_name,
        node: row.node_name,
        replaces: row.replaces,
        erase_now: row.erase_now,
        action: row.action.map(|action| action.to_string()),
        reason: row.reason,
        waiver: row.waiver,
        because: row.because,
        requested_by: row.requested_by,
        requested_at: row.requested_at,
        expires_at: row.expires_at,
        state,
        decided_by: row.decided_by,
        operation: row.operation.map(|id| id.0),
    })
}
