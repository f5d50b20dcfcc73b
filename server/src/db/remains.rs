//! Remains of deleted nodes: the data on disks, the highest epoch and an adoption, with the
//! identifiers of the machine and of its disks.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::{ClaimId, NodeId};
use muster_core::parts::PartKind;
use muster_core::remains::Identifiers;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::error::Error;

/// The identity of a node, as declared and as seen by the live image.
#[derive(Clone, Debug)]
pub struct Identity {
    pub serial: Option<String>,
    pub smbios_uuid: Option<Uuid>,
    pub seen_serial: Option<String>,
    pub seen_uuid: Option<String>,
}

/// A part with a serial.
#[derive(Clone, Debug)]
pub struct Part {
    pub kind: PartKind,
    pub serial: String,
}

/// Remains of a deleted node.
#[derive(Clone, Debug)]
pub struct RemainsRow {
    pub id: Uuid,
    pub node: NodeId,
    pub node_name: String,
    pub left_at: Timestamp,
    pub unsanitised: bool,
    pub reason: Option<String>,
    pub epoch: i64,
    pub adopted: bool,
    /// The machine was recognised, rather than only a disk.
    pub is_machine: bool,
    /// The kind and value of the identifier that was shown.
    pub shown: String,
}

/// Whether the disks of a node may hold data, with the reason of the node's state.
#[derive(Clone, Debug)]
pub struct Sanitation {
    pub unsanitised: bool,
    pub reason: Option<String>,
}

/// Returns the sanitation of a node. The caller holds the row's lock.
pub async fn find_sanitation(conn: &mut PgConnection, node: NodeId) -> Result<Sanitation, Error> {
    Ok(sqlx::query_as!(
        Sanitation,
        "SELECT unsanitised, reason FROM nodes WHERE id = $1",
        node as NodeId
    )
    .fetch_one(conn)
    .await?)
}

/// Returns the identity of a node. Facts of the live image come before facts of an installed
/// system, because a tenant controls the latter.
pub async fn find_identity(conn: &mut PgConnection, node: NodeId) -> Result<Identity, Error> {
    Ok(sqlx::query_as!(
        Identity,
        r#"SELECT n.serial, n.smbios_uuid, f.facts #>> '{smbios,serial}' AS "seen_serial?", f.facts #>> '{smbios,uuid}' AS "seen_uuid?"
           FROM nodes n LEFT JOIN LATERAL (
                  SELECT facts FROM facts WHERE node_id = n.id
                  ORDER BY source = 'live' DESC, CASE WHEN source = 'live' THEN observed_at END DESC, observed_at, id LIMIT 1) f ON true
           WHERE n.id = $1"#,
        node as NodeId,
    )
    .fetch_one(conn)
    .await?)
}

/// Lists the chassis, boards, interfaces and disks of a node. `present`: only parts of the newest
/// inventory. Otherwise also parts that no later inventory has seen. Parts reported by the system
/// of a tenant are left out, and parts that another node has shown since, except disks.
pub async fn list_parts(
    conn: &mut PgConnection,
    node: NodeId,
    present: bool,
) -> Result<Vec<Part>, Error> {
    Ok(sqlx::query_as!(
        Part,
        "SELECT c.kind, c.serial FROM components c JOIN nodes n ON n.id = c.node_id
         WHERE n.id = $1 AND c.replaced_at IS NULL AND c.kind IN ('chassis', 'board', 'nic', 'disk')
           AND (NOT $2 OR c.last_seen >= (SELECT max(f.observed_at) FROM facts f WHERE f.node_id = n.id))
           AND (n.live_host_key IS NOT NULL OR NOT EXISTS (SELECT FROM claims held WHERE held.node_id = n.id AND held.state <> 'released'))
           AND (c.kind = 'disk' OR NOT EXISTS (SELECT FROM components later WHERE later.serial = c.serial AND later.kind = c.kind
                                                  AND later.node_id <> c.node_id AND later.last_seen > c.last_seen))
         ORDER BY c.kind, c.serial LIMIT 4096",
        node as NodeId,
        present,
    )
    .fetch_all(conn)
    .await?)
}

