//! Claims as returned to readers: the client's spec, and the status with the server's choices and
//! observations.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_api::claims::{ClaimChange, ClaimSpec, ClaimStatus};
use muster_api::disruption::WrittenOff;
use muster_api::object::{Labels, Object};
use muster_core::claims::{ClaimState, Standing, standing};
use muster_core::ids::ClaimId;
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::db::claims::ClaimRow;
use crate::db::replacements::ChangeRow;
use crate::error::Error;
use crate::{db, document};

/// A claim as returned by the API: the spec as stored JSON, and the status.
pub(crate) type ClaimObject = Object<Value, ClaimStatus>;

/// Loads one claim by name or id.
///
/// # Errors
/// 404, or the error of the database.
pub(crate) async fn load(conn: &mut PgConnection, key: &str) -> Result<ClaimObject, Error> {
    let missing = || Error::NotFound(format!("claim {key:?}"));
    let row = db::claims::find(conn, key).await?.ok_or_else(missing)?;
    objects(conn, vec![row]).await?.pop().ok_or_else(missing)
}

/// Renders claims, each with its arriving replacement and its leaving nodes.
///
/// # Errors
/// When the database fails or a row is impossible.
pub(crate) async fn objects(
    conn: &mut PgConnection,
    rows: Vec<ClaimRow>,
) -> Result<Vec<ClaimObject>, Error> {
    let ids: Vec<Uuid> = rows.iter().map(|row| row.id.0).collect();
    let mut changes: BTreeMap<ClaimId, Vec<ChangeRow>> = BTreeMap::new();
    for change in db::replacements::list(conn, &ids).await? {
        changes.entry(change.replaces).or_default().push(change);
    }
    rows.into_iter()
        .map(|row| {
            let own = changes.remove(&row.id).unwrap_or_default();
            object(row, own)
        })
        .collect()
}

fn object(row: ClaimRow, changes: Vec<ChangeRow>) -> Result<ClaimObject, Error> {
    let (state, wait_for, node_state) = (row.state, row.wait_for, row.node_state);
    let stands = standing(wait_for, state, node_state);
    let (coming, leaving): (Vec<ChangeRow>, Vec<ChangeRow>) = changes
        .into_iter()
        .partition(|row| row.state == ClaimState::Bound);
    let of_pool = |name: &str| row.pool_spec[name].as_str().unwrap_or_default().to_owned();
    let status = ClaimStatus {
        state,
        ready: stands == Standing::Ready,
        stuck: stands == Standing::Stuck,
        epoch: row.epoch,
        released_at: row.released_at.map(|at| at.to_jiff()),
        undo_until: row
            .undo_until
            .filter(|_| state == ClaimState::Releasing)
            .map(|at| at.to_jiff()),
        // After the release, the node's operation belongs to another claim.
        operation: row
            .operation
            .filter(|_| state != ClaimState::Released)
            .map(|id| id.0),
        replacement: coming.into_iter().next().map(change),
        leaving: leaving.into_iter().map(change).collect(),
        effective_wait_for: wait_for.as_str().to_owned(),
        effective_hold: row.hold,
        written_off: written_off(
            row.written_off_until.map(|at| at.to_jiff()),
            row.written_off_reason,
            row.written_off_by,
        ),
        revision: row.revision,
        running_revision: row.running,
        effective_image: row.image.unwrap_or_else(|| of_pool("image")),
        effective_stack: row.stack.unwrap_or_else(|| of_pool("stack")),
        effective_suite: of_pool("suite"),
        effective_cluster: of_pool("cluster"),
        replaces: row.replaces,
        replica: row.replica,
        node: row.node_name,
        node_state: row.node_state.to_string(),
    };
    Ok(Object {
        id: row.id.0,
        link: format!("/v1/claims/{}", row.name),
        name: row.name.parse().map_err(Error::internal)?,
        labels: Labels::new(),
        annotations: Labels::new(),
        spec_faults: document::spec_faults::<ClaimSpec>(&row.spec),
        spec: row.spec,
        status,
        generation: row.generation,
        created_at: row.created_at,
        updated_at: row.updated_at,
    })
}

/// Builds the write-off from its columns.
pub(crate) fn written_off(
    until: Option<Timestamp>,
    reason: Option<String>,
    by: Option<String>,
) -> Option<WrittenOff> {
    Some(WrittenOff {
        until: until?,
        reason: reason?,
        by: by?,
    })
}

fn change(row: ChangeRow) -> ClaimChange {
    ClaimChange {
        node: row.node,
        node_state: row.node_state.to_string(),
        claim: row.claim,
        operation: row.operation.map(|id| id.0),
        undo_until: row.undo_until.map(|at| at.to_jiff()),
    }
}
