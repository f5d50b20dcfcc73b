//! The refusal of a change with broken nodes.

use std::collections::BTreeMap;

use sqlx::PgConnection;

use crate::auth::Actor;
use crate::auth::access::COMPARED;
use crate::error::{BrokenNodes, Error};

/// The largest number of nodes named in a refusal.
const NAMED: usize = 20;

/// Rejects a change with broken nodes. `broken` has the reason of every node, by name. `rule` is
/// the sentence before the nodes, and `advice` names the act to do first.
///
/// # Errors
/// 409 with the number of nodes, and the names within the caller's read scope.
pub(in crate::http::kinds) async fn refuse(
    conn: &mut PgConnection,
    actor: &Actor,
    broken: &BTreeMap<String, String>,
    rule: &str,
    advice: &str,
) -> Result<(), Error> {
    if broken.is_empty() {
        return Ok(());
    }
    let names = broken.keys().cloned().collect();
    let nodes = actor.keep_readable(conn, names, NAMED).await?;
    let reasons: Vec<String> = nodes
        .iter()
        .map(|name| format!("{name} ({})", broken[name]))
        .collect();
    let count = broken.len();
    let more = describe_rest(reasons.len(), count);
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

/// Describes the broken nodes without a name. Only the first nodes were compared with the read
/// scope of the caller.
fn describe_rest(named: usize, count: usize) -> String {
    match (named, count - named) {
        (_, 0) => String::new(),
        (0, hidden) if hidden <= COMPARED => format!("{hidden} outside of your read scope"),
        (0, more) => format!("{more} more, the first {COMPARED} outside of your read scope"),
        (_, more) => format!(" and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_compared_nodes_are_said_to_be_outside_of_the_read_scope() {
        for (named, count, told) in [
            (3, 3, ""),
            (0, 200, "200 outside of your read scope"),
            (0, 201, "201 more, the first 200 outside of your read scope"),
            (20, 300, " and 280 more"),
        ] {
            assert_eq!(describe_rest(named, count), told);
        }
    }
}
