//! The SSH user certificate of an order: for one system of one node, with the time that the node's
//! clock allows. Each certificate has a row until its end.

use jiff::Timestamp;
use muster_core::lifecycle::steps::Step;
use muster_core::wire::login::UserKey;
use sqlx::PgConnection;

use super::sources::{Sources, read_site};
use crate::db;
use crate::db::ssh_certificates::NewCertificate;
use crate::keys::ssh::{Grant, NodeClock, Validity};

/// Returns a key for a live image.
pub(super) async fn certify_live(
    conn: &mut PgConnection,
    s: &Sources<'_>,
    principal: &str,
    lasts_s: u64,
) -> anyhow::Result<UserKey> {
    certify(conn, s, principal, NodeClock::Set, lasts_s).await
}

/// Returns a key for the installed system.
pub(super) async fn certify_installed(
    conn: &mut PgConnection,
    s: &Sources<'_>,
    principal: &str,
    lasts_s: u64,
) -> anyhow::Result<UserKey> {
    let clock = find_clock(conn, s).await?;
    certify(conn, s, principal, clock, lasts_s).await
}

/// Returns a key for a machine installed by others: no report tells the clock.
pub(super) async fn certify_adopted(
    conn: &mut PgConnection,
    s: &Sources<'_>,
    principal: &str,
    lasts_s: u64,
) -> anyhow::Result<UserKey> {
    certify(conn, s, principal, NodeClock::Unknown, lasts_s).await
}

async fn certify(
    conn: &mut PgConnection,
    s: &Sources<'_>,
    principal: &str,
    clock: NodeClock,
    lasts_s: u64,
) -> anyhow::Result<UserKey> {
    let clock = match db::ssh_certificates::is_refused(conn, s.row.node, s.now).await? {
        true => NodeClock::Unknown,
        false => clock,
    };
    let validity = Validity::of(clock, s.now, lasts_s);
    let (job, attempt) = (s.row.id, s.row.attempt);
    let signed = s.keys.certify(&Grant {
        principal,
        key_id: &format!("node {} job {job} attempt {attempt}", s.node.name),
        validity,
        sources: &read_site(s)?.ssh_sources,
    })?;
    let certificate = NewCertificate {
        serial: signed.serial,
        job,
        attempt,
        node: s.row.node,
        issued: s.now,
        // An end outside of the calendar is none.
        ends: validity
            .before_s
            .and_then(|end| Timestamp::from_second(end).ok()),
    };
    db::ssh_certificates::insert(conn, &certificate).await?;
    Ok(signed.key)
}

/// Returns the clock of the installed system, by the latest report of muster-node.
async fn find_clock(conn: &mut PgConnection, s: &Sources<'_>) -> anyhow::Result<NodeClock> {
    let seen = db::node_clocks::find(conn, s.row.node).await?;
    Ok(seen.map_or(NodeClock::Unknown, |seen| {
        let offset_s = seen.offset_ms / 1000;
        if seen.booted_since || boots_installed(s.row.step) {
            NodeClock::Booted { offset_s }
        } else {
            NodeClock::Seen { offset_s }
        }
    }))
}

/// Returns whether the installed system boots during a step. The login after the boot meets the
/// clock of the board.
fn boots_installed(step: Step) -> bool {
    matches!(step, Step::BootDisk | Step::Reboot | Step::RebootTest)
}
