//! Signs of trouble that halt a rollout: alerts of monitoring.

use muster_core::rollout::HaltWhen;
use sqlx::PgConnection;

use crate::db;
use crate::db::rollouts::RolloutRow;
use crate::error::Error;

/// Lists the signals in force, as sentences, the oldest first.
///
/// # Errors
/// When the database fails.
pub(super) async fn list_signals(
    conn: &mut PgConnection,
    rollout: &RolloutRow,
) -> Result<Vec<String>, Error> {
    let signals = rollout.policy.0.halt_when.iter();
    let alerts: Vec<String> = signals.map(|HaltWhen::Alert(name)| name.clone()).collect();
    if alerts.is_empty() {
        return Ok(Vec::new());
    }
    let firing = db::alerts::list_firing(conn, rollout.id, &alerts).await?;
    // The sentence names no node: a reader of the rollout may be no reader of the node.
    let tell = |alert: &db::alerts::FiringAlert| {
        let since = alert.since.to_jiff();
        let nodes = match alert.nodes {
            1 => "1 node".to_owned(),
            many => format!("{many} nodes"),
        };
        format!("alert {} fires on {nodes} since {since:.0}", alert.name)
    };
    Ok(firing.iter().map(tell).collect())
}
