//! Firmware and BIOS, as the stack of a node's claim wants them of a machine of this product.

use muster_core::firmware::{Compared, Wanted};
use muster_core::lifecycle::steps::Step;
use muster_core::wire::firmware::SetFirmware;
use sqlx::PgConnection;

use super::{Sources, boot_url, installed, live, permit, power};
use crate::db;

/// What is wanted of the machine that was inspected.
async fn wanted(conn: &mut PgConnection, s: &Sources<'_>) -> anyhow::Result<Wanted> {
    let facts = db::facts::latest_live(conn, s.row.node).await?;
    Ok(s.node
        .stack
        .as_ref()
        .map(|stack| stack.firmware_of(facts.as_ref()))
        .unwrap_or_default())
}

/// With a permit what is wanted is set; a look only looks.
pub(super) async fn order(
    conn: &mut PgConnection,
    s: &Sources<'_>,
    step: Step,
) -> anyhow::Result<SetFirmware> {
    let power = power(conn, s).await?;
    let images = boot_url(s, "blob/sha256");
    let wanted = wanted(conn, s).await?;
    if step != Step::Firmware {
        return Ok(SetFirmware {
            power,
            permit: None,
            login: None,
            wanted,
            images,
        });
    }
    // Its system is asked to shut down first, whichever it runs.
    let login = live(conn, s).await?.or_else(|| installed(s).ok());
    Ok(SetFirmware {
        power,
        permit: Some(permit(s)?),
        login,
        wanted,
        images,
    })
}

/// What is wanted beside what the BMC said last, for gates; nothing where no stack is promised.
pub(super) async fn compared(
    conn: &mut PgConnection,
    s: &Sources<'_>,
) -> anyhow::Result<Option<Vec<Compared>>> {
    if s.node.claim.is_none() {
        return Ok(None);
    }
    let seen = db::firmware::latest(conn, s.row.node).await?;
    Ok(Some(
        wanted(conn, s)
            .await?
            .compare(seen.as_ref().map(|seen| &seen.inventory)),
    ))
}
