//! Remains of deleted nodes. A deletion keeps the memory of a machine: data on the disks, the
//! highest epoch, an adoption. The next record of the machine, or of a disk with data, takes the
//! memory over before a claim can take the node.

use jiff::Timestamp;
use muster_core::ids::{NodeId, PermitId};
use muster_core::parts::PartKind;
use muster_core::remains::Identifiers;
use muster_core::values::Mac;
use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::db;
use crate::db::events::NewEvent;
use crate::db::remains::{Identity, RemainsRow};
use crate::error::Error;

/// Writes the remains of a node, in the transaction of the deletion and before the rows are gone.
///
/// # Errors
/// When the database fails.
pub(crate) async fn keep(
    conn: &mut PgConnection,
    node: NodeId,
    now: Timestamp,
) -> Result<(), Error> {
    let claim = db::specs::find_last_claim(conn, node).await?;
    let id = Uuid::now_v7();
    let Some(unsanitised) = db::remains::insert(conn, id, node, claim, now).await? else {
        return Ok(());
    };
    let mut shown = collect(conn, node, false).await?;
    if !unsanitised {
        shown.drop_disks();
    }
    db::remains::add_identifiers(conn, id, &shown).await?;
    // A disk may have moved while the record was there. The present holder may be claimable.
    for holder in db::remains::list_holders(conn, id, node).await? {
        merge(conn, holder, "muster", now).await?;
    }
    db::remains::absorb(conn, id, node).await
}

/// Writes the remains of a machine that a node no longer declares. `before` holds the identifiers
/// declared before the write. A node with other MACs and another serial is another machine, and the
/// former machine may come back under another name.
///
/// # Errors
/// When the database fails.
pub(crate) async fn keep_former(
    conn: &mut PgConnection,
    node: NodeId,
    before: &Identifiers,
    now: Timestamp,
) -> Result<(), Error> {
    if before.is_empty() {
        return Ok(());
    }
    let removed = before.without(&collect_declared(conn, node).await?);
    if removed.is_empty() {
        return Ok(());
    }
    let claim = db::specs::find_last_claim(conn, node).await?;
    let id = Uuid::now_v7();
    let Some(unsanitised) = db::remains::insert(conn, id, node, claim, now).await? else {
        return Ok(());
    };
    let mut shown = removed;
    if unsanitised {
        for part in db::remains::list_parts(conn, node, false).await? {
            if part.kind == PartKind::Disk {
                shown.add_disk(&part.serial);
            }
        }
    }
    db::remains::add_identifiers(conn, id, &shown).await?;
    db::remains::absorb(conn, id, node).await?;
    db::remains::add_heir(conn, id, node, now).await
}

/// Writes the remains of a disk that a person has taken out of a node with data on the disks.
///
/// # Errors
/// When the database fails.
pub(crate) async fn keep_disk(
    conn: &mut PgConnection,
    node: NodeId,
    serial: &str,
    reason: &str,
    now: Timestamp,
) -> Result<(), Error> {
    let mut shown = Identifiers::default();
    shown.add_disk(serial);
    let Some(disk) = shown.values().pop() else {
        return Ok(());
    };
    let claim = db::specs::find_last_claim(conn, node).await?;
    let id = Uuid::now_v7();
    if db::remains::insert_disk(conn, id, node, &disk, reason, claim, now).await? {
        db::remains::add_identifiers(conn, id, &shown).await?;
    }
    Ok(())
}

/// Merges into a node all remains of the same machine, and of disks in the machine. Every path to a
/// node calls this function in the transaction of the write: registration, discovery, match and
/// inspection.
///
/// # Errors
/// When the database fails.
pub(crate) async fn merge(
    conn: &mut PgConnection,
    node: NodeId,
    actor: &str,
    now: Timestamp,
) -> Result<(), Error> {
    let shown = collect(conn, node, true).await?;
    for remains in db::remains::find(conn, node, &shown).await? {
        db::remains::merge(conn, node, &remains, now).await?;
        let event = NewEvent::node(
            now,
            actor,
            "node.remains_merged",
            node,
            describe_merge(&remains),
        );
        let detail = json!({
            "from": remains.node, "name": remains.node_name, "left_at": remains.left_at, "shown": remains.shown,
            "unsanitised": remains.unsanitised, "reason": remains.reason, "epoch": remains.epoch, "adopted": remains.adopted,
        });
        db::events::insert(conn, event.with(detail)).await?;
    }
    Ok(())
}

