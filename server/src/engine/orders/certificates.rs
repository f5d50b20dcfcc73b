//! The SSH user certificate of an order: for one system of one node, with the time that the node's
//! clock allows. Each certificate has a row until its end.

use jiff::Timestamp;
use muster_core::lifecycle::steps::Step;
use muster_core::wire::login::UserKey;
use russh::keys::ssh_key::PrivateKey;
use sqlx::PgConnection;

use super::sources::{Sources, lasts_s, read_site};
use crate::db;
use crate::db::ssh_certificates::NewCertificate;
use crate::keys::rings::ca_id;
use crate::keys::ssh::{self, Grant, NodeClock, Validity};

/// Returns a key for a live image.
pub(super) async fn certify_live(
    conn: &mut PgConnection,
    s: &Sources<'_>,
    principal: &str,
    lasts_s: u64,
) -> anyhow::Result<UserKey> {
    // Until the end of a rotation, every live image trusts the former CA.
    let ca = s.keys.open_user_cas(conn).await?.current;
    let login = NewLogin {
        ca: &ca,
        clock: NodeClock::Set,
        lasts_s,
    };
    certify(conn, s, principal, login).await
}

/// Returns a key for the installed system.
pub(super) async fn certify_installed(
    conn: &mut PgConnection,
    s: &Sources<'_>,
    principal: &str,
    lasts_s: u64,
) -> anyhow::Result<UserKey> {
    let clock = find_clock(conn, s).await?;
    let ca = choose_installed_ca(conn, s).await?;
    let login = NewLogin {
        ca: &ca,
        clock,
        lasts_s,
    };
    certify(conn, s, principal, login).await
}

/// Returns a key for a machine installed by others: no report tells the clock.
pub(super) async fn certify_adopted(
    conn: &mut PgConnection,
    s: &Sources<'_>,
    principal: &str,
    ca: &PrivateKey,
) -> anyhow::Result<UserKey> {
    let login = NewLogin {
        ca,
        clock: NodeClock::Unknown,
        lasts_s: lasts_s(s),
    };
    certify(conn, s, principal, login).await
}

/// Returns the CA for the installed system: during a rotation the new CA, after the system has
/// taken the new CA.
async fn choose_installed_ca(
    conn: &mut PgConnection,
    s: &Sources<'_>,
) -> anyhow::Result<PrivateKey> {
    let cas = s.keys.open_user_cas(conn).await?;
    let Some(next) = cas.next else {
        return Ok(cas.current);
    };
    match db::taken_keys::is_ca_trusted(conn, s.row.node, &ca_id(&next)?).await? {
        true => Ok(next),
        false => Ok(cas.current),
    }
}

/// The signer of a certificate, the clock of the node, and the length of the job.
#[derive(Clone, Copy)]
struct NewLogin<'a> {
    ca: &'a PrivateKey,
    clock: NodeClock,
    lasts_s: u64,
}

async fn certify(
    conn: &mut PgConnection,
    s: &Sources<'_>,
    principal: &str,
    login: NewLogin<'_>,
) -> anyhow::Result<UserKey> {
    let NewLogin { ca, clock, lasts_s } = login;
    let clock = match db::ssh_certificates::is_refused(conn, s.row.node, s.now).await? {
        true => NodeClock::Unknown,
        false => clock,
    };
    let validity = Validity::of(clock, s.now, lasts_s);
    let (job, attempt) = (s.row.id, s.row.attempt);
    let grant = Grant {
        principal,
        key_id: &format!("node {} job {job} attempt {attempt}", s.node.name),
        validity,
        sources: &read_site(s)?.ssh_sources,
    };
    let signed = ssh::sign(ca, &grant)?;
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
