//! Replacements: claims receiving another node. A separate claim holds the new node until it is in
//! service and names the claim to be served. Then the two claims swap their nodes.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_api::operations::OperationState;
use muster_core::claims::ClaimState;
use muster_core::ids::{ClaimId, NodeId, OperationId, RevisionId};
use muster_core::lifecycle::state::State;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::error::Error;

/// A claim, its current node, and the new node prepared for the claim.
#[derive(Clone, Debug)]
pub struct Replacement {
    /// The claim holding the new node.
    pub coming: ClaimId,
    pub coming_name: String,
    pub coming_node: NodeId,
    pub coming_node_name: String,
    pub coming_state: State,
    pub coming_epoch: i64,
    /// The current or latest operation of the new node.
    pub coming_operation: Option<OperationId>,
    /// The claim receiving the new node.
    pub claim: ClaimId,
    pub claim_name: String,
    /// The old node.
    pub node: NodeId,
    pub node_name: String,
    pub node_epoch: i64,
    /// The current or latest operation of the old node.
    pub node_operation: Option<OperationId>,
    /// Seconds for which the pool keeps the disks of a released node, if declared.
    pub undo_window_s: Option<i64>,
    /// The operation of the replacement.
    pub operation: OperationId,
    pub operation_state: OperationState,
    pub actor: String,
    pub request_id: Option<String>,
    /// A stop of the operation was requested.
    pub stop: bool,
}

/// A node entering or leaving a claim.
#[derive(Clone, Debug)]
pub struct ChangeRow {
    /// The claim receiving the new node.
    pub replaces: ClaimId,
    pub claim: String,
    pub state: ClaimState,
    pub node: String,
    pub node_state: State,
    pub operation: Option<OperationId>,
    pub undo_until: Option<jiff_sqlx::Timestamp>,
}

/// Locks both nodes of a replacement ready to continue: the new node is in service, or the
/// operation has ended. Replacements with a node locked by another transaction are skipped. Returns
/// the id of the claim holding the new node.
pub async fn lock_settled(conn: &mut PgConnection) -> Result<Option<ClaimId>, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT s.id AS "id: ClaimId"
           FROM claims s JOIN claims c ON c.id = s.replaces JOIN nodes coming ON coming.id = s.node_id JOIN nodes going ON going.id = c.node_id
           WHERE s.state = 'bound'
             AND (coming.state = 'in_service'
                  OR NOT EXISTS (SELECT FROM operations o WHERE o.node_id = s.node_id AND o.kind = 'replace' AND o.finished_at IS NULL))
           ORDER BY random() LIMIT 1 FOR UPDATE OF coming, going SKIP LOCKED"#
    )
    .fetch_optional(conn)
    .await?)
}

/// Returns the replacement of the claim holding the new node. `None`: the claim is not a bound
/// claim of a replacement.
pub async fn find(conn: &mut PgConnection, coming: ClaimId) -> Result<Option<Replacement>, Error> {
    Ok(sqlx::query_as!(
        Replacement,
        r#"SELECT s.id AS "coming!: ClaimId", s.name AS "coming_name!", s.node_id AS "coming_node!: NodeId", cn.name AS "coming_node_name!",
                  cn.state AS "coming_state!", cn.epoch AS "coming_epoch!", cn.operation_id AS "coming_operation?: OperationId",
                  c.id AS "claim!: ClaimId", c.name AS "claim_name!", c.node_id AS "node!: NodeId", gn.name AS "node_name!",
                  gn.epoch AS "node_epoch!", gn.operation_id AS "node_operation?: OperationId",
                  (p.spec ->> 'undo_window_s')::bigint AS "undo_window_s?", o.id AS "operation!: OperationId", o.state AS "operation_state!",
                  o.actor AS "actor!", o.request_id AS "request_id?", o.cancel_asked_at IS NOT NULL AS "stop!"
           FROM claims s JOIN claims c ON c.id = s.replaces JOIN nodes cn ON cn.id = s.node_id JOIN nodes gn ON gn.id = c.node_id
                JOIN objects p ON p.id = c.pool_id
                JOIN LATERAL (SELECT * FROM operations o WHERE o.node_id = s.node_id AND o.kind = 'replace' AND o.claim_id = c.id
                              ORDER BY o.id DESC LIMIT 1) o ON true
           WHERE s.id = $1 AND s.state = 'bound'"#,
        coming as ClaimId,
    )
    .fetch_optional(conn)
    .await?)
}

/// Returns the claim holding the new node for a claim, and the new node.
pub async fn find_coming(
    conn: &mut PgConnection,
    claim: ClaimId,
) -> Result<Option<(ClaimId, NodeId)>, Error> {
    let row = sqlx::query!(
        r#"SELECT id AS "id: ClaimId", node_id AS "node: NodeId" FROM claims WHERE replaces = $1 AND state = 'bound'"#,
        claim as ClaimId,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| (row.id, row.node)))
}

