//! The order for two nodes to measure each other: a login to each node, and the pool's pair gates
//! with the address of the other node.

use anyhow::Context as _;
use muster_core::wire::node::GatePlan;
use muster_core::wire::pair::{PairEnd, PairOrder};
use sqlx::PgConnection;

use super::sources::Sources;
use super::{gates, logins, sources};
use crate::db;
use crate::db::jobs::LeasedRow;
use crate::db::pairs::trials::OrderRow;

pub(super) async fn order(conn: &mut PgConnection, s: &Sources<'_>) -> anyhow::Result<PairOrder> {
    let trial = db::pairs::trials::find_order(conn, s.row.id).await?;
    let trial = trial.context("the run of pairs is over")?;
    let node = trial.other.context("the other node was removed")?;
    let row = LeasedRow {
        node,
        operation: None,
        ..s.row.clone()
    };
    let (other, _) = sources::load(s.keys, conn, &row, s.now).await?;
    Ok(PairOrder {
        ends: [
            build_end(conn, s, &trial, &other).await?,
            build_end(conn, &other, &trial, s).await?,
        ],
    })
}

/// Builds one end of the pair. The scheduler holds the node and starts no jobs, so gates for
/// drained nodes may run.
async fn build_end(
    conn: &mut PgConnection,
    s: &Sources<'_>,
    trial: &OrderRow,
    other: &Sources<'_>,
) -> anyhow::Result<PairEnd> {
    let mut plan = GatePlan {
        suite: trial.suite.0.clone(),
        only: Vec::new(),
        health: None,
        protected: s.node.protected,
        ..gates::plan(conn, s).await?
    };
    // Joins the variables of the request with the address of the other end. The server's own
    // variables take precedence.
    let asked = trial
        .variables
        .0
        .iter()
        .map(|(word, value)| (word.clone(), value.clone()));
    let own = std::mem::take(&mut plan.variables);
    plan.variables = asked.chain(own).collect();
    plan.variables
        .insert("peer_address".into(), other.wiring.address.to_string());
    Ok(PairEnd {
        node: s.row.node,
        name: s.node.name.clone(),
        login: logins::installed(conn, s).await?,
        plan: gates::mark_former(conn, plan).await?,
    })
}
