//! Logins to a node: the live image by the nonce of its boot, the installed system by node and
//! assignment epoch.

use anyhow::Context;
use muster_core::wire::login::Login;
use sqlx::PgConnection;

use super::certificates::{certify_installed, certify_live};
use super::sources::{Sources, lasts_s};
use crate::db;

pub(super) const SSH_PORT: u16 = 22;

/// A login to the live image; `None` where no live image is pinned.
pub(super) async fn live(
    conn: &mut PgConnection,
    s: &Sources<'_>,
) -> anyhow::Result<Option<Login>> {
    live_for(conn, s, lasts_s(s)).await
}

async fn live_for(
    conn: &mut PgConnection,
    s: &Sources<'_>,
    lasts_s: u64,
) -> anyhow::Result<Option<Login>> {
    let Some(host_key) = s.node.live_host_key.clone() else {
        return Ok(None);
    };
    let Some(nonce) = db::specs::find_live_nonce(conn, s.row.node).await? else {
        return Ok(None);
    };
    let user_key = certify_live(conn, s, &live_principal(&nonce), lasts_s).await?;
    Ok(Some(Login {
        address: s.wiring.address,
        port: SSH_PORT,
        host_key,
        user_key,
    }))
}

/// A login to the live image, for an order that cannot do without.
pub(super) async fn need_live(conn: &mut PgConnection, s: &Sources<'_>) -> anyhow::Result<Login> {
    live(conn, s).await?.context("no live image is pinned")
}

/// A login to the installed system.
pub(super) async fn installed(conn: &mut PgConnection, s: &Sources<'_>) -> anyhow::Result<Login> {
    installed_for(conn, s, lasts_s(s)).await
}

/// A login to the installed system, for a job of `lasts_s` seconds.
pub(super) async fn installed_for(
    conn: &mut PgConnection,
    s: &Sources<'_>,
    lasts_s: u64,
) -> anyhow::Result<Login> {
    let host_key = s
        .node
        .os_host_key
        .clone()
        .context("no installed OS is known")?;
    let user_key = certify_installed(conn, s, &principal(s), lasts_s).await?;
    Ok(Login {
        address: s.wiring.address,
        port: SSH_PORT,
        host_key,
        user_key,
    })
}

/// A login to the pinned live image, otherwise to the installed system, for a job of `lasts_s`
/// seconds.
pub(super) async fn either_for(
    conn: &mut PgConnection,
    s: &Sources<'_>,
    lasts_s: u64,
) -> anyhow::Result<Login> {
    match live_for(conn, s, lasts_s).await? {
        Some(login) => Ok(login),
        None => installed_for(conn, s, lasts_s).await,
    }
}

/// A login to the running system, if there is a login: the live image before the installed system.
pub(super) async fn running(
    conn: &mut PgConnection,
    s: &Sources<'_>,
) -> anyhow::Result<Option<Login>> {
    match live(conn, s).await? {
        Some(login) => Ok(Some(login)),
        None if s.node.os_host_key.is_none() => Ok(None),
        None => installed(conn, s).await.map(Some),
    }
}

/// The principal of the live image of one boot.
pub(super) fn live_principal(nonce: &str) -> String {
    format!("muster-live:{nonce}")
}

/// The principal of the installed system: this node at the assignment epoch of the installation.
pub(super) fn principal(s: &Sources<'_>) -> String {
    installed_principal(s, s.node.os_epoch)
}

/// The principal of a system installed under an assignment epoch.
pub(super) fn installed_principal(s: &Sources<'_>, epoch: i64) -> String {
    format!("muster:{}:{epoch}", s.node.id)
}