/// Records a verified wipe of all disks of a node. The permit names the disks: a report of the node
/// alone clears no memory.
///
/// # Errors
/// When the database fails.
pub(super) async fn end_wiped(
    conn: &mut PgConnection,
    node: NodeId,
    permit: Option<PermitId>,
) -> Result<(), Error> {
    let Some(permit) = permit else {
        return Ok(());
    };
    let mut wiped = Identifiers::default();
    for serial in db::permits::find_disks(conn, permit).await? {
        wiped.add_disk(&serial);
    }
    db::remains::forget_disks(conn, &wiped).await?;
    end_data(conn, node).await
}

/// Ends the memory of data in a machine whose present disks hold no data. Disks elsewhere stay
/// remembered, without the machine.
///
/// # Errors
/// When the database fails.
pub(crate) async fn end_data(conn: &mut PgConnection, node: NodeId) -> Result<(), Error> {
    db::remains::settle(conn, node).await?;
    let shown = collect(conn, node, true).await?;
    db::remains::forget_machine(conn, node, &shown).await
}

/// Returns the origin of data on a node's disks, as a deleted record has told.
///
/// # Errors
/// When the database fails.
pub(super) async fn explain_data(
    conn: &mut PgConnection,
    node: NodeId,
) -> Result<Option<String>, Error> {
    let left = db::remains::find_data_left(conn, node).await?;
    Ok(left.map(|left| {
        let because = left
            .reason
            .map(|reason| format!(" ({reason})"))
            .unwrap_or_default();
        format!(
            "{} left data on its disks on {}{because}",
            left.node_name,
            left.left_at.strftime("%F")
        )
    }))
}

/// Collects the declared identifiers of a node.
///
/// # Errors
/// When the database fails.
pub(crate) async fn collect_declared(
    conn: &mut PgConnection,
    node: NodeId,
) -> Result<Identifiers, Error> {
    let identity = db::remains::find_identity(conn, node).await?;
    list_declared(conn, node, &identity).await
}

/// Returns the declared part of an identity, with the declared MACs.
async fn list_declared(
    conn: &mut PgConnection,
    node: NodeId,
    identity: &Identity,
) -> Result<Identifiers, Error> {
    let mut shown = Identifiers::default();
    if let Some(serial) = &identity.serial {
        shown.add_serial(serial);
    }
    if let Some(uuid) = identity.smbios_uuid {
        shown.add_uuid(uuid);
    }
    for mac in db::matches::list_macs(conn, node).await? {
        shown.add_mac(mac);
    }
    Ok(shown)
}

/// Collects the identifiers of a node from the declaration and from inventories. `present`: only
/// parts that are in the machine now.
async fn collect(
    conn: &mut PgConnection,
    node: NodeId,
    present: bool,
) -> Result<Identifiers, Error> {
    let seen = db::remains::find_identity(conn, node).await?;
    let mut shown = list_declared(conn, node, &seen).await?;
    if let Some(serial) = &seen.seen_serial {
        shown.add_serial(serial);
    }
    if let Some(uuid) = seen.seen_uuid.and_then(|uuid| uuid.parse::<Uuid>().ok()) {
        shown.add_uuid(uuid);
    }
    for part in db::remains::list_parts(conn, node, present).await? {
        match part.kind {
            PartKind::Chassis | PartKind::Board => shown.add_serial(&part.serial),
            PartKind::Disk => shown.add_disk(&part.serial),
            PartKind::Nic => {
                if let Ok(mac) = part.serial.parse::<Mac>() {
                    shown.add_interface(mac);
                }
            }
            // Both move from machine to machine and hold no data.
            PartKind::Gpu | PartKind::Dimm => {}
        }
    }
    Ok(shown)
}

fn describe_merge(remains: &RemainsRow) -> String {
    let mut kept = Vec::new();
    if remains.unsanitised {
        let because = remains
            .reason
            .as_deref()
            .map(|reason| format!(" ({reason})"))
            .unwrap_or_default();
        kept.push(format!(
            "the disks may hold data{because}, so inspect and wipe before the next claim"
        ));
    }
    if remains.epoch > 0 {
        kept.push(format!("the epoch is at least {}", remains.epoch));
    }
    if remains.adopted {
        kept.push("the system was adopted".to_owned());
    }
    format!(
        "{} is remembered from {}, gone since {}: {}",
        remains.shown,
        remains.node_name,
        remains.left_at.strftime("%F"),
        kept.join("; ")
    )
}
