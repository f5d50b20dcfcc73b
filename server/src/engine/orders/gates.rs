//! The gates of a suite, and the sweep of a pool.

use std::collections::BTreeSet;

use anyhow::{Context, bail};
use muster_core::gates::{Gate, lint_program};
use muster_core::wire::job::JobSpec;
use muster_core::wire::node::GatePlan;
use sqlx::PgConnection;

use super::sources::{Sources, boot_url, lasts_s, read_site};
use super::{firmware, logins, stack};
use crate::db;
use crate::engine::observations::select_gates;
use crate::engine::waivers;

/// Seconds added to the time of a suite's gates, for logins and for the start and end of the tools.
const GATES_MARGIN_S: u64 = 15 * 60;

/// Returns the time that the gates of a plan need, in seconds. A suite with hours of load runs
/// longer than the usual time of the step.
pub(super) fn longest_s(plan: &GatePlan) -> u64 {
    plan.suite.longest_s(&plan.only) + GATES_MARGIN_S
}

/// Gates run in a pinned live image, otherwise in the installed system.
pub(super) async fn order(conn: &mut PgConnection, s: &Sources<'_>) -> anyhow::Result<JobSpec> {
    let plan = plan(conn, s).await?;
    let lasts_s = lasts_s(s).max(longest_s(&plan));
    Ok(JobSpec::Gates {
        login: logins::either_for(conn, s, lasts_s).await?,
        plan: mark_former(conn, plan).await?,
    })
}

pub(super) async fn order_sweep(
    conn: &mut PgConnection,
    s: &Sources<'_>,
) -> anyhow::Result<JobSpec> {
    let plan = plan_sweep(conn, s).await?;
    let lasts_s = lasts_s(s).max(longest_s(&plan));
    Ok(JobSpec::Gates {
        login: logins::installed_for(conn, s, lasts_s).await?,
        plan: mark_former(conn, plan).await?,
    })
}

/// The gates of an operation's suite, or of the pool's. Before an admission every gate runs, on a
/// protected node as well: a node without all results never serves.
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
        protected: false,
        waived: waived_until.keys().cloned().collect(),
        waived_until,
        health: db::sweeps::find_suite(conn, s.row.node, "smoke").await?,
        xid: site.xid,
        firmware: firmware::compared(conn, s).await?,
    })
}

/// A sweep runs beside the node's jobs and skips gates for drained nodes. A node held by the
/// scheduler, without a job, runs every gate. On a protected node no gate with effects runs, even
/// where the protection came after the hold.
async fn plan_sweep(conn: &mut PgConnection, s: &Sources<'_>) -> anyhow::Result<GatePlan> {
    let suite = db::sweeps::find_suite(conn, s.row.node, "sweep")
        .await?
        .context("the pool names no sweep")?;
    let alone = db::sweeps::is_alone(conn, s.row.node, s.row.operation).await?;
    let protected = s.node.protected;
    Ok(GatePlan {
        suite,
        only: Vec::new(),
        in_use: protected || !alone,
        protected,
        ..plan(conn, s).await?
    })
}

/// Names the plan's gates that break the rule of programs and were stored before the rule. The node
/// refuses other such gates.
pub(super) async fn mark_former(
    conn: &mut PgConnection,
    mut plan: GatePlan,
) -> anyhow::Result<GatePlan> {
    let health = plan.health.iter().flat_map(|suite| &suite.gates);
    let gates = plan.suite.gates.iter().chain(health);
    let breaking: Vec<&Gate> = gates
        .filter(|gate| !lint_program(gate).is_empty())
        .collect();
    if breaking.is_empty() {
        plan.set_former_gates(&[]);
        return Ok(plan);
    }
    let stored = db::former_suites::list_gates(conn).await?;
    // Of two gates with the same id, both must be from before the rule.
    let is_former = |id: &str| {
        let mut same = breaking.iter().filter(|gate| gate.id == id);
        same.all(|gate| stored.contains(gate))
    };
    let ids: BTreeSet<&str> = breaking.iter().map(|gate| gate.id.as_str()).collect();
    let former = ids.into_iter().filter(|id| is_former(id));
    let former: Vec<String> = former.map(str::to_owned).collect();
    let former: Vec<&str> = former.iter().map(String::as_str).collect();
    plan.set_former_gates(&former);
    Ok(plan)
}
