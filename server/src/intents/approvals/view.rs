//! An approval as returned to readers.

use muster_api::approvals::Approval;

use crate::db::approvals::ApprovalRow;

/// Renders a row.
pub(crate) fn object(row: ApprovalRow) -> Approval {
    Approval {
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
        state: row.state,
        decided_by: row.decided_by,
        operation: row.operation.map(|id| id.0),
    }
}
