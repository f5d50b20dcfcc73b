//! Firmware and BIOS as reported by a BMC. Stored values are bounded, because a BMC is an untrusted
//! computer. Changes are emitted as events.

use jiff::Timestamp;
use muster_core::firmware::{BiosValue, BmcInventory, SeenFirmware, is_secret};
use muster_core::ids::NodeId;
use muster_core::lifecycle::steps::Step;
use serde_json::json;
use sqlx::PgConnection;

use crate::db;
use crate::db::events::NewEvent;
use crate::db::jobs::CurrentJob;
use crate::error::Error;

const FIRMWARE: usize = 256;
const ATTRIBUTES: usize = 4096;
/// Most sentences kept about unread parts and about changes.
const SENTENCES: usize = 64;
const CHARS: usize = 300;

/// Stores an inventory. A part without a reading keeps the former value when the reading ran beside
/// the node's work. A BMC may be busy for a minute, and the next reading may come after the
/// firmware gates.
///
/// # Errors
///
/// When the database fails.
pub(super) async fn record_inventory(
    conn: &mut PgConnection,
    job: &CurrentJob,
    inventory: &BmcInventory,
    now: Timestamp,
) -> Result<(), Error> {
    let mut kept = bound_inventory(inventory);
    if job.step == Step::FirmwareLook && !kept.unread.is_empty() {
        let before = db::firmware::latest(conn, job.node).await?;
        kept = kept.over(before.map(|seen| seen.inventory).unwrap_or_default());
    }
    db::firmware::record_report(conn, job.node, &kept, now).await
}

/// Returns whether a part's reported version or setting differs from the stack of the assigned
/// revision. Unreported parts are unknown, and no difference.
///
/// # Errors
///
/// When the database fails.
pub(super) async fn differs(conn: &mut PgConnection, node: NodeId) -> Result<bool, Error> {
    let Some(stack) = db::specs::find_node(conn, node).await?.stack else {
        return Ok(false);
    };
    let facts = db::facts::find_machine(conn, node).await?;
    let seen = db::firmware::latest(conn, node).await?;
    let seen = seen.as_ref().map(|seen| &seen.inventory);
    let compared = stack.compare_firmware(facts.as_ref(), seen);
    Ok(compared.iter().any(|one| one.differs()))
}

/// Emits an event with a job's changes.
///
/// # Errors
///
/// When the database fails.
pub(super) async fn record_changes(
    conn: &mut PgConnection,
    job: &CurrentJob,
    changed: &[String],
    now: Timestamp,
) -> Result<(), Error> {
    if changed.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = changed
        .iter()
        .take(SENTENCES)
        .map(|line| clean_text(line))
        .collect();
    let more = if lines.len() > 1 {
        format!(", and {} more", lines.len() - 1)
    } else {
        String::new()
    };
    let event = NewEvent::node(
        now,
        "muster",
        "node.firmware_changed",
        job.node,
        format!("{}{more}", lines[0]),
    );
    db::events::insert(
        conn,
        event.under(job.operation).with(json!({ "changed": lines })),
    )
    .await
}

fn bound_inventory(inventory: &BmcInventory) -> BmcInventory {
    let firmware = inventory
        .firmware
        .iter()
        .take(FIRMWARE)
        .map(|seen| SeenFirmware {
            id: clean_text(&seen.id),
            name: clean_text(&seen.name),
            version: clean_text(&seen.version),
        });
    let bios = inventory
        .bios
        .iter()
        .filter(|(name, _)| !is_secret(name))
        .take(ATTRIBUTES)
        .map(|(name, value)| {
            let value = match value {
                BiosValue::Text(text) => BiosValue::Text(clean_text(text)),
                BiosValue::Flag(_) | BiosValue::Number(_) => value.clone(),
            };
            (clean_text(name), value)
        });
    BmcInventory {
        firmware: firmware.collect(),
        bios: bios.collect(),
        unread: inventory
            .unread
            .iter()
            .take(SENTENCES)
            .map(|line| clean_text(line))
            .collect(),
    }
}

/// Removes control characters, which a database column or a terminal cannot take, and cuts the text
/// to `CHARS`.
fn clean_text(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .take(CHARS)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_and_holds_no_password() {
        let long = "x".repeat(5000);
        let firmware = SeenFirmware {
            id: format!("a\0{long}"),
            name: String::new(),
            version: "1\u{1b}[2J".into(),
        };
        let wild = BmcInventory {
            firmware: vec![firmware; 1000],
            bios: (0..5000)
                .map(|n| (format!("a{n}"), BiosValue::Text(long.clone())))
                .chain([("SetupPassword".into(), BiosValue::Number(1))])
                .collect(),
            unread: vec![long.clone(); 100],
        };
        let kept = bound_inventory(&wild);
        assert_eq!(
            (kept.firmware.len(), kept.bios.len(), kept.unread.len()),
            (FIRMWARE, ATTRIBUTES, SENTENCES)
        );
        assert_eq!(
            (kept.firmware[0].id.len(), kept.firmware[0].version.as_str()),
            (CHARS, "1[2J")
        );
        assert!(
            kept.bios
                .values()
                .all(|value| value.to_string().len() == CHARS)
        );
        assert!(!kept.bios.contains_key("SetupPassword"));
        assert_eq!(bound_inventory(&kept), kept);
    }
}
