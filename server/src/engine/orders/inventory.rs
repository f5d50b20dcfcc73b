//! The order to collect the facts of a machine. In the live image the order also asks for the
//! switch ports at the other ends of the declared cables.

use muster_core::wire::job::JobSpec;
use sqlx::PgConnection;

use super::logins;
use super::sources::Sources;
use crate::db;

/// Without a live image the installed system is inspected, because a node in service is not
/// rebooted for an inspection. An installed system does not listen to switches, so the order names
/// no cables.
pub(super) async fn order(conn: &mut PgConnection, s: &Sources<'_>) -> anyhow::Result<JobSpec> {
    let Some(login) = logins::live(conn, s).await? else {
        return Ok(JobSpec::Inventory {
            login: logins::installed(conn, s).await?,
            cabled: Vec::new(),
        });
    };
    let planned = db::cabling::find_plan_of(conn, s.row.node).await?;
    let cables = planned.map(|(node, plan)| {
        plan.cables
            .into_iter()
            .filter(move |cable| cable.node == node)
    });
    Ok(JobSpec::Inventory {
        login,
        cabled: cables
            .into_iter()
            .flatten()
            .map(|cable| cable.nic)
            .collect(),
    })
}
