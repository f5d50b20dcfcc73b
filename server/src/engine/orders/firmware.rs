//! Firmware and BIOS required by the stack of a node's claim, for a machine of this product.

use muster_core::firmware::{Compared, Wanted};
use muster_core::lifecycle::state::State;
use muster_core::lifecycle::steps::Step;
use muster_core::stacks::StackSpec;
use muster_core::wire::firmware::SetFirmware;
use sqlx::PgConnection;

use super::bmc::resolve_power;
use super::sources::{Sources, boot_url, permit};
use super::{logins, stack};
use crate::db;
use crate::engine::compatibility::Onto;

/// Returns the firmware required by the stack for the inspected machine.
async fn find_wanted(conn: &mut PgConnection, s: &Sources<'_>) -> anyhow::Result<Wanted> {
    let facts = db::facts::find_machine(conn, s.row.node).await?;
    Ok(s.node
        .stack
        .as_ref()
        .map(|stack| stack.firmware_of(facts.as_ref()))
        .unwrap_or_default())
}

/// `Step::Firmware` has a permit and sets the firmware. `Step::FirmwareLook` only reads.
pub(super) async fn order(
    conn: &mut PgConnection,
    s: &Sources<'_>,
    step: Step,
) -> anyhow::Result<SetFirmware> {
    if step == Step::Firmware {
        // On the way to an installation, the image is written next.
        let onto = if s.node.state == State::Imaging {
            Onto::Image
        } else {
            Onto::System
        };
        stack::allow(conn, s, onto).await?;
    }
    let power = resolve_power(conn, s).await?;
    let images = boot_url(s, "blob/sha256");
    let wanted = find_wanted(conn, s).await?;
    if step != Step::Firmware {
        return Ok(SetFirmware {
            power,
            permit: None,
            login: None,
            wanted,
            images,
        });
    }
    // The running system, live image or installed, must first shut down.
    let login = logins::running(conn, s).await?;
    Ok(SetFirmware {
        power,
        permit: Some(permit(s)?),
        login,
        wanted,
        images,
    })
}

/// Returns the required firmware with the BMC's latest report, for gates. `None` without a claim.
pub(super) async fn compared(
    conn: &mut PgConnection,
    s: &Sources<'_>,
) -> anyhow::Result<Option<Vec<Compared>>> {
    if s.node.claim.is_none() {
        return Ok(None);
    }
    let facts = db::facts::find_machine(conn, s.row.node).await?;
    let seen = db::firmware::latest(conn, s.row.node).await?;
    let seen = seen.as_ref().map(|seen| &seen.inventory);
    let compare = |stack: &StackSpec| stack.compare_firmware(facts.as_ref(), seen);
    Ok(Some(s.node.stack.as_ref().map(compare).unwrap_or_default()))
}
