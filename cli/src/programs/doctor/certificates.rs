//! Nodes accepting SSH certificates of removed agents.

use muster_server::db::ssh_certificates::{self, AcceptingNode};
use muster_server::error::Error;

use super::{Found, Host, database};

/// Most nodes in a report.
const MOST: i64 = 50;

pub(super) async fn check(host: &Host) -> Vec<Found> {
    let pool = match database::connect(host).await {
        Ok(pool) => pool,
        // The database check reports the cause.
        Err(_) => {
            return vec![Found::unknown(
                "the database cannot be looked into",
                "see the check `database`",
            )];
        }
    };
    let listed = async {
        let mut conn = pool.acquire().await?;
        ssh_certificates::list_accepting(&mut conn, host.clock.now(), MOST).await
    };
    let listed: Result<Vec<AcceptingNode>, Error> = listed.await;
    let Ok(nodes) = listed else {
        return vec![Found::unknown(
            "the SSH certificates of removed agents cannot be read",
            "see the checks `database` and `schema`",
        )];
    };
    if nodes.is_empty() {
        return vec![Found::ok(
            "no node accepts SSH certificates of a removed agent",
        )];
    }
    nodes
        .into_iter()
        .map(|AcceptingNode { node, certificates }| {
            Found::warn(
                format!("{node} accepts {certificates} SSH certificates of removed agents"),
                "run gates or an inspection on the node; the log of the job has the reason of a failure",
            )
        })
        .collect()
}
