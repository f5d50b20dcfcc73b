//! Two nodes that measure each other: a login to each, and its pool's pair gates with the way to the other.

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
            end(conn, s, &trial, &other).await?,
            end(conn, &other, &trial, s).await?,
        ],
    })
}

/// The scheduler holds the node, so no job runs there: gates that need a drained node may run.
async fn end(
    conn: &mut PgConnection,
    s: &Sources<'_>,
    trial: &OrderRow,
    other: &Sources<'_>,
) -> anyhow::Result<PairEnd> {
    let mut plan = GatePlan {
        suite: trial.suite.0.clone(),
        only: Vec::new(),
        health: None,
        ..gates::plan(conn, s).await?
    };
    // The variables of the request, and the way to the other end. The server's own variables take precedence.
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
        login: logins::installed(s)?,
        plan,
    })
}
