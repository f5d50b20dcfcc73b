//! Permits: minted by the engine, redeemed when an agent or a node is about to act.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_api::operations::OperationState;
use muster_core::ids::{ClaimId, JobId, NodeId, OperationId, PermitId};
use muster_core::permits::PermitKind;
use sqlx::PgConnection;

use crate::error::Error;

/// A permit to be minted.
#[derive(Clone, Debug)]
pub struct NewPermit {
    pub id: PermitId,
    pub kind: PermitKind,
    pub node: NodeId,
    pub operation: OperationId,
    pub claim: Option<ClaimId>,
    pub job: JobId,
    pub epoch: i64,
    /// Sorted; `None` for power.
    pub disk_serials: Option<Vec<String>>,
    pub expires_at: Timestamp,
}

/// Writes a permit.
pub async fn insert(conn: &mut PgConnection, permit: &NewPermit) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO permits (id, kind, node_id, operation_id, claim_id, job_id, epoch, disk_serials, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        permit.id as PermitId,
        permit.kind.as_str(),
        permit.node as NodeId,
        permit.operation as OperationId,
        permit.claim as Option<ClaimId>,
        permit.job as JobId,
        permit.epoch,
        permit.disk_serials.as_deref(),
        permit.expires_at.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// A permit with the data deciding whether redemption is allowed, locked.
#[derive(Clone, Debug)]
pub struct PermitRow {
    pub kind: PermitKind,
    pub node: NodeId,
    pub operation: OperationId,
    pub job: JobId,
    pub epoch: i64,
    pub disk_serials: Option<Vec<String>>,
    pub expires_at: Timestamp,
    pub node_protected: bool,
    /// Void because the permit was minted before a restore of the database.
    pub void: bool,
    /// The node's assignment epoch now.
    pub node_epoch: i64,
    pub operation_state: OperationState,
    /// Whether a stop of the operation was requested.
    pub stop: bool,
    /// The permit the job works under now.
    pub job_permit: Option<PermitId>,
    /// The chassis serial from the node's latest facts. `None`: the firmware reports no serial.
    pub chassis_serial: Option<String>,
}

/// Finds a permit and locks it.
pub async fn lock(conn: &mut PgConnection, permit: PermitId) -> Result<Option<PermitRow>, Error> {
    Ok(sqlx::query_as!(
        PermitRow,
        r#"SELECT p.kind, p.node_id AS "node: NodeId", p.operation_id AS "operation: OperationId", p.job_id AS "job: JobId", p.epoch,
                  p.disk_serials, p.expires_at, p.void, n.protected AS node_protected, n.epoch AS node_epoch, o.state AS operation_state,
                  o.cancel_asked_at IS NOT NULL AS "stop!", j.permit_id AS "job_permit: PermitId",
                  (SELECT f.facts -> 'smbios' ->> 'chassis_serial' FROM facts f WHERE f.node_id = n.id ORDER BY f.observed_at DESC LIMIT 1)
                      AS chassis_serial
           FROM permits p JOIN nodes n ON n.id = p.node_id JOIN operations o ON o.id = p.operation_id JOIN jobs j ON j.id = p.job_id
           WHERE p.id = $1 FOR UPDATE OF p"#,
        permit as PermitId,
    )
    .fetch_optional(conn)
    .await?)
}

/// Returns the serials of the disks covered by a permit. Empty for a power permit.
pub async fn find_disks(conn: &mut PgConnection, permit: PermitId) -> Result<Vec<String>, Error> {
    let found = sqlx::query_scalar!(
        "SELECT disk_serials FROM permits WHERE id = $1",
        permit as PermitId
    )
    .fetch_optional(conn)
    .await?;
    Ok(found.flatten().unwrap_or_default())
}

/// Marks a permit as redeemed and counts the redemption.
pub async fn mark(conn: &mut PgConnection, permit: PermitId, now: Timestamp) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE permits SET redeemed_at = COALESCE(redeemed_at, $2), redemptions = redemptions + 1 WHERE id = $1",
        permit as PermitId,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}