/// Writes the remains of a node about to be deleted. `None`: the node has left none. Otherwise
/// returns whether the disks may hold data. `claim` is the claim of the disks' marker.
pub async fn insert(
    conn: &mut PgConnection,
    id: Uuid,
    node: NodeId,
    claim: Option<ClaimId>,
    now: Timestamp,
) -> Result<Option<bool>, Error> {
    Ok(sqlx::query_scalar!(
        "INSERT INTO remains (id, node_id, node_name, left_at, unsanitised, reason, epoch, adopted, claim_id)
         SELECT $1, n.id, n.name, $3, n.unsanitised,
                CASE WHEN n.unsanitised THEN COALESCE((SELECT r.reason FROM remains_heirs h JOIN remains r ON r.id = h.remains_id
                                                       WHERE h.node_id = n.id AND r.unsanitised
                                                       ORDER BY h.merged_at DESC, r.id DESC LIMIT 1), n.reason) END,
                GREATEST(n.epoch, (SELECT max(r.epoch) FROM remains_heirs h JOIN remains r ON r.id = h.remains_id WHERE h.node_id = n.id)),
                n.adopted, $4
         FROM nodes n WHERE n.id = $2 AND (n.unsanitised OR n.epoch > 0 OR n.adopted)
         RETURNING unsanitised",
        id,
        node as NodeId,
        now.to_sqlx() as _,
        claim as Option<ClaimId>,
    )
    .fetch_optional(conn)
    .await?)
}