/// Returns the names of the claim served by a `replace` operation and of its current node.
pub async fn find_replaced(
    conn: &mut PgConnection,
    coming: ClaimId,
    operation: OperationId,
) -> Result<Option<(String, String)>, Error> {
    let row = sqlx::query!(
        "SELECT c.name AS claim, n.name AS node FROM claims s JOIN claims c ON c.id = s.replaces JOIN nodes n ON n.id = c.node_id
         WHERE s.id = $1 AND s.state = 'bound' AND EXISTS (SELECT FROM operations o WHERE o.id = $2 AND o.kind = 'replace')",
        coming as ClaimId,
        operation as OperationId,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| (row.claim, row.node)))
}

/// Lists the nodes entering or leaving the claims, the oldest replacement first.
pub async fn list(conn: &mut PgConnection, claims: &[Uuid]) -> Result<Vec<ChangeRow>, Error> {
    Ok(sqlx::query_as!(
        ChangeRow,
        r#"SELECT s.replaces AS "replaces!: ClaimId", s.name AS claim, s.state, n.name AS node, n.state AS node_state,
                  n.operation_id AS "operation: OperationId", s.undo_until
           FROM claims s JOIN nodes n ON n.id = s.node_id WHERE s.replaces = ANY ($1) AND s.state <> 'released' ORDER BY s.id"#,
        claims,
    )
    .fetch_all(conn)
    .await?)
}

/// Swaps the nodes of two claims. The claim markers written on the disks and the installed
/// revisions stay with the nodes, so each claim stores those of the other. The caller holds the locks of both nodes.
pub async fn swap(conn: &mut PgConnection, one: &Replacement, now: Timestamp) -> Result<(), Error> {
    let before = sqlx::query!(
        r#"SELECT c.epoch AS claim_epoch, COALESCE(c.marker, c.id) AS "claim_marker!: ClaimId", s.epoch AS coming_epoch,
                  COALESCE(s.marker, s.id) AS "coming_marker!: ClaimId",
                  c.assigned_id AS "claim_assigned: RevisionId", c.imaged_id AS "claim_imaged: RevisionId", c.running_id AS "claim_running: RevisionId",
                  s.assigned_id AS "coming_assigned: RevisionId", s.imaged_id AS "coming_imaged: RevisionId", s.running_id AS "coming_running: RevisionId"
           FROM claims c JOIN claims s ON s.replaces = c.id WHERE c.id = $1 AND s.id = $2"#,
        one.claim as ClaimId,
        one.coming as ClaimId,
    )
    .fetch_one(&mut *conn)
    .await?;
    // A node has one owner at every moment. The claim holding the new node is released first, and
    // is bound again to the old node after the other claim has moved.
    sqlx::query!(
        "UPDATE claims SET state = 'released', released_at = $2 WHERE id = $1",
        one.coming as ClaimId,
        now.to_sqlx() as _
    )
    .execute(&mut *conn)
    .await?;
    sqlx::query!(
        "UPDATE claims SET node_id = $2, epoch = $3, marker = $4, updated_at = $5, assigned_id = $6, imaged_id = $7, running_id = $8,
                written_off_until = NULL, written_off_reason = NULL, written_off_by = NULL WHERE id = $1",
        one.claim as ClaimId,
        one.coming_node as NodeId,
        before.coming_epoch,
        before.coming_marker as ClaimId,
        now.to_sqlx() as _,
        before.coming_assigned as Option<RevisionId>,
        before.coming_imaged as Option<RevisionId>,
        before.coming_running as Option<RevisionId>,
    )
    .execute(&mut *conn)
    .await?;
    sqlx::query!(
        "UPDATE claims SET node_id = $2, epoch = $3, marker = $4, updated_at = $5, state = 'bound', released_at = NULL,
                spec = jsonb_set(spec, '{node}', to_jsonb($6::text)), assigned_id = $7, imaged_id = $8, running_id = $9
         WHERE id = $1",
        one.coming as ClaimId,
        one.node as NodeId,
        before.claim_epoch,
        before.claim_marker as ClaimId,
        now.to_sqlx() as _,
        one.node_name,
        before.claim_assigned as Option<RevisionId>,
        before.claim_imaged as Option<RevisionId>,
        before.claim_running as Option<RevisionId>,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Ends the replacement of a claim holding a new node. The claim continues independently.
pub async fn let_go(conn: &mut PgConnection, coming: ClaimId, now: Timestamp) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE claims SET replaces = NULL, updated_at = $2 WHERE id = $1",
        coming as ClaimId,
        now.to_sqlx() as _
    )
    .execute(conn)
    .await?;
    Ok(())
}
