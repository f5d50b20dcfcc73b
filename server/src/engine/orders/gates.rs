//! The gates of a suite, and the sweep of a pool.

use anyhow::{Context, bail};
use muster_core::wire::job::JobSpec;
use muster_core::wire::node::GatePlan;
use sqlx::PgConnection;

use super::sources::{Sources, boot_url, read_site};
use super::{firmware, logins, stack};
use crate::db;
use crate::engine::observations::select_gates;
use crate::engine::waivers;

/// Gates run in a pinned live image, otherwise in the installed system.
pub(super) async fn order(conn: &mut PgConnection, s: &Sources<'_>) -> anyhow::Result<JobSpec> {
    let login = logins::live(conn, s)
        .await?
        .map_or_else(|| logins::installed(s), Ok)?;
    Ok(JobSpec::Gates {
        login,
        plan: plan(conn, s).await?,
    })
}

pub(super) async fn order_sweep(
    conn: &mut PgConnection,
    s: &Sources<'_>,
) -> anyhow::Result<JobSpec> {
    Ok(JobSpec::Gates {
        login: logins::installed(s)?,
        plan: plan_sweep(conn, s).await?,
    })
}

/// The gates of an operation's suite, or of the pool's.
pub(super) async fn plan(conn: &mut PgConnection, s: &Sources<'_>) -> anyhow::Result<GatePlan> {
    let suite = match db::specs::find_asked_suite(conn, s.row.operation).await? {
        Some(Ok(suite)) => suite,
        Some(Err(name)) => bail!("there is no suite {name} any more"),
        None => s.node.suite.clone().context("the pool names no suite")?,
    };
    let only = select_gates(&suite, s.row.step);
    let site = read_site(s)?;
    let address = |address: std::net::Ipv4Addr| address.to_string();
    let waived_until = waivers::gates(conn, s.row.node, s.now).await?;
    Ok(GatePlan {
        only,
        suite,
        profile: s
            .node
            .profile
            .clone()
            .context("the node has no hardware profile")?,
        // Gates compare pins and settings. Files go without content, because contents may hold
        // secrets.
        stack: match s.node.claim {
            Some(_) => Some(stack::without_contents(stack::plan(conn, s).await?)),
            None => None,
        },
        variables: [
            ("agent_address".to_owned(), address(s.agent_address)),
            (
                "agent_url".to_owned(),
                boot_url(s, "").trim_end_matches('/').to_owned(),
            ),
            ("address".to_owned(), address(s.wiring.address)),
            ("hostname".to_owned(), s.node.name.clone()),
        ]
        .into(),
        in_use: false,
        waived: waived_until.keys().cloned().collect(),
        waived_until,
        health: db::sweeps::find_suite(conn, s.row.node, "smoke").await?,
        xid: site.xid,
        firmware: firmware::compared(conn, s).await?,
    })
}

/// A sweep runs beside the node's jobs and skips gates for drained nodes. A node held by the
/// scheduler, without a job, runs every gate.
async fn plan_sweep(conn: &mut PgConnection, s: &Sources<'_>) -> anyhow::Result<GatePlan> {
    let suite = db::sweeps::find_suite(conn, s.row.node, "sweep")
        .await?
        .context("the pool names no sweep")?;
    let in_use = !db::sweeps::is_alone(conn, s.row.node, s.row.operation).await?;
    Ok(GatePlan {
        suite,
        only: Vec::new(),
        in_use,
        ..plan(conn, s).await?
    })
}