/// Writes the remains of a disk that a person has taken out of a node with data on the disks.
/// `false`: the disks of the node are clean, or the disk is known.
pub async fn insert_disk(
    conn: &mut PgConnection,
    id: Uuid,
    node: NodeId,
    disk: &str,
    reason: &str,
    claim: Option<ClaimId>,
    now: Timestamp,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "INSERT INTO remains (id, node_id, node_name, left_at, unsanitised, reason, epoch, adopted, claim_id)
         SELECT $1, n.id, n.name, $3, true, $4, n.epoch, false, $5
         FROM nodes n WHERE n.id = $2 AND n.unsanitised
           AND NOT EXISTS (SELECT FROM remains r JOIN remains_identifiers i ON i.remains_id = r.id
                           WHERE r.node_id = n.id AND i.kind = 'disk' AND i.value = $6)",
        id,
        node as NodeId,
        now.to_sqlx() as _,
        reason,
        claim as Option<ClaimId>,
        disk,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Adds identifiers to remains.
pub async fn add_identifiers(
    conn: &mut PgConnection,
    id: Uuid,
    shown: &Identifiers,
) -> Result<(), Error> {
    let (kinds, values) = (shown.kinds(), shown.values());
    sqlx::query!(
        "INSERT INTO remains_identifiers (remains_id, kind, value)
         SELECT $1, shown.kind, shown.value FROM unnest($2::text[], $3::text[]) AS shown (kind, value) ON CONFLICT DO NOTHING",
        id,
        &kinds,
        &values,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Moves the identifiers of earlier remains of the same machine into the node's own remains, and
/// deletes the earlier. Remains that another node took over too stay. Remains of data stay apart
/// from a clean node, and remains of another machine stay apart: a single disk of that machine was
/// moved.
pub async fn absorb(conn: &mut PgConnection, id: Uuid, node: NodeId) -> Result<(), Error> {
    sqlx::query!(
        "WITH gone AS (
             DELETE FROM remains r USING remains own, remains_heirs h
             WHERE own.id = $1 AND h.node_id = $2 AND r.id = h.remains_id AND (own.unsanitised OR NOT r.unsanitised)
               AND EXISTS (SELECT FROM remains_identifiers mine JOIN remains_identifiers same ON same.kind = mine.kind AND same.value = mine.value
                           WHERE mine.remains_id = own.id AND same.remains_id = r.id AND same.kind <> 'disk')
               AND NOT EXISTS (SELECT FROM remains_heirs other WHERE other.remains_id = r.id AND other.node_id <> $2)
             RETURNING r.id)
         INSERT INTO remains_identifiers (remains_id, kind, value)
         SELECT $1, i.kind, i.value FROM gone, remains_identifiers i WHERE i.remains_id = gone.id ON CONFLICT DO NOTHING",
        id,
        node as NodeId,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Lists the nodes that have shown a disk of the remains later than the node of the remains, which
/// still has parts.
pub async fn list_holders(
    conn: &mut PgConnection,
    id: Uuid,
    node: NodeId,
) -> Result<Vec<NodeId>, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT DISTINCT c.node_id AS "node: NodeId"
           FROM components own JOIN components c ON c.serial = own.serial AND c.kind = own.kind AND c.node_id <> own.node_id
           WHERE own.node_id = $2 AND own.kind = 'disk' AND c.replaced_at IS NULL AND c.last_seen > own.last_seen
             AND EXISTS (SELECT FROM remains_identifiers i WHERE i.remains_id = $1 AND i.kind = 'disk')
           ORDER BY c.node_id"#,
        id,
        node as NodeId,
    )
    .fetch_all(conn)
    .await?)
}

/// Finds the remains with a shown identifier that the node has not taken over. A disk counts while
/// the disk may hold data. The remains cannot be deleted until the transaction ends.
pub async fn find(
    conn: &mut PgConnection,
    node: NodeId,
    shown: &Identifiers,
) -> Result<Vec<RemainsRow>, Error> {
    let (kinds, values) = (shown.kinds(), shown.values());
    Ok(sqlx::query_as!(
        RemainsRow,
        r#"SELECT r.id, r.node_id AS "node: NodeId", r.node_name, r.left_at, r.unsanitised, r.reason, r.epoch, r.adopted,
                  i.kind <> 'disk' AS "is_machine!", i.kind || ' ' || i.value AS "shown!"
           FROM remains r CROSS JOIN LATERAL (
                  SELECT known.kind, known.value FROM remains_identifiers known
                  JOIN unnest($2::text[], $3::text[]) AS shown (kind, value) ON known.kind = shown.kind AND known.value = shown.value
                  WHERE known.remains_id = r.id AND (known.kind <> 'disk' OR r.unsanitised)
                  ORDER BY known.kind = 'disk', known.kind, known.value LIMIT 1) AS i
           WHERE r.id IN (SELECT known.remains_id FROM remains_identifiers known
                          JOIN unnest($2::text[], $3::text[]) AS shown (kind, value) ON known.kind = shown.kind AND known.value = shown.value)
             AND NOT EXISTS (SELECT FROM remains_heirs h WHERE h.remains_id = r.id AND h.node_id = $1)
           ORDER BY r.id FOR KEY SHARE OF r"#,
        node as NodeId,
        &kinds,
        &values,
    )
    .fetch_all(conn)
    .await?)
}

/// Merges remains into a node, and records the node as heir. The epoch of a claimed node stays,
/// because permits and the marker of the claim name the epoch.
pub async fn merge(
    conn: &mut PgConnection,
    node: NodeId,
    remains: &RemainsRow,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE nodes n SET unsanitised = n.unsanitised OR $2,
                epoch = CASE WHEN held.claimed THEN n.epoch ELSE GREATEST(n.epoch, $3) END,
                adopted = n.adopted OR ($4 AND NOT held.claimed),
                due_at = LEAST(COALESCE(n.due_at, $5), $5)
         FROM (SELECT EXISTS (SELECT FROM claims c WHERE c.node_id = $1 AND c.state <> 'released') AS claimed) AS held
         WHERE n.id = $1",
        node as NodeId,
        remains.unsanitised,
        remains.epoch,
        remains.adopted && remains.is_machine,
        now.to_sqlx() as _,
    )
    .execute(&mut *conn)
    .await?;
    add_heir(conn, remains.id, node, now).await
}

