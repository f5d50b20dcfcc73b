//! Parts by serial: the nodes of each part, the first and last sighting, and the replacement.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::NodeId;
use muster_core::parts::{Part, PartKind};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::error::Error;

/// A part installed in a node, now or formerly.
#[derive(Clone, Debug)]
pub struct ComponentRow {
    pub id: Uuid,
    pub node: NodeId,
    pub node_name: String,
    pub kind: PartKind,
    pub serial: String,
    pub slot: Option<String>,
    pub model: Option<String>,
    pub first_seen: Timestamp,
    pub last_seen: Timestamp,
    pub replaced_at: Option<jiff_sqlx::Timestamp>,
    pub replaced_by: Option<String>,
    pub replaced_reason: Option<String>,
}

/// Records the parts seen by an inventory. Another serial in a slot marks the former part as
/// replaced. A part seen again is no longer marked, unless a person recorded the replacement.
pub async fn record_parts(
    conn: &mut PgConnection,
    node: NodeId,
    parts: &[Part],
    now: Timestamp,
) -> Result<(), Error> {
    // Ids for new parts. Lists are ordered by id, so parts appear in the order of their first
    // sighting.
    let ids: Vec<Uuid> = parts.iter().map(|_| Uuid::now_v7()).collect();
    let kinds: Vec<String> = parts.iter().map(|part| part.kind.to_string()).collect();
    let serials: Vec<String> = parts.iter().map(|part| part.serial.clone()).collect();
    let slots: Vec<Option<String>> = parts.iter().map(|part| part.slot.clone()).collect();
    let models: Vec<Option<String>> = parts.iter().map(|part| part.model.clone()).collect();
    sqlx::query!(
        "INSERT INTO components AS known (node_id, kind, serial, slot, model, first_seen, last_seen, id)
         SELECT $1, part.kind, part.serial, part.slot, part.model, $6, $6, part.id
         FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $7::uuid[]) AS part (kind, serial, slot, model, id)
         ON CONFLICT (node_id, kind, serial) DO UPDATE SET slot = EXCLUDED.slot, model = COALESCE(EXCLUDED.model, known.model),
             last_seen = GREATEST(known.last_seen, EXCLUDED.last_seen),
             replaced_at = CASE WHEN known.replaced_reason IS NULL THEN NULL ELSE known.replaced_at END,
             replaced_by = CASE WHEN known.replaced_reason IS NULL THEN NULL ELSE known.replaced_by END",
        node as NodeId,
        &kinds,
        &serials,
        &slots as _,
        &models as _,
        now.to_sqlx() as _,
        &ids,
    )
    .execute(&mut *conn)
    .await?;
    sqlx::query!(
        "UPDATE components old SET replaced_at = $2, replaced_by = new.serial
         FROM components new
         WHERE old.node_id = $1 AND new.node_id = $1 AND new.kind = old.kind AND new.slot = old.slot AND new.serial <> old.serial
           AND new.last_seen = $2 AND old.last_seen < $2 AND old.replaced_at IS NULL",
        node as NodeId,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Lists the parts of a node, installed and replaced, at most 4096.
pub async fn list(conn: &mut PgConnection, node: NodeId) -> Result<Vec<ComponentRow>, Error> {
    Ok(sqlx::query_as!(ComponentRow, r#"SELECT c.id, c.node_id AS "node: NodeId", n.name AS node_name, c.kind, c.serial, c.slot, c.model, c.first_seen, c.last_seen,
                  c.replaced_at, c.replaced_by, c.replaced_reason
           FROM components c JOIN nodes n ON n.id = c.node_id WHERE c.node_id = $1
           ORDER BY c.kind, c.slot NULLS LAST, c.first_seen, c.serial LIMIT 4096"#,
        node as NodeId,
    )
    .fetch_all(conn)
    .await?)
}

/// Lists parts by id. Deleted ids are left out.
pub async fn list_by_id(conn: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<ComponentRow>, Error> {
    Ok(sqlx::query_as!(ComponentRow, r#"SELECT c.id, c.node_id AS "node: NodeId", n.name AS node_name, c.kind, c.serial, c.slot, c.model, c.first_seen, c.last_seen,
                  c.replaced_at, c.replaced_by, c.replaced_reason
           FROM components c JOIN nodes n ON n.id = c.node_id WHERE c.id = ANY ($1)"#, ids,)
        .fetch_all(conn)
        .await?)
}

/// A removed part, and the part now in the slot.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'serial> {
    pub kind: PartKind,
    pub old: &'serial str,
    pub new: &'serial str,
}

/// Records a replacement by a person. `false`: the node never had the part.
pub async fn replace(
    conn: &mut PgConnection,
    node: NodeId,
    part: Exchange<'_>,
    reason: &str,
    now: Timestamp,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE components SET replaced_at = $4, replaced_by = $5, replaced_reason = $6 WHERE node_id = $1 AND kind = $2 AND serial = $3",
        node as NodeId,
        part.kind.as_str(),
        part.old,
        now.to_sqlx() as _,
        part.new,
        reason,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Prepares a node for a replaced board or chassis. The pinned BMC certificate and the SMBIOS UUID
/// are cleared and observed again. A declared serial changes to the new one. A declared UUID
/// belongs to the former board and is removed: otherwise every BMC act on the new board would be
/// refused.
///
/// # Errors
/// When another node has the new serial.
pub async fn repin(
    conn: &mut PgConnection,
    node: NodeId,
    old: &str,
    new: &str,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE nodes SET bmc_certificate = NULL, smbios_uuid = NULL,
                serial = CASE WHEN serial = $2 THEN $3 ELSE serial END,
                spec = CASE WHEN serial = $2 THEN jsonb_set(spec, '{serial}', to_jsonb($3::text)) ELSE spec END - 'smbios_uuid',
                generation = generation + CASE WHEN serial = $2 OR spec ? 'smbios_uuid' THEN 1 ELSE 0 END
         WHERE id = $1",
        node as NodeId,
        old,
        new,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Clears the mark of unwiped data, if a person recorded the removal of every disk seen in the
/// node. No tenant's data is then left to wipe. Returns whether the mark was cleared.
pub async fn clear_unsanitised(conn: &mut PgConnection, node: NodeId) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE nodes SET unsanitised = false WHERE id = $1 AND unsanitised
           AND EXISTS (SELECT FROM components c WHERE c.node_id = $1 AND c.kind = 'disk')
           AND NOT EXISTS (SELECT FROM components c WHERE c.node_id = $1 AND c.kind = 'disk' AND c.replaced_at IS NULL)",
        node as NodeId,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Lists contradictions between replacements recorded by a person and later inventories, as
/// sentences (at most 16). New GPUs are not checked. The live image has no GPU driver to read their
/// serials, so the person's record is trusted.
pub async fn list_disputed(conn: &mut PgConnection, node: NodeId) -> Result<Vec<String>, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT CASE WHEN old.last_seen > old.replaced_at
                       THEN old.kind || ' ' || old.serial || ' was replaced by ' || old.replaced_by || ' and is still there'
                       ELSE old.kind || ' ' || old.replaced_by || ', which replaced ' || old.serial || ', was not seen' END AS "told!"
           FROM components old
           WHERE old.node_id = $1 AND old.replaced_reason IS NOT NULL
             AND (old.last_seen > old.replaced_at
                  OR (old.kind <> 'gpu' AND NOT EXISTS (SELECT FROM components new WHERE new.node_id = $1 AND new.kind = old.kind
                                                          AND new.serial = old.replaced_by AND new.last_seen > old.replaced_at)))
           ORDER BY old.kind, old.serial LIMIT 16"#,
        node as NodeId,
    )
    .fetch_all(conn)
    .await?)
}
