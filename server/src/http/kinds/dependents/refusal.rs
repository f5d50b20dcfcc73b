//! The refusal of a change with broken nodes.

use std::collections::BTreeMap;

use sqlx::PgConnection;

use crate::auth::Actor;
use crate::auth::access::Named;
use crate::error::{BrokenNodes, Error};

/// The largest number of nodes named in a refusal.
const NAMED: usize = 20;
/// The largest number of nodes whose place is compared with the read scope of the caller.
const COMPARED: usize = 200;

/// Rejects a change with broken nodes. `broken` has the reason of every node, by name. `rule` is
/// the sentence before the nodes, and `advice` names the act to do first.
///
/// # Errors
/// 409 with the number of nodes, and the names within the caller's read scope.
pub(super) async fn refuse(
    conn: &mut PgConnection,
    actor: &Actor,
    broken: &BTreeMap<String, String>,
    rule: &str,
    advice: &str,
) -> Result<(), Error> {
    if broken.is_empty() {
        return Ok(());
    }
    let mut nodes = Vec::new();
    let mut reasons = Vec::new();
    for (name, reason) in broken.iter().take(COMPARED) {
        if nodes.len() == NAMED {
            break;
        }
        let named = Named {
            kind: "node",
            key: name,
        };
        match actor.need(conn, "fleet.read", named).await {
            Ok(()) => {
                reasons.push(format!("{name} ({reason})"));
                nodes.push(name.clone());
            }
            Err(Error::NotFound(_) | Error::Forbidden(_)) => {}
            Err(other) => return Err(other),
        }
    }
    let count = broken.len();
    let more = match (reasons.len(), count - reasons.len()) {
        (_, 0) => String::new(),
        (0, hidden) => format!("{hidden} outside of your read scope"),
        (_, more) => format!(" and {more} more"),
    };
    let detail = format!(
        "{rule} {count} {}: {}{more}. {advice}",
        if count == 1 { "node" } else { "nodes" },
        reasons.join(", "),
    );
    Err(Error::BreaksNodes(Box::new(BrokenNodes {
        detail,
        nodes,
        count: i64::try_from(count).unwrap_or(i64::MAX),
    })))
}
