//! Power on, off and cycle.

use muster_core::wire::job::JobSpec;
use sqlx::PgConnection;

use super::bmc::resolve_power;
use super::logins;
use super::sources::{Sources, permit};

/// The running system, live image or installed, must first shut down.
pub(super) async fn order_off(conn: &mut PgConnection, s: &Sources<'_>) -> anyhow::Result<JobSpec> {
    let login = logins::running(conn, s).await?;
    Ok(JobSpec::PowerOff {
        power: resolve_power(conn, s).await?,
        login,
        permit: permit(s)?,
    })
}

pub(super) async fn order_on(conn: &mut PgConnection, s: &Sources<'_>) -> anyhow::Result<JobSpec> {
    Ok(JobSpec::PowerOn {
        power: resolve_power(conn, s).await?,
        permit: permit(s)?,
    })
}

pub(super) async fn order_cycle(
    conn: &mut PgConnection,
    s: &Sources<'_>,
) -> anyhow::Result<JobSpec> {
    Ok(JobSpec::PowerCycle {
        power: resolve_power(conn, s).await?,
        permit: permit(s)?,
    })
}
