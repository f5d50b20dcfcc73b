//! Boots of the live image and of the installed system.

use anyhow::Context;
use muster_core::wire::job::{BootLive, JobSpec};
use sqlx::PgConnection;

use super::bmc::resolve_power;
use super::certificates::certify_live;
use super::logins;
use super::sources::{Sources, lasts_s, permit, read_site};

pub(super) async fn order_live(
    conn: &mut PgConnection,
    s: &Sources<'_>,
) -> anyhow::Result<JobSpec> {
    let image = read_site(s)?
        .live
        .context("the site declares no live image (spec.live)")?;
    let nonce = s.row.nonce.clone().context("the job has no nonce")?;
    let principal = logins::live_principal(&nonce);
    Ok(JobSpec::BootLive(BootLive {
        power: resolve_power(conn, s).await?,
        permit: permit(s)?,
        macs: s.wiring.macs.clone(),
        address: s.wiring.address,
        user_key: certify_live(conn, s, &principal, lasts_s(s)).await?,
        nonce,
        kernel: image.kernel,
        initrd: image.initrd,
        expect_uuid: s.node.smbios_uuid.clone(),
        expect_serial: s.node.serial.clone(),
        live_signature: image.signature,
    }))
}

pub(super) async fn order_disk(
    conn: &mut PgConnection,
    s: &Sources<'_>,
) -> anyhow::Result<JobSpec> {
    Ok(JobSpec::BootDisk {
        power: resolve_power(conn, s).await?,
        login: logins::installed(conn, s).await?,
        live: logins::live(conn, s).await?,
        permit: permit(s)?,
    })
}

pub(super) async fn order_reboot(
    conn: &mut PgConnection,
    s: &Sources<'_>,
) -> anyhow::Result<JobSpec> {
    Ok(JobSpec::Reboot {
        power: resolve_power(conn, s).await?,
        login: logins::installed(conn, s).await?,
        permit: permit(s)?,
    })
}
