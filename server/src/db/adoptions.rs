//! Machines under adoption, with the parameters of the request. A row exists until the adoption has
//! finished.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::claims::WaitFor;
use muster_core::ids::{ClaimId, NodeId, ObjectId};
use serde_json::json;
use sqlx::PgConnection;

use crate::db::claims::NewClaim;
use crate::error::Error;

/// The parameters of an adoption request.
#[derive(Clone, Debug)]
pub struct Adoption {
    pub node: NodeId,
    /// The claim that will hold the node. The marker on the machine names the claim id before the
    /// claim exists.
    pub claim: ClaimId,
    pub claim_name: String,
    pub pool: ObjectId,
    pub pool_name: String,
    pub credential: ObjectId,
    /// The fingerprint of the SSH host key confirmed by a person.
    pub host_key: Option<String>,
    pub actor: String,
}

/// Stores the parameters of an adoption. A second request for the same node replaces the first.
pub async fn set(
    conn: &mut PgConnection,
    adoption: &Adoption,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO adoptions (node_id, claim_id, claim_name, pool_id, credential_id, host_key, actor, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
         ON CONFLICT (node_id) DO UPDATE SET claim_id = $2, claim_name = $3, pool_id = $4, credential_id = $5, host_key = $6, actor = $7,
             created_at = $8",
        adoption.node as NodeId,
        adoption.claim as ClaimId,
        adoption.claim_name,
        adoption.pool as ObjectId,
        adoption.credential as ObjectId,
        adoption.host_key,
        adoption.actor,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns the parameters of a node's adoption.
pub async fn find(conn: &mut PgConnection, node: NodeId) -> Result<Option<Adoption>, Error> {
    Ok(sqlx::query_as!(
        Adoption,
        r#"SELECT a.node_id AS "node: NodeId", a.claim_id AS "claim: ClaimId", a.claim_name, a.pool_id AS "pool: ObjectId",
                  p.name AS pool_name, a.credential_id AS "credential: ObjectId", a.host_key, a.actor
           FROM adoptions a JOIN objects p ON p.id = a.pool_id WHERE a.node_id = $1"#,
        node as NodeId,
    )
    .fetch_optional(conn)
    .await?)
}

/// Lists the names of credentials usable for the first login to a machine: purpose `adopt`, secret
/// not yet deleted.
pub async fn list_credentials(conn: &mut PgConnection, limit: i64) -> Result<Vec<String>, Error> {
    Ok(sqlx::query_scalar!(
        "SELECT o.name FROM objects o JOIN secrets s ON s.object_id = o.id
         WHERE o.kind = 'credential' AND o.spec ->> 'purpose' = 'adopt' ORDER BY o.name LIMIT $1",
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// Finishes the adoption of a node and returns the name of the new claim. The node becomes
/// protected and is marked as holding data. The secret of the first login is deleted. `None`: the
/// node has no adoption.
///
/// # Errors
/// When the name of the claim is taken.
pub async fn finish(
    conn: &mut PgConnection,
    node: NodeId,
    name: &str,
    epoch: i64,
    now: Timestamp,
) -> Result<Option<String>, Error> {
    let Some(adoption) = find(conn, node).await? else {
        return Ok(None);
    };
    let claim = NewClaim {
        id: adoption.claim,
        name: adoption.claim_name.clone(),
        spec: json!({ "pool": adoption.pool_name, "node": name }),
        wait_for: WaitFor::default(),
        hold: false,
        replaces: None,
        replica: false,
        node,
        pool: adoption.pool,
        epoch,
        actor: adoption.actor,
        now,
    };
    crate::db::claims::insert(conn, &claim).await?;
    sqlx::query!(
        "UPDATE nodes SET adopted = true, unsanitised = true, protected = true, generation = generation + 1, updated_at = $2,
                spec = jsonb_set(spec, '{protected}', 'true')
         WHERE id = $1",
        node as NodeId,
        now.to_sqlx() as _,
    )
    .execute(&mut *conn)
    .await?;
    super::keys::remove_secret(conn, adoption.credential).await?;
    sqlx::query!("DELETE FROM adoptions WHERE node_id = $1", node as NodeId)
        .execute(conn)
        .await?;
    Ok(Some(adoption.claim_name))
}