/// Records a node as heir of remains.
pub async fn add_heir(
    conn: &mut PgConnection,
    id: Uuid,
    node: NodeId,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO remains_heirs (remains_id, node_id, merged_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
        id,
        node as NodeId,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Removes wiped disks from all remains.
pub async fn forget_disks(conn: &mut PgConnection, wiped: &Identifiers) -> Result<(), Error> {
    let (kinds, values) = (wiped.kinds(), wiped.values());
    sqlx::query!(
        "DELETE FROM remains_identifiers i USING unnest($1::text[], $2::text[]) AS wiped (kind, value)
         WHERE i.kind = 'disk' AND wiped.kind = 'disk' AND i.value = wiped.value",
        &kinds,
        &values,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Ends the data in remains that a clean node took over, if every disk of the remains was wiped.
/// Remains with a disk elsewhere stay. Remains without a further reason are deleted.
pub async fn settle(conn: &mut PgConnection, node: NodeId) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE remains r SET unsanitised = false, reason = NULL FROM remains_heirs h
         WHERE h.remains_id = r.id AND h.node_id = $1 AND r.unsanitised
           AND NOT EXISTS (SELECT FROM remains_identifiers i WHERE i.remains_id = r.id AND i.kind = 'disk')",
        node as NodeId,
    )
    .execute(&mut *conn)
    .await?;
    sqlx::query!(
        "DELETE FROM remains r USING remains_heirs h
         WHERE h.remains_id = r.id AND h.node_id = $1 AND NOT r.unsanitised
           AND (r.epoch = 0 AND NOT r.adopted OR NOT EXISTS (SELECT FROM remains_identifiers i WHERE i.remains_id = r.id))",
        node as NodeId,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Removes the identifiers of a clean machine from remains of data: the data is on disks elsewhere,
/// and the machine is not marked again.
pub async fn forget_machine(
    conn: &mut PgConnection,
    node: NodeId,
    shown: &Identifiers,
) -> Result<(), Error> {
    let (kinds, values) = (shown.kinds(), shown.values());
    sqlx::query!(
        "DELETE FROM remains_identifiers i USING remains r, remains_heirs h, unnest($2::text[], $3::text[]) AS shown (kind, value)
         WHERE h.node_id = $1 AND r.id = h.remains_id AND r.unsanitised AND i.remains_id = r.id
           AND i.kind <> 'disk' AND i.kind = shown.kind AND i.value = shown.value",
        node as NodeId,
        &kinds,
        &values,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Data left on disks, as a deleted node has left.
#[derive(Clone, Debug)]
pub struct DataLeft {
    pub node_name: String,
    pub left_at: Timestamp,
    pub reason: Option<String>,
}

/// Returns the latest remains with data on the disks that a node took over.
pub async fn find_data_left(
    conn: &mut PgConnection,
    node: NodeId,
) -> Result<Option<DataLeft>, Error> {
    Ok(sqlx::query_as!(
        DataLeft,
        "SELECT r.node_name, r.left_at, r.reason FROM remains_heirs h JOIN remains r ON r.id = h.remains_id
         WHERE h.node_id = $1 AND r.unsanitised ORDER BY h.merged_at DESC, r.id DESC LIMIT 1",
        node as NodeId,
    )
    .fetch_optional(conn)
    .await?)
}

/// Remains with data on disks, for a report.
#[derive(Clone, Debug)]
pub struct WaitingRow {
    pub node_name: String,
    pub left_at: Timestamp,
    /// Kind and value of each identifier, separated by commas.
    pub identifiers: String,
}

/// Lists remains with data on the disks, the oldest first.
pub async fn list_waiting(conn: &mut PgConnection, limit: i64) -> Result<Vec<WaitingRow>, Error> {
    Ok(sqlx::query_as!(
        WaitingRow,
        r#"SELECT r.node_name, r.left_at,
                  COALESCE((SELECT string_agg(i.kind || ' ' || i.value, ', ' ORDER BY i.kind, i.value)
                            FROM remains_identifiers i WHERE i.remains_id = r.id), '') AS "identifiers!"
           FROM remains r WHERE r.unsanitised ORDER BY r.left_at, r.id LIMIT $1"#,
        limit,
    )
    .fetch_all(conn)
    .await?)
}
